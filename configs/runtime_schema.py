"""Where things run. Nothing in here can change epsilon: these fields meet the work only after the plan is made."""

from typing import Annotated

from pydantic import Field

from configs.section import Section


class Runtime(Section):
    """One place to run: a file in `configs/runtime/`."""

    home: str = Field(
        default="~/.discreet",
        min_length=1,
        description="folder of the ledger, the tracking store, the keys and the work folders",
    )
    tracking_uri: str | None = Field(
        default=None, description="MLflow tracking URI; the home's own mlflow.db when left out"
    )
    threads: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None, description="threads of the numerical libraries; theirs to choose when left out"
    )
    physical_batch: Annotated[int, Field(ge=1, le=10**7)] = Field(
        default=8192,
        description="units whose gradients are computed at once; memory only, the update is the same",
    )
    lease_seconds: Annotated[int, Field(ge=60, le=7 * 86_400)] = Field(
        default=3600, description="after so long without a claim, a run is taken for dead and settled"
    )
