"""The tests notice a fault: every mutant of the privacy, gate and configuration code dies or has a written reason.

`make proof` draws a quarter of the mutants of each file. `MUTANTS=all` runs every one, `MUTANTS_SEED=…` draws
others, `MUTANTS_WORKERS=…` runs more than two sets of tests at a time.
"""

import dataclasses
import os
import re
import tempfile
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.proofs.mutation_run import LIBRARIES, ROOT, TESTS, Result, Tree, run
from tests.proofs.mutators import Mutant, mutants

SHARE = 0.25
REASONS = tomllib.loads((Path(__file__).parent / "survivors.toml").read_text(encoding="utf-8"))["survivor"]


def matches(reason: dict[str, str], mutant: Mutant | Result) -> bool:
    """Whether a written reason is about a mutant; `*` in it stands for any text."""
    return all(
        re.fullmatch(re.escape(reason[key]).replace(r"\*", ".*"), getattr(mutant, key))
        for key in ("file", "where", "change")
    )


def every() -> list[Mutant]:
    return [mutant for file in TESTS for mutant in mutants(file, (ROOT / file).read_text(encoding="utf-8"))]


def test_every_file_of_privacy_gate_and_configuration_is_mutated() -> None:
    files = {*ROOT.glob("tasks/privacy/*.py"), *ROOT.glob("configs/*.py")}
    files |= {ROOT / f"tasks/registry/{name}.py" for name in ("gate", "limits", "standing", "bounds", "evidence")}
    assert set(TESTS) == {str(file.relative_to(ROOT)) for file in files if file.name != "__init__.py"}


def test_every_written_reason_names_a_mutant_that_exists_and_says_why() -> None:
    found = every()
    for reason in REASONS:
        assert any(matches(reason, mutant) for mutant in found), f"no such mutant any more: {reason}"
        assert len(reason["why"]) > 10


def test_a_mutant_is_named_without_its_line_so_that_its_reason_outlives_a_new_layout() -> None:
    source = "def f(a: int) -> bool:\n    if a < 3:\n        raise ValueError('no')\n    return a == 1 and not a\n"
    other = source.replace("a < 3", "(a\n        <\n        3)").replace("def f", "# a comment\n\ndef f")

    def names(text: str) -> set[tuple[str, str]]:
        return {(mutant.where, mutant.change) for mutant in mutants("f.py", text)}

    assert names(source) == names(other)
    assert ("f", "a < 3 → a <= 3") in names(source)
    assert ("f", "3 → 4 in a < 3") in names(source)
    assert ("f", "raise ValueError('no') → pass") in names(source)
    assert ("f", "not a → a") in names(source)


def test_texts_docstrings_logging_and_annotations_are_left_alone() -> None:
    source = '''
"""One < two."""
limit: Annotated[int, Field(ge=1)] = None
def f(a: Literal[1]) -> tuple[int, Literal[2]]:
    """True."""
    logger.info("%s", "a")
    assert a
    return f"{a + 1}"
'''
    changes = {mutant.change for mutant in mutants("f.py", source)}
    assert changes == {"1 → 2 in ge=1", "1 → 0 in ge=1", "return f'{a + 1}' → return None"}


@pytest.mark.proof
def test_a_file_that_is_unchanged_survives_and_one_that_is_broken_dies() -> None:
    for name in LIBRARIES:
        __import__(name)
    file = "tasks/registry/gate.py"
    first = mutants(file, (ROOT / file).read_text(encoding="utf-8"))[0]
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(Path(folder))
        base = tree.baselines([file])[file]
        same = dataclasses.replace(first, source=(ROOT / file).read_text(encoding="utf-8") + "# the same\n")
        assert tree.judge(same, base).outcome == "survived"
        assert tree.judge(first, base).outcome == "killed"
        endless = dataclasses.replace(first, source="while True:\n    pass\n")
        assert tree.judge(endless, dataclasses.replace(base, seconds=-1.0)).outcome == "timeout"
        assert (tree.root / file).read_bytes() == (ROOT / file).read_bytes()


@pytest.mark.proof
def test_every_mutant_dies_or_has_a_written_reason() -> None:
    share = 1.0 if os.environ.get("MUTANTS") == "all" else SHARE
    results = run(
        list(TESTS),
        share=share,
        seed=os.environ.get("MUTANTS_SEED", "0"),
        workers=int(os.environ.get("MUTANTS_WORKERS", "2")),
    )
    survivors = [result for result in results if result.outcome == "survived"]
    unexplained = [result for result in survivors if not any(matches(reason, result) for reason in REASONS)]
    print(f"\n{'file':36} mutants  killed  timeout  survived  unexplained   ({share:.0%} of all)")
    for file in TESTS:
        counts = Counter(result.outcome for result in results if result.file == file)
        new = sum(result.file == file for result in unexplained)
        print(
            f"{file:36} {counts.total():7} {counts['killed']:7} {counts['timeout']:8} {counts['survived']:9} {new:12}"
        )
    assert not unexplained, "survived without a written reason:\n" + "\n".join(
        f"{result.file}:{result.line} {result.where}: {result.change}" for result in unexplained
    )
