"""A rehearsal says what a real run would do, claims nothing for itself, and leaves nothing behind."""

import json
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from configs.errors import BudgetError, ConfigurationError, UsageError
from flows import cli, plain, screen
from tasks import progress
from tasks.forecast import Forecast
from tasks.handover import Outcome
from tasks.opening import opened
from tasks.privacy.ledger import Ledger
from tasks.summary import markdown

Small = Callable[..., Path]


def outcome_of(**changes: Any) -> Outcome:
    arguments: dict[str, Any] = {
        "model": "readmission",
        "verdict": "promoted",
        "exit_code": 0,
        "reasons": (("min_auc", "passed", "AUC reaches the limit"),),
        "claim": "the claim, of which 1.000 would be used by a first run.",
        "statement": "exact",
        "run_id": "abc",
        "model_version": "1",
        "tracking_uri": "sqlite:////gone/mlflow.db",
        "card": "",
        "metrics": (
            ("privacy/run_epsilon", 3.0),
            ("privacy/delta", 1e-6),
            ("privacy/ledger_epsilon_used", 3.5),
            ("privacy/ledger_epsilon_cap", 8.0),
        ),
        "unit": "person",
        "guarantee_delta": 1e-6,
        "simulated": True,
        "rehearsal": True,
    }
    return Outcome(**(arguments | changes))


def standing(**changes: Any) -> Forecast:
    arguments: dict[str, Any] = dict.fromkeys(Forecast.__slots__, 0) | {
        "known": True,
        "used_epsilon": 4.25,
        "epsilon_after": 5.5,
        "guarantee_epsilon": 8.0,
        "runs_that_fit": 2,
        "refusal": "",
    }
    return Forecast(**(arguments | changes))


FITS = standing()
REFUSED = standing(runs_that_fit=0, refusal="population p: not one such run fits.")
DIFFERS = ConfigurationError("population p: the file says unit row, the ledger person")


def printed(result: Outcome, found: Any) -> str:
    console = Console(file=StringIO(), width=400)
    screen.outcome(console, result, found)
    return console.file.getvalue()  # type: ignore[attr-defined]


def said_as_if_it_had_happened(text: str) -> list[str]:
    """Each `used` or `promoted` that is neither hypothetical, nor denied, nor said of what earlier runs used."""
    allowed = (
        r"would be (used|promoted)",
        r"nothing was spent, recorded or promoted",
        r"is used so far",
        r"by a first run used",
    )
    for words in allowed:
        text = re.sub(words, "", text)
    return re.findall(r"[^.\n]*\b(?:used|[Pp]romoted)\b[^.\n]*", text)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (FITS, "the real run would fit: ε = 4.25 of 8 is used so far, 5.5 with it; 2 such runs would fit"),
        (standing(known=False, runs_that_fit=1), "the real run would fit (not in the ledger yet): "),
        (REFUSED, "the real run would be refused: population p: not one such run fits."),
        (DIFFERS, "the real run would be refused: population p: the file says unit row"),
    ],
)
def test_a_rehearsal_tells_whether_the_real_run_would_fit_the_real_ledger(found: Any, words: str) -> None:
    text = printed(outcome_of(), found)
    assert words in text
    assert "3.5" not in text, "the balance of the rehearsal's own ledger is nobody's"
    assert ("rehearsed, but the real run would be refused" in text) == (found in (REFUSED, DIFFERS))
    assert said_as_if_it_had_happened(text) == []


def test_a_rehearsal_s_page_says_nothing_as_if_it_had_happened() -> None:
    page = markdown(outcome_of())
    assert page.startswith("# readmission: rehearsed, would be promoted\n")
    assert "Made-up rows: nothing was spent, recorded or promoted" in page
    assert "MLflow run" not in page
    assert said_as_if_it_had_happened(page.replace("| privacy/ledger_epsilon_used", "")) == []
    real = markdown(outcome_of(rehearsal=False, claim="of which 1.000 is used."))
    assert real.startswith("# readmission, version 1: Promoted: ")
    assert "MLflow run `abc`; its artifact `card.html`" in real
    assert said_as_if_it_had_happened(real), "the search finds what it is to find"


@pytest.mark.parametrize(
    ("verdict", "code", "found", "would_exit"),
    [
        ("promoted", 0, FITS, 0),
        ("blocked", 40, FITS, 40),
        ("insufficient", 41, FITS, 41),
        ("promoted", 0, REFUSED, 30),
        ("blocked", 40, REFUSED, 30),
        ("promoted", 0, DIFFERS, 10),
        ("promoted", 0, BudgetError("the ledger is damaged"), 30),
    ],
)
def test_in_json_a_rehearsal_has_the_exit_code_of_its_process_and_the_one_that_a_run_would_have(
    verdict: str, code: int, found: Any, would_exit: int
) -> None:
    said = plain.outcome(outcome_of(verdict=verdict, exit_code=code), found)
    assert (said["verdict"], said["exit_code"], said["would_exit"]) == (verdict, 0, would_exit)
    assert said["ledger"]["refusal"] == (found.refusal if isinstance(found, Forecast) else str(found))
    real = plain.outcome(outcome_of(verdict=verdict, exit_code=code, rehearsal=False), None)
    assert real["exit_code"] == code
    assert not {"would_exit", "ledger"} & real.keys()


def test_the_real_ledger_is_read_and_nothing_is_made_or_changed(home: Path, small: Small) -> None:
    path = str(small())
    found = cli._standing(path, home)
    assert isinstance(found, Forecast)
    assert not found.known
    assert not home.exists()
    guarantee = {"epsilon": 19.0, "delta": 1e-5, "planned_runs": 3}
    with Ledger.open(home / "ledger.db") as ledger:
        from tasks.privacy.events import Gaussian

        ledger.create_population(
            name="simulated-discharges",
            unit="person",
            **guarantee,
            planned=[Gaussian(noise_multiplier=1.0)],
            actor="test",
        )
    before = {file: file.read_bytes() for file in home.iterdir()}
    differs = cli._standing(path, home)
    assert isinstance(differs, ConfigurationError)
    assert "the file says epsilon 20.0, the ledger 19.0" in str(differs)
    assert {file: file.read_bytes() for file in home.iterdir()} == before


def test_a_rehearsal_keeps_prefect_s_files_where_they_are_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setattr(cli.atexit, "register", lambda *call, **keys: removed.append((call, keys)))
    removed: list[Any] = []
    home = tmp_path / "home"
    passing = cli._prefect_home("rehearse", home)
    assert passing != home
    [((remove, folder), keys)] = removed
    remove(folder, **keys)
    assert not passing.exists()
    assert cli._prefect_home("retrain", home) == home
    (home / "prefect").mkdir(parents=True)
    assert cli._prefect_home("rehearse", home) == home, "where Prefect knows its way, a rehearsal starts sooner"


def test_the_lines_of_a_rehearsal_promote_nothing() -> None:
    for rehearsal, words in ((True, "promote   would be promoted"), (False, "promote   promoted")):
        console = Console(file=StringIO(), width=100)
        with screen.following(console, rehearsal=rehearsal):
            progress.report(step="promote", note="promoted")
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert words in text
        assert ("a rehearsal: made-up rows" in text) == rehearsal


@pytest.mark.parametrize("reason", ["", " ", "x" * 201, "a\nb", "a\x1b[2Jb"])
def test_a_reason_that_the_ledger_would_not_keep_is_refused_before_anything_is_read(
    home: Path, tmp_path: Path, reason: str
) -> None:
    with (
        pytest.raises(UsageError, match=r"^reason must be one printable line of 1 to 200 characters$"),
        opened(str(tmp_path / "there-is-no-such.yaml"), runtime="local", reason=reason, rehearsal=False),
    ):
        pytest.fail("nothing may be opened")
    assert not home.exists()


def test_a_bar_of_training_does_not_say_its_step_twice(small: Small) -> None:
    from configs.load import load
    from tasks.planning import plan_of
    from tasks.train import _bar

    said: list[progress.Progress] = []
    with progress.listening(said.append):
        _bar(plan_of(load(small()).config), ((1, 0.5), (20, 8.0)))(3)
    [told] = said
    assert (told.step, told.note, told.done, told.total, told.epsilon) == ("train", "steps", 3, 20, 8.0)


@pytest.mark.orchestration
@pytest.mark.usefixtures("prefect_api")
def test_a_rehearsal_of_the_command_line_ends_in_0_and_leaves_nothing(home: Path, small: Small, discreet: Any) -> None:
    strict = small({"min_auc: 0.50": "min_auc: 0.99"})
    code, out, err = discreet("rehearse", str(strict))
    assert code == 0, err
    assert "rehearsed, would be blocked" in out
    assert "the real run would fit (not in the ledger yet)" in out
    assert said_as_if_it_had_happened(re.sub(r"[│\s]+", " ", out + err)) == []
    assert not home.exists()
    code, out, err = discreet("rehearse", str(strict), "--json")
    found = json.loads(out)
    assert (code, found["exit_code"], found["would_exit"], found["verdict"]) == (0, 0, 40, "blocked")
    assert found["ledger"]["runs_that_fit"] >= 1
    assert not home.exists()
