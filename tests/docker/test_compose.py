"""The compose file, judged without a daemon: who may do what, and commands that their programs accept."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa
from compose_spec import PyCompose
from ruamel.yaml import YAML

from configs.load import load_runtime

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docker" / "compose.yaml").read_text()
HEADER = "".join(line for line in TEXT.splitlines(keepends=True) if line.startswith("#"))
REQUIRED = re.compile(r"\$\{([A-Z_]+):\?[^}]+\}")
HOME = "/var/lib/discreet"


def resolved(text: str) -> Any:
    """The file with its anchors merged and its required variables set, as compose reads it."""
    plain = YAML(typ="safe", pure=True)
    return json.loads(json.dumps(plain.load(REQUIRED.sub(r"/\1", text))))


FILE = resolved(TEXT)
SERVICES: dict[str, Any] = FILE["services"]
LASTING = sorted(set(SERVICES) - {"deploy"})


def mounts(service: str) -> dict[str, tuple[str, bool]]:
    """Where what is mounted: target → (source, read-only)."""
    parts = [volume.split(":") for volume in SERVICES[service].get("volumes", [])]
    return {target: (source, flags == ["ro"]) for source, target, *flags in parts}


def test_it_follows_the_compose_specification() -> None:
    PyCompose.from_json(json.dumps(FILE)).validate()
    assert {"postgres", "prefect", "mlflow", "deploy", "worker"} == set(FILE["services"]), "what was validated"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("read_only: true", "readonly: true"),
        ("condition: service_healthy", "condition: healthy"),
        ("stop_grace_period: 2m", "stop_grace_period: soon"),
        ("networks: [services]", "networks: [servces]"),
    ],
)
def test_a_slip_against_the_specification_would_be_noticed(old: str, new: str) -> None:
    assert old in TEXT
    with pytest.raises(ValueError):
        PyCompose.from_json(json.dumps(resolved(TEXT.replace(old, new)))).validate()


def test_the_volumes_that_are_mounted_are_those_that_are_declared() -> None:
    named = {source for name in SERVICES for source, _ in mounts(name).values() if source[0] not in "./"}
    assert named == set(FILE["volumes"]) == {"postgres", "home", "artifacts"}
    assert (ROOT / "docker" / "databases.sql").is_file()
    assert mounts("postgres")["/docker-entrypoint-initdb.d/databases.sql"] == ("./databases.sql", True)


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_writes_to_its_volumes_and_tmp_alone_and_gains_no_right(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert any(mount.startswith("/tmp") for mount in service["tmpfs"])
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "network_mode", "pid", "ipc", "devices"} & set(service)
    assert "user" not in service or service["user"] not in ("root", "0")
    assert not [source for source, _ in mounts(name).values() if "docker.sock" in source]


def test_ports_are_published_on_the_loopback_interface_alone() -> None:
    ports = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert set(ports) == {"prefect", "mlflow"}
    assert all(re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port) for published in ports.values() for port in published)


def test_no_password_has_a_default_and_every_variable_is_explained_in_the_header() -> None:
    names = set(REQUIRED.findall(TEXT))
    assert names == {
        "POSTGRES_PASSWORD",
        "PREFECT_DB_PASSWORD",
        "MLFLOW_DB_PASSWORD",
        "PREFECT_AUTH",
        "DISCREET_DATA",
    }
    assert len(re.findall(r"\$\{?[A-Za-z_]", TEXT)) == len(REQUIRED.findall(TEXT)), "a variable that may be unset"
    assert all(name in HEADER for name in names)
    secrets = {
        (name, key): value
        for name, service in SERVICES.items()
        for key, value in service.get("environment", {}).items()
        if re.search(r"PASSWORD|AUTH_STRING|SECRET|TOKEN|KEY", key)
    }
    assert len(secrets) >= 8
    assert all(value.startswith("/") and value[1:] in names for value in secrets.values()), secrets


def test_ledger_keys_and_records_are_the_workers_alone() -> None:
    having = {name for name in SERVICES for source, _ in mounts(name).values() if source in ("home", "/DISCREET_DATA")}
    assert having == {"worker"}
    assert mounts("worker")[HOME] == ("home", False)
    assert mounts("worker")["/data"] == ("/DISCREET_DATA", True)
    assert SERVICES["worker"]["environment"]["DISCREET_DATA"] == "/data"
    assert "replicas" not in json.dumps(SERVICES["worker"]), "SQLite and the lock want one worker"
    assert mounts("mlflow")[f"{HOME}/artifacts"] == ("artifacts", True)


def test_the_databases_can_be_reached_by_the_two_servers_alone() -> None:
    assert FILE["networks"]["database"] == {"internal": True}
    on = {name for name, service in SERVICES.items() if "database" in service["networks"]}
    assert on == {"postgres", "prefect", "mlflow"}
    for name in ("worker", "deploy"):
        assert not [key for key in SERVICES[name]["environment"] if "DB" in key or "DATABASE" in key or key[:2] == "PG"]


def test_prefect_and_mlflow_keep_their_data_in_the_databases_made_for_them() -> None:
    made = dict(re.findall(r"CREATE DATABASE (\w+) OWNER (\w+)", (ROOT / "docker" / "databases.sql").read_text()))
    prefect = SERVICES["prefect"]["environment"]
    (uri,) = (word.partition("=")[2] for word in SERVICES["mlflow"]["command"] if "backend-store-uri" in word)
    url = sa.engine.make_url(uri)
    assert (url.drivername, url.host, url.password) == ("postgresql+psycopg", "postgres", None)
    keys = ("DRIVER", "HOST", "PORT")
    assert [prefect[f"PREFECT_SERVER_DATABASE_{key}"] for key in keys] == ["postgresql+asyncpg", "postgres", "5432"]
    used = {url.database: url.username}
    used[prefect["PREFECT_SERVER_DATABASE_NAME"]] = prefect["PREFECT_SERVER_DATABASE_USER"]
    assert used == made == {"prefect": "prefect", "mlflow": "mlflow"}
    for name in ("PREFECT_DB_PASSWORD", "MLFLOW_DB_PASSWORD"):
        assert name in SERVICES["postgres"]["environment"]


def test_each_service_starts_after_what_it_needs_and_can_be_seen_to_be_well() -> None:
    needs = {
        name: {other: wish["condition"] for other, wish in service.get("depends_on", {}).items()}
        for name, service in SERVICES.items()
    }
    well, done = "service_healthy", "service_completed_successfully"
    assert needs == {
        "postgres": {},
        "prefect": {"postgres": well},
        "mlflow": {"postgres": well},
        "deploy": {"prefect": well},
        "worker": {"deploy": done, "mlflow": well},
    }
    assert SERVICES["deploy"]["restart"] == "no"
    assert all(SERVICES[name]["healthcheck"]["test"][0] == "CMD" for name in LASTING)
    for name, port in (("prefect", "4200"), ("mlflow", "5000"), ("worker", "8080")):
        check = SERVICES[name]["healthcheck"]["test"]
        compile(check[3], name, "exec")
        assert f"http://127.0.0.1:{port}/" in check[3]


def test_the_postgres_image_is_pinned_and_ours_is_the_projects_version() -> None:
    images = {service["image"] for service in SERVICES.values()}
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version
    assert f"discreet:{version[1]}" in images
    assert [image for image in images if re.fullmatch(r"postgres:\d+\.\d+-[a-z]+", image)]
    assert len(images) == 2
    assert f"-t discreet:{version[1]} " in (ROOT / "docker" / "Dockerfile").read_text()


def test_the_runtime_is_that_of_the_containers() -> None:
    worker = SERVICES["worker"]["environment"]
    runtime = load_runtime("compose", {"DISCREET_HOME": HOME, "MLFLOW_TRACKING_URI": worker["MLFLOW_TRACKING_URI"]})
    assert load_runtime("compose", {}) == runtime
    assert runtime.home == HOME
    address = urlsplit(runtime.tracking_uri or "")
    assert address.hostname in SERVICES
    assert f"127.0.0.1:{address.port}:{address.port}" in SERVICES["mlflow"]["ports"]
    (allowed,) = (word for word in SERVICES["mlflow"]["command"] if word.startswith("--allowed-hosts="))
    assert address.netloc in allowed.partition("=")[2].split(",")
    api = urlsplit(worker["PREFECT_API_URL"])
    assert api.hostname == "prefect"
    assert SERVICES["prefect"]["ports"] == [f"127.0.0.1:{api.port}:{api.port}"]


def prefect(words: list[str]) -> tuple[str, dict[str, Any]]:
    """What Prefect's command line makes of the words: the command's name and its arguments. Nothing is run."""
    import prefect.cli  # noqa: F401  (registers the commands)
    from prefect.cli._app import _app

    command, bound, _ = _app.parse_args(words, exit_on_error=False, print_error=False)
    return command.__name__, dict(bound.arguments)


def mlflow(words: list[str]) -> tuple[str, dict[str, Any]]:
    """The same for MLflow's."""
    from mlflow.cli import cli

    return words[0], dict(cli.commands[words[0]].make_context(words[0], words[1:]).params)


def test_every_command_is_one_that_its_program_accepts() -> None:
    assert prefect(SERVICES["prefect"]["command"][1:]) == ("start", {"host": "0.0.0.0", "port": 4200})
    name, worker = prefect(SERVICES["worker"]["command"][1:])
    assert (name, worker["work_pool_name"], worker["worker_type"]) == ("start", "discreet", "process")
    assert worker["with_healthcheck"] is True
    shell, flags, script = SERVICES["deploy"]["command"]
    assert (shell, flags) == ("/bin/sh", "-ec")
    lines = [line for line in script.replace("||", "\n").splitlines() if not line.lstrip().startswith("#")]
    words = [shlex.split(line.replace(">/dev/null", "").replace("--no-prompt", "")) for line in lines]
    parsed = [prefect(line[1:]) for line in words]
    assert [name for name, _ in parsed] == ["inspect", "create", "deploy"]
    assert [arguments.get("name", "") for _, arguments in parsed[:2]] == [worker["work_pool_name"]] * 2
    assert (ROOT / parsed[2][1]["prefect_file"]).is_file()
    name, server = mlflow(SERVICES["mlflow"]["command"][1:])
    assert (name, server["host"], server["port"], server["serve_artifacts"]) == ("server", "0.0.0.0", 5000, False)
    assert server["default_artifact_root"] == f"file://{HOME}/artifacts"


@pytest.mark.parametrize(
    ("parse", "words"),
    [
        (prefect, ["worker", "start", "--pol", "discreet"]),
        (prefect, ["server", "start", "--port", "x"]),
        (prefect, ["server", "strat"]),
        (mlflow, ["server", "--alowed-hosts=x"]),
        (mlflow, ["server", "--port=x"]),
    ],
)
def test_a_command_that_its_program_would_refuse_would_be_noticed(
    parse: Callable[[list[str]], object], words: list[str]
) -> None:
    with pytest.raises(Exception, match=r"(?i)unknown|no such option|invalid|not a valid"):
        parse(words)
