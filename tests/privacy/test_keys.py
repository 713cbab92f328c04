"""The population's key: one for all processes, readable by its owner only, never in a message."""

import base64
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.errors import ConfigurationError
from tasks.privacy import keys
from tasks.privacy.keys import VARIABLE, checked_population, fingerprint, population_key


def stored(home: Path, population: str = "patients") -> bytes:
    return population_key(home=home, population=population, environment={})


def test_a_missing_key_is_created_once_for_its_owner_only(tmp_path: Path) -> None:
    key = stored(tmp_path)
    assert len(key) == 32
    assert stored(tmp_path) == key
    assert stored(tmp_path, "others") != key
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "keys" / "patients").stat().st_mode) == 0o600
    assert sorted(file.name for file in (tmp_path / "keys").iterdir()) == ["others", "patients"]


def test_a_home_that_does_not_exist_yet_is_made(tmp_path: Path) -> None:
    assert stored(tmp_path / "a" / "b") == stored(tmp_path / "a" / "b")


def test_the_key_of_a_population_that_was_trained_on_is_never_made_anew(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="backup"):
        population_key(home=tmp_path, population="patients", environment={}, create=False)
    assert not (tmp_path / "keys").exists()
    key = stored(tmp_path)
    assert population_key(home=tmp_path, population="patients", environment={}, create=False) == key


def test_all_who_ask_at_once_get_the_same_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        found = set(pool.map(lambda _: stored(tmp_path), range(64)))
    assert len(found) == 1


def test_whoever_links_second_takes_the_firsts_key(tmp_path: Path) -> None:
    first = stored(tmp_path)
    keys._create(tmp_path / "keys" / "patients")  # as if the file had appeared after the check
    assert stored(tmp_path) == first
    assert [file.name for file in (tmp_path / "keys").iterdir()] == ["patients"]


@given(st.binary(min_size=32, max_size=64))
def test_the_environment_may_hold_it_in_hexadecimal_or_base64(key: bytes) -> None:
    for text in (key.hex(), base64.b64encode(key).decode(), f" {key.hex()}\n"):
        found = population_key(home=Path("unused"), population="p", environment={VARIABLE: text})
        assert found == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00" * 31,
        "not a key at all",
        base64.b64encode(b"x" * 31).decode(),
        "!" + base64.b64encode(b"x" * 32).decode(),
    ],
)
def test_a_key_that_is_too_short_or_unreadable_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ConfigurationError, match="at least 32 bytes") as refusal:
        population_key(home=Path("unused"), population="p", environment={VARIABLE: text})
    assert not text or text not in str(refusal.value)


def test_a_key_file_that_was_cut_short_is_refused_never_replaced(tmp_path: Path) -> None:
    stored(tmp_path)
    (tmp_path / "keys" / "patients").write_bytes(b"short")
    with pytest.raises(ConfigurationError, match="backup"):
        stored(tmp_path)
    assert (tmp_path / "keys" / "patients").read_bytes() == b"short"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o602, 0o610, 0o601])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    stored(tmp_path)
    (tmp_path / "keys" / "patients").chmod(mode)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        stored(tmp_path)


def test_a_home_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("a file where the folder should be")
    with pytest.raises(ConfigurationError, match=VARIABLE):
        stored(tmp_path)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "-x", "a b", "x" * 101, None, "p\n"])
def test_a_name_that_is_not_safe_as_a_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="population"):
        stored(tmp_path, name)


@pytest.mark.parametrize("name", ["uci-diabetes-130", "A", "x.y_z", "x" * 100])
def test_ordinary_names_are_accepted(name: str) -> None:
    assert checked_population(name) == name


def test_a_fingerprint_names_a_key_without_holding_it() -> None:
    key = bytes(range(32))
    assert fingerprint(key) == fingerprint(bytes(range(32))) != fingerprint(key[::-1])
    assert len(fingerprint(key)) == 12
    assert fingerprint(key) not in key.hex()
