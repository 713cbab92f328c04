"""The image, judged unbuilt: its Dockerfile, what may enter it, and its entrypoint, run for real."""

import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from docker.utils.build import exclude_paths
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "docker" / "Dockerfile"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SECRET = re.compile(r"PASSWORD|PASSWD|SECRET|TOKEN|CREDENTIAL|AUTH|KEY", re.IGNORECASE)


@dataclass(frozen=True)
class Instruction:
    word: str
    text: str

    @property
    def operands(self) -> list[str]:
        """Its words without flags."""
        return [word for word in self.text.split() if not word.startswith("--")]


def stages(text: str) -> list[list[Instruction]]:
    """The instructions of a Dockerfile, by stage; each begins with its FROM."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    found = list[list[Instruction]]()
    for line in filter(str.strip, lines.replace("\\\n", " ").splitlines()):
        word, rest = line.split(maxsplit=1)
        if word == "FROM":
            found.append([])
        found[-1].append(Instruction(word, rest.strip()))
    return found


BUILD, FINAL = stages(DOCKERFILE.read_text())


def every(word: str, stage: list[Instruction]) -> list[Instruction]:
    return [instruction for instruction in stage if instruction.word == word]


def pins() -> dict[str, str]:
    lines = (ROOT / "docker" / "requirements.lock").read_text().splitlines()
    parts = [line.partition("==") for line in lines if line and not line.startswith("#")]
    return {name: version for name, _, version in parts}


def hadolint(text: str) -> tuple[int, str]:
    """Every finding of any severity: no pragma counts, and no file of the user's that ignores some."""
    command = [str(Path(sys.executable).parent / "hadolint"), "--no-color", "--disable-ignore-pragma", "-"]
    nobody = {"HOME": "/nonexistent", "LANG": "C.UTF-8"}
    result = subprocess.run(command, input=text, capture_output=True, text=True, cwd="/", env=nobody)
    return result.returncode, result.stdout + result.stderr


def test_hadolint_finds_nothing() -> None:
    assert hadolint(DOCKERFILE.read_text()) == (0, "")


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("USER 10001:10001", "USER root", "DL3002"),
        (":3.11.13-slim-bookworm AS build", " AS build", "DL3006"),
        ("RUN groupadd --gid", "RUN cd /tmp && groupadd --gid", "DL3003"),
    ],
)
def test_hadolint_would_find_it(old: str, new: str, code: str) -> None:
    text = DOCKERFILE.read_text()
    assert old in text
    assert code in hadolint(text.replace(old, new))[1]


def test_the_last_stage_only_receives_what_the_first_has_built() -> None:
    assert [stage[0].operands[1:] for stage in (BUILD, FINAL)] == [["AS", "build"], []]
    assert [copy.text for copy in every("COPY", FINAL) if "--from" in copy.text] == ["--from=build /opt/venv /opt/venv"]
    assert not [run for run in every("RUN", FINAL) if re.search(r"\bpip\b|apt-get", run.text)]
    assert not [instruction for stage in (BUILD, FINAL) for instruction in every("ADD", stage)]


def test_base_images_are_pinned_to_the_projects_python() -> None:
    images = {stage[0].operands[0] for stage in (BUILD, FINAL)}
    (image,) = images
    version = re.fullmatch(r"python:(\d+\.\d+\.\d+)-slim-[a-z]+", image)
    assert version, image
    assert version[1] in SpecifierSet(PROJECT["requires-python"])


def test_it_runs_as_a_numeric_user_that_is_not_root_and_owns_the_home() -> None:
    last = [instruction.word for instruction in FINAL][::-1]
    assert last.index("USER") < min(last.index("RUN"), last.index("COPY"))
    user = re.fullmatch(r"(\d+):(\d+)", every("USER", FINAL)[-1].text)
    assert user
    assert min(int(user[1]), int(user[2])) >= 1000
    (account,) = (run.text for run in every("RUN", FINAL))
    assert f"useradd --uid {user[1]} --gid {user[2]}" in account
    assert "install -d -m 0700 -o discreet -g discreet /var/lib/discreet" in account
    assert "DISCREET_HOME=/var/lib/discreet " in every("ENV", FINAL)[0].text + " "


def test_everything_is_installed_from_the_lock_without_resolving() -> None:
    installs = [part for run in every("RUN", BUILD) for part in run.text.split("&&") if "pip install" in part]
    assert len(installs) == 2
    assert all("--no-deps" in part for part in installs)
    assert installs[0].split()[-2:] == ["-r", "/build/docker/requirements.lock"]
    assert installs[1].split()[-2:] == ["--no-build-isolation", "/build"]
    assert every("RUN", BUILD)[-1].text.endswith("-m pip check")


def test_the_lock_holds_the_projects_dependencies_and_the_drivers_that_compose_needs() -> None:
    locked = pins()
    assert all(re.fullmatch(r"[a-z0-9-]+", name) and version for name, version in locked.items())
    for requirement in map(Requirement, PROJECT["dependencies"]):
        assert locked[requirement.name.lower().replace(".", "-").replace("_", "-")] in requirement.specifier
    assert {"asyncpg", "psycopg", "psycopg-binary", "setuptools"} <= set(locked)


def context(folder: Path) -> set[str]:
    """The files that a build from `folder` sends to the daemon, as Docker's own client reads .dockerignore."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    sent = exclude_paths(str(folder), [line.strip() for line in lines if line.strip() and not line.startswith("#")])
    return {path for path in sent if (folder / path).is_file()}


def test_every_file_that_is_copied_exists_and_is_sent() -> None:
    sent, copied = context(ROOT), [copy for copy in every("COPY", BUILD + FINAL) if "--from" not in copy.text]
    sources = [source for copy in copied for source in copy.operands[:-1]]
    assert len(sources) == 9
    for source in sources:
        found = [path.relative_to(ROOT) for path in ROOT.glob(source)]
        assert found, source
        assert all(any(Path(path).is_relative_to(place) for path in sent) for place in found), source


def test_no_history_record_key_or_ledger_is_sent(tmp_path: Path) -> None:
    wanted = {"configs/readmission.yaml", "flows/cli.py", "tasks/data/x.csv", "pyproject.toml", "README.md", "LICENSE"}
    wanted |= {"docker/entrypoint.sh", "docker/requirements.lock"}
    others = {".git/config", ".env", ".discreet/ledger.db", ".discreet/keys/people", "records.csv", "data/records.csv"}
    others |= {".venv/bin/python", "mlflow.db", "mlruns/0/meta.yaml", "docker/secrets.env", "docker/compose.yaml"}
    others |= {"tests/test_x.py", "flows/__pycache__/cli.pyc", "tasks/data/__pycache__/x.pyc", "build/lib/flows/cli.py"}
    for name in wanted | others:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert context(tmp_path) == wanted


def test_no_password_or_key_is_built_in() -> None:
    for instruction in every("ENV", BUILD + FINAL) + every("ARG", BUILD + FINAL):
        names = re.findall(r"(?:^|\s)([A-Za-z_]\w*)=", instruction.text)
        assert names, instruction
        assert not [name for name in names if SECRET.search(name)]
        assert not re.search(r"://[^/\s]*@", instruction.text), "a URL with credentials"


def test_no_anonymous_volume_holds_the_ledger() -> None:
    assert every("VOLUME", FINAL) == []


def test_the_entrypoint_is_replaced_by_the_command_and_keeps_files_private(tmp_path: Path) -> None:
    (entrypoint,) = every("ENTRYPOINT", FINAL)
    assert entrypoint.text == '["/bin/sh", "/opt/discreet/entrypoint.sh"]'
    assert [copy.operands[-1] for copy in every("COPY", FINAL) if "entrypoint" in copy.text] == [
        "/opt/discreet/entrypoint.sh"
    ]
    script = 'echo $$; umask; printf "%s\\n" "$@"; exit 7'
    command = ["/bin/sh", str(ROOT / "docker" / "entrypoint.sh"), "/bin/sh", "-c", script, "name", "two words", "*"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        said, _ = process.communicate()
    assert said.splitlines() == [str(process.pid), "0077", "two words", "*"]
    assert process.returncode == 7
