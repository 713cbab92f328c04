"""The deployments for a work pool name what is there, and fire when the configuration says."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from configs.load import load, load_runtime

ROOT = Path(__file__).parents[2]


def read(path: str) -> Any:
    return json.loads(json.dumps(YAML(typ="safe", pure=True).load((ROOT / path).read_text())))


FILE = read("configs/prefect.yaml")
DEPLOYMENTS: dict[str, Any] = {deployment["name"]: deployment for deployment in FILE["deployments"]}


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_deployment_is_its_configuration_and_its_schedule(name: str) -> None:
    deployment = DEPLOYMENTS[name]
    parameters = deployment["parameters"]
    config = load(str(ROOT / parameters["config_path"]), {"DISCREET_DATA": "/data"}).config
    assert config.model == name
    assert config.schedule is not None
    (schedule,) = deployment["schedules"]
    assert (schedule["cron"], schedule["timezone"]) == (config.schedule.cron, config.schedule.timezone)
    load_runtime(parameters["runtime"], {})
    assert parameters["reason"] == "scheduled"


def test_every_configuration_with_a_schedule_is_deployed() -> None:
    shipped = {path.name for path in (ROOT / "configs").glob("*.yaml")} - {"prefect.yaml"}
    assert {Path(deployment["parameters"]["config_path"]).name for deployment in DEPLOYMENTS.values()} == shipped


def test_what_needs_records_that_nobody_has_yet_does_not_fire_unasked() -> None:
    for deployment in DEPLOYMENTS.values():
        config = load(str(ROOT / deployment["parameters"]["config_path"]), {"DISCREET_DATA": "/data"}).config
        (schedule,) = deployment["schedules"]
        assert schedule["active"] is (config.data.source.kind == "simulated")


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_the_entrypoint_is_a_flow_that_takes_these_parameters(name: str) -> None:
    deployment = DEPLOYMENTS[name]
    module, function = deployment["entrypoint"].rsplit(".", 1)
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text())
    (flow,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function)
    assert {argument.arg for argument in flow.args.args} == set(deployment["parameters"])
    assert any("flow" in ast.unparse(decorator) for decorator in flow.decorator_list)


def test_the_pool_and_the_folder_are_those_of_the_containers() -> None:
    pools = {deployment["work_pool"]["name"] for deployment in DEPLOYMENTS.values()}
    worker = read("docker/compose.yaml")["services"]["worker"]["command"]
    assert pools == {worker[worker.index("--pool") + 1]}
    assert FILE["pull"] == [
        {"prefect.deployments.steps.set_working_directory": {"directory": "{{ $DISCREET_ROOT }}"}},
    ]
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text()
    assert "DISCREET_ROOT=/opt/discreet " in dockerfile
    assert "COPY configs/*.yaml /opt/discreet/configs/\n" in dockerfile


def test_the_file_is_for_the_prefect_that_is_locked() -> None:
    assert f"prefect=={FILE['prefect-version']}\n" in (ROOT / "docker" / "requirements.lock").read_text()
