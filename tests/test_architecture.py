"""The layout that the README promises: imports run one way, and no module shadows a dependency."""

import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALLOWED = {
    "flows",
    "tasks",
    "configs",
    "tests",
    "docker",
    "pyproject.toml",
    "README.md",
    "Makefile",
    "CHANGELOG.md",
    "LICENSE",
}


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / line for line in listed.splitlines()]


def test_imports_run_one_way() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_an_import_against_the_law_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    for name in ("flows", "tasks", "configs"):
        subprocess.run(["cp", "-r", str(ROOT / name), str(tmp_path / name)], check=True)
    with (tmp_path / "tasks" / "privacy" / "events.py").open("a") as file:
        file.write("\nimport pandas\nimport tasks.registry.gate\n")
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)})
    assert result.returncode == 1
    assert "privacy is read without torch, Prefect, MLflow or pandas BROKEN" in result.stdout


def test_no_module_is_named_after_a_dependency_or_the_standard_library() -> None:
    taken = {*sys.stdlib_module_names, *packages_distributions()} - {"flows", "tasks", "configs"}
    ours = [
        path
        for path in tracked()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in {"flows", "tasks", "configs"}
    ]
    assert ours
    assert not [path for path in ours if path.stem in taken - {"__init__"}]


def test_the_top_level_holds_what_the_design_allows() -> None:
    top = {path.relative_to(ROOT).parts[0] for path in tracked()}
    assert {name for name in top if not name.startswith(".")} <= ALLOWED


def test_the_command_line_starts_without_the_heavy_libraries() -> None:
    heavy = ("torch", "prefect", "mlflow", "pandas", "great_expectations", "dp_accounting")
    code = f"import sys, flows.cli, tasks.privacy.ledger; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
