"""Versions and the alias `champion`: what moves it, and what never does."""

import json
import py_compile
import sys
import threading

import numpy as np
import pytest

from tasks.registry.aliases import champion, champion_scores, describe, digests, load, register, settle
from tasks.registry.evidence import Decision, Missing, Reason
from tasks.registry.package import weights_digest
from tasks.registry.tracking import client, log_run

PROMOTED = Decision(verdict="promoted", reasons=(Reason(gate="min_auc", outcome="passed", words="AUC is .66"),))
BLOCKED = Decision(
    verdict="blocked",
    reasons=(Reason(gate="min_auc", outcome="blocked", words="AUC is .5", number=0.5, limit=0.6),),
)
INSUFFICIENT = Decision(
    verdict="insufficient", reasons=(Reason(gate="min_auc", outcome="insufficient", words="too few"),)
)


@pytest.fixture
def version(store, tools, tmp_path, network, request):
    """Registers versions of a model that bears the test's name."""
    name = request.node.name[:60].replace("[", "-").replace("]", "")
    logged = log_run(
        store=store,
        experiment=name,
        run_name="r",
        params={},
        metrics={},
        tags={},
        folder=tools.pack(tmp_path / "m", network),
        example=tools.records(2),
    )

    def make(split="s1"):
        tags = {"discreet.split": split}
        return register(store=store, name=name, model_uri=logged.model_uri, run_id=logged.run_id, tags=tags)

    make.name, make.run_id = name, logged.run_id
    return make


def now(store, version):
    holder = champion(store=store, name=version.name)
    return holder.version if holder else None


def test_a_promotion_moves_the_alias_and_the_version_bears_its_reasons(store, version, empty_cwd):
    assert champion(store=store, name="no such model") is None
    number = version()
    assert now(store, version) is None
    settled = settle(store=store, name=version.name, version=number, decision=PROMOTED, compared_with=None)
    assert settled == PROMOTED
    assert now(store, version) == number
    tags = client(store).get_model_version(version.name, number).tags
    assert tags["discreet.verdict"] == "promoted"
    assert tags["discreet.compared_with"] == "none"
    assert json.loads(tags["discreet.reasons"])[0]["words"] == "AUC is .66"
    assert client(store).get_run(version.run_id).data.tags["discreet.verdict"] == "promoted"


def test_a_description_is_what_a_reader_of_the_version_and_of_its_run_sees_first(store, version):
    number = version()
    describe(store=store, name=version.name, version=number, text="# Promoted\n\nAUC is .66")
    assert client(store).get_model_version(version.name, number).description == "# Promoted\n\nAUC is .66"
    assert client(store).get_run(version.run_id).data.tags["mlflow.note.content"] == "# Promoted\n\nAUC is .66"


def test_a_version_that_was_registered_without_a_run_bears_its_verdict_alone(store, version, tmp_path):
    service = client(store)
    version()
    number = str(service.create_model_version(version.name, source=tmp_path.as_uri()).version)
    describe(store=store, name=version.name, version=number, text="by hand")
    settle(store=store, name=version.name, version=number, decision=PROMOTED, compared_with=None)
    made = service.get_model_version(version.name, number)
    assert (made.run_id or None, made.description, made.tags["discreet.verdict"]) == (None, "by hand", "promoted")
    tags = service.get_run(version.run_id).data.tags
    assert not {"discreet.verdict", "mlflow.note.content"} & tags.keys()


def test_a_registry_that_cannot_answer_is_not_taken_for_one_without_a_champion(store, version, monkeypatch):
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    def fail(*_):
        raise MlflowException("the database is away")

    version()
    monkeypatch.setattr(MlflowClient, "get_registered_model", fail)
    with pytest.raises(MlflowException, match="away"):
        champion(store=store, name=version.name)


@pytest.mark.parametrize("decision", [BLOCKED, INSUFFICIENT], ids=lambda d: d.verdict)
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_no_other_verdict_moves_it(store, version, decision, first):
    champion_before = None
    if not first:
        champion_before = version()
        settle(store=store, name=version.name, version=champion_before, decision=PROMOTED, compared_with=None)
    number = version()
    settled = settle(store=store, name=version.name, version=number, decision=decision, compared_with=champion_before)
    assert settled == decision
    assert now(store, version) == champion_before
    tags = client(store).get_model_version(version.name, number).tags
    assert tags["discreet.verdict"] == decision.verdict
    assert json.loads(tags["discreet.reasons"])[0]["words"] == decision.reasons[0].words


def test_a_champion_that_changed_meanwhile_turns_a_promotion_into_insufficient(store, version):
    first, second, third = version(), version(), version()
    for number, compared in ((first, None), (second, first)):
        settle(store=store, name=version.name, version=number, decision=PROMOTED, compared_with=compared)
    settled = settle(store=store, name=version.name, version=third, decision=PROMOTED, compared_with=first)
    assert settled.verdict == "insufficient"
    assert f"compared with version {first}, and the champion is now version {second}" in settled.reasons[0].words
    assert now(store, version) == second
    assert client(store).get_model_version(version.name, third).tags["discreet.verdict"] == "insufficient"


def test_of_four_promotions_against_the_same_champion_one_wins(store, version):
    numbers = [version() for _ in range(4)]
    verdicts = {}

    def promote(number):
        done = settle(store=store, name=version.name, version=number, decision=PROMOTED, compared_with=None)
        verdicts[number] = done.verdict

    threads = [threading.Thread(target=promote, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(verdicts.values()) == ["insufficient"] * 3 + ["promoted"]
    assert verdicts[now(store, version)] == "promoted"


@pytest.fixture
def judged(store, version):
    """A champion, and a way to have it score records."""
    number = version(split="s1")
    settle(store=store, name=version.name, version=number, decision=PROMOTED, compared_with=now(store, version))
    holder = champion(store=store, name=version.name)
    assert (holder.version, holder.split) == (number, "s1")
    weights, files = digests(store=store, name=version.name, version=number)

    def scores(records, *, split="s1", holder=holder, files_sha256=files):
        return champion_scores(store=store, holder=holder, files_sha256=files_sha256, split=split, records=records)

    scores.holder, scores.weights, scores.files = holder, weights, files
    return scores


def test_the_champion_scores_the_rows_it_never_saw(store, judged, tools, network):
    records = tools.records(100, seed=3)
    np.testing.assert_array_equal(judged(records), tools.score(network, records))
    assert judged.weights == weights_digest(network.state_dict())
    uri = f"models:/{judged.holder.name}/{judged.holder.version}"
    assert load(store=store, uri=uri).predict(records).shape == (100, 1)


def test_digests_of_a_version_are_the_same_however_often_it_was_loaded(store, judged, tools):
    uri = f"models:/{judged.holder.name}/{judged.holder.version}"
    load(store=store, uri=uri).predict(tools.records(3))  # leaves byte code in the store
    found = digests(store=store, name=judged.holder.name, version=judged.holder.version)
    assert found == (judged.weights, judged.files)
    assert digests(store=store, name="none", version="9") is None


@pytest.mark.parametrize(
    "name", ["loader.py", "encoding.json", "network.json", "weights.safetensors", "MLmodel", "new"]
)
def test_a_champion_whose_files_were_changed_since_is_neither_run_nor_believed(store, judged, tools, tmp_path, name):
    found = [path for path in store.home.rglob("MLmodel") if judged.holder.name in path.read_text()]
    newest = max(found, key=lambda path: path.stat().st_mtime_ns)  # the store is the room's
    root = newest.parent
    file = root / "new.py" if name == "new" else next(root.rglob(name))
    content = file.read_bytes() if file.exists() else b""
    try:
        file.write_bytes(content + b"\nopen(%r, 'w')" % str(tmp_path / "ran").encode())
        scores = judged(tools.records(3))
        assert isinstance(scores, Missing)
        assert "is not the one that was judged: its files were changed since" in scores.why
        assert not (tmp_path / "ran").exists()
    finally:
        file.unlink() if name == "new" else file.write_bytes(content)
    assert not isinstance(judged(tools.records(3)), Missing)


def test_byte_code_that_somebody_planted_is_not_run(store, judged, tools, tmp_path):
    (source,) = {path for path in store.home.rglob("loader.py") if judged.holder.name in str(path)}
    planted = tmp_path / "loader.py"
    planted.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    compiled = source.parent / "__pycache__" / f"loader.{sys.implementation.cache_tag}.pyc"
    # never checked against its source: Python would run it in the source's place
    py_compile.compile(
        str(planted), cfile=str(compiled), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    assert not isinstance(judged(tools.records(3)), Missing)
    assert not (tmp_path / "ran").exists()


def test_more_reasons_than_a_tag_takes_are_counted(store, version):
    number = version()
    long = [Reason(gate="min_group", outcome="blocked", words="λ" * 900, group=str(place)) for place in range(300)]
    decision = Decision(verdict="blocked", reasons=tuple(long))
    settle(store=store, name=version.name, version=number, decision=decision, compared_with=None)
    kept = json.loads(client(store).get_model_version(version.name, number).tags["discreet.reasons"])
    assert [reason["group"] for reason in kept[:-1]] == [str(place) for place in range(len(kept) - 1)]
    assert kept[-1]["words"] == f"{301 - len(kept)} more reasons stand in the ledger and on the model card"


def test_a_comparison_that_would_not_be_fair_is_refused_with_the_reason(judged, tools):
    records = tools.records(10)
    other = judged(records, split="s2")
    assert isinstance(other, Missing)
    assert "another split" in other.why
    short = judged(records.drop(columns="race"))
    assert isinstance(short, Missing)
    assert "race" in short.why
    unknown = judged(records, files_sha256=None)
    assert isinstance(unknown, Missing)
    assert "was never judged" in unknown.why
    unnamed = judged(records, holder=type(judged.holder)(name="none", version="9", split="s1"))
    assert isinstance(unnamed, Missing)
    assert unnamed.why.endswith("InternalError")
