"""The process's environment, set before Prefect and MLflow are imported: both read it at import."""

import os
from pathlib import Path

QUIET = {
    "DO_NOT_TRACK": "true",  # MLflow wants the word; Prefect takes it too
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "GX_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    # the ephemeral server takes 11 to 18 s to start and gives up after 20 by default
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "300",
}


def quiet() -> None:
    """Telemetry off, and time enough for the ephemeral server; what the operator has set stays."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)


def embedded(home: Path) -> None:
    """Without a Prefect server of one's own, keep Prefect's files in the home, and its log out of the terminal.

    The command line itself says what went wrong; Prefect would say it first, with a traceback.
    """
    if "PREFECT_API_URL" not in os.environ:
        os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
        folder = home / "prefect"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.environ.setdefault("PREFECT_HOME", str(folder))
        os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "CRITICAL")
