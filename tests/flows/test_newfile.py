"""A file appears whole or not at all, and in nobody's place."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.errors import UsageError
from flows.newfile import new_file


def write(path: Path, body: Callable[[Path], object]) -> None:
    with new_file(path) as part:
        body(part)


def test_a_file_appears_when_all_of_it_is_written_with_the_rights_of_any_new_file(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    before = os.umask(0o027)
    try:
        with new_file(path) as part:
            part.write_text("whole")
            assert not path.exists()
    finally:
        os.umask(before)
    assert path.read_text() == "whole"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_what_lies_there_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "link.csv"
    path.symlink_to(tmp_path / "nowhere.csv")
    with pytest.raises(UsageError, match="exists"), new_file(path):
        pytest.fail("nothing may be written")
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture(params=[True, False], ids=["links", "no links"])
def links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system with hard links, and one without."""

    def none(self: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    if not request.param:
        monkeypatch.setattr(Path, "hardlink_to", none)


@pytest.mark.usefixtures("links")
def test_a_file_that_somebody_made_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with pytest.raises(UsageError, match="exists"):
        write(path, lambda part: (part.write_text("ours"), path.write_text("theirs")))
    assert path.read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [path]
    path.unlink()
    write(path, lambda part: part.write_text("ours"))
    assert path.read_text() == "ours"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ValueError, MemoryError])
def test_a_failure_leaves_nothing(tmp_path: Path, failure: type[BaseException]) -> None:
    def half(part: Path) -> None:
        part.write_text("half")
        raise failure

    with pytest.raises(failure):
        write(tmp_path / "out.csv", half)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_a_fault_of_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written: No such file"), new_file(tmp_path / "no" / "out.csv"):
        pytest.fail("nothing may be written")
