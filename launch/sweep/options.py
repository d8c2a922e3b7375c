"""What launch.sweep takes on its command line, beside what its trainings take."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from launch.core.options import WordList


def _counts(value: Any) -> Any:
    """'1,2' -> ['1', '2']; anything else is left to the field's own type."""
    return [word for word in value.split(",") if word.strip()] if isinstance(value, str) else value


Counts = Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(_counts)]


class SweepOptions(BaseModel):
    """Which runs, where, and what they may cost."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)

    backend: Literal["local", "slurm", "ec2", "sagemaker"] | None = Field(None, description="none: what the file says")
    small: bool = Field(False, description="the file's small version: a minute or two on a laptop")
    rehearse: bool | None = Field(None, description="each job on an AWS of its own, here: no account")
    gpus: Counts = Field((), description="GPUs (or CPU ranks) per run, instead of the file's")
    only: WordList = Field((), description="names of the runs to do; the others are left for later")
    out: Path | None = Field(None, description="results go here, and are gone on from; none: runs/sweep-NAME")
    retry_failed: bool = Field(False, description="start runs again that failed before")
    max_usd: float | None = Field(None, gt=0, description="refuse a sweep that may cost more, all runs together")
    usd_per_hour: float | None = Field(None, gt=0, description="of a machine, for runs that nobody else bills")
    yes: bool = Field(False, description="do not ask before it costs money")
    dry_run: bool | Literal["json"] = Field(
        False, description="print the runs with what they cost, and do nothing; --dry-run=json for programs"
    )
