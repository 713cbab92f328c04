import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from configs.errors import DataError, InternalError
from tasks.data import workfolder
from tasks.data.workfolder import read_frame, sweep, work_folder, write_frame

OWNER = """
import sys
from tasks.data import workfolder
from tasks.data.workfolder import work_folder
with work_folder(sys.argv[1], sys.argv[2]) as folder:
    (folder / "records.parquet").write_text("rows")
    print("ready", flush=True)
    sys.stdin.read()
"""


def start_owner(home: Path, run_id: str) -> subprocess.Popen:
    """Another process that holds a work folder until its standard input closes."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(home), run_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert owner.stdout.readline() == "ready\n"
    return owner


def test_records_of_a_killed_run_are_swept_and_those_of_a_living_one_are_not(tmp_path):
    living, killed = start_owner(tmp_path, "living"), start_owner(tmp_path, "killed")
    try:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert (tmp_path / "work" / "killed" / "records.parquet").exists()
        assert sweep(tmp_path) == ["killed"]
        assert not (tmp_path / "work" / "killed").exists()
        assert (tmp_path / "work" / "living" / "records.parquet").exists()
        with pytest.raises(DataError, match="in use"), work_folder(tmp_path, "living"):
            pass
        assert (tmp_path / "work" / "living" / "records.parquet").exists()
    finally:
        living.communicate("")
        killed.communicate()
    assert living.returncode == 0
    assert list((tmp_path / "work").iterdir()) == []


def test_the_folder_is_private_whatever_the_umask(tmp_path):
    for mask in (0o000, 0o777):
        before = os.umask(mask)
        try:
            with work_folder(tmp_path / str(mask), "run") as folder:
                assert stat.S_IMODE(folder.stat().st_mode) == 0o700
                assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
                written = write_frame(pd.DataFrame({"a": ["x"]}), folder / "a.parquet")
                assert stat.S_IMODE(written.stat().st_mode) == 0o600
        finally:
            os.umask(before)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_the_folder_is_gone_however_the_body_ends(tmp_path, error):
    def body():
        with work_folder(tmp_path, "run") as folder:
            (folder / "sub").mkdir()
            (folder / "sub" / "rows").write_text("rows")
            raise error

    with pytest.raises(error):
        body()
    assert list((tmp_path / "work").iterdir()) == []


def test_a_name_can_be_used_again_and_starts_empty(tmp_path):
    leftover = tmp_path / "work" / "run"
    leftover.mkdir(parents=True)
    (leftover / "rows").write_text("rows")
    with work_folder(tmp_path, "run") as folder:
        assert list(folder.iterdir()) == []


def test_leftovers_without_a_lock_are_swept_and_a_link_is_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "linked").symlink_to(outside)
    (tmp_path / "work" / "bare").mkdir()
    assert sweep(tmp_path) == ["bare", "linked"]
    assert (outside / "kept").exists()
    assert sweep(tmp_path) == []
    assert sweep(tmp_path / "nowhere") == []


@pytest.mark.parametrize("run_id", ["", "../up", "a/b", ".hidden", "a b", "run.lock", "x" * 200])
def test_a_name_that_leaves_the_folder_is_refused(tmp_path, run_id):
    with pytest.raises(InternalError), work_folder(tmp_path, run_id):
        pass


def test_a_home_that_cannot_be_written_is_told(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(DataError, match="DISCREET_HOME"), work_folder(blocked, "run"):
        pass


def test_a_lock_on_a_file_that_was_deleted_meanwhile_is_not_trusted(tmp_path, monkeypatch):
    path, locked = tmp_path / "run.lock", []

    def flock(descriptor, operation):
        locked.append(descriptor)
        if len(locked) == 1:  # the former owner ends just now: its file goes, and a third process makes a new one
            path.unlink()
            path.touch()
        original(descriptor, operation)

    original = workfolder.fcntl.flock
    monkeypatch.setattr(workfolder.fcntl, "flock", flock)
    descriptor = workfolder._locked(path)
    assert len(locked) == 2
    assert os.fstat(descriptor).st_ino == path.stat().st_ino
    os.close(descriptor)


def test_a_frame_is_read_back_as_it_was(tmp_path):
    frame = pd.DataFrame({"a": ["1", None, ""], "ä": ["x", "y\n", None]}, dtype="str")
    path = write_frame(frame[1:], tmp_path / "frame.parquet")
    assert read_frame(path).equals(frame[1:].reset_index(drop=True))
    assert list(read_frame(path, columns=["ä"]).columns) == ["ä"]
    assert {str(dtype) for dtype in read_frame(path).dtypes} == {"str"}
