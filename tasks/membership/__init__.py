"""Membership inference: can somebody who holds the model tell who was in the training set?

    scores.py     losses and scores: one number a unit, higher means "more likely a member"
    metrics.py    evaluate(): AUC, balanced accuracy, advantage and TPR at low FPR, each with an interval
    rates.py      thresholds, true and false positive rates, and their intervals
    results.py    what an attack found, and published(): the rounded form that may leave the run
    control.py    the positive control: a network that can only memorise, which the attack must catch
    blind.py      the blind baseline: can the split be told from the records alone, without any model?
    verdict.py    judge(): VETO, CONTRADICTION, INVALID_SPLIT, ATTACK_BROKEN, FAIL, INCONCLUSIVE or PASS

Everything is by privacy unit: a person's rows become one score before anything is counted, so an interval is
the unit's and not the row's.

**Level 0**, the loss attack without shadow models (Yeom et al. 2018), is what is here. It asks one question of the
artifact itself: are the losses of units it was trained on smaller than those of units it was not?

What it can show:

- that a model leaks: a lower bound of its advantage above the limit (FAIL), or above what the accountant's curve
  allows (CONTRADICTION: then the claim or the training is wrong);
- that this attack, on this split, by this code, catches a network that has memorised (the control).

What it cannot show:

- that a model does not leak. **A low attack score alone proves nothing.** Stronger attacks exist: on one data set
  (Location-30, no privacy, measured) this attack finds 1.4 % of the members at 1 % false positives, and one with 32
  shadow models 59 %. A PASS means that *this* attack, shown able to catch a memorising network, gains at most the
  limit. Epsilon remains the only bound against every attack;
- anything about single people: a small average may hide a few units that are told apart with certainty, which is
  why the true positive rate at low false positive rates stands beside it;
- anything about people who are not exchangeable between training set and hold-out, hence the blind baseline.

None of these numbers is covered by epsilon, since they are computed from members without noise: only `published`
figures leave the run, and no score of a unit does.
"""
