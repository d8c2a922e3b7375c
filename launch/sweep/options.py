"""The flags of launch.sweep, beside those of its trainings and of the backend."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from launch.core.backend import BACKENDS
from launch.core.options import Options, WordList


def _counts(value: Any) -> Any:
    """'1,2' -> ['1', '2']; anything else is left to the field's own type."""
    return [word for word in value.split(",") if word.strip()] if isinstance(value, str) else value


Counts = Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(_counts)]


class SweepOptions(Options):
    """Which runs, where, and what they may cost."""

    backend: str | None = Field(None, description=f"{', '.join(BACKENDS)} (default: the file's)")
    small: bool = Field(False, description="run the file's small version: a minute or two on a laptop")
    rehearse: bool | None = Field(None, description="run each job on this machine, against an embedded AWS; no account")
    gpus: Counts = Field((), description="GPUs (or CPU ranks) per run, instead of the file's")
    only: WordList = Field((), description="names of the runs to do now; the others are left for later")
    out: Path | None = Field(None, description="folder for results, also to resume from (default: runs/sweep-NAME)")
    parallel: int = Field(1, ge=1, description="runs at a time (local: each gets its share of cores and GPUs)")
    diverged_at: float | None = Field(
        None, ge=0, allow_inf_nan=False,
        description="end a run whose training loss rises to N times its lowest; 0: never (default: 3; scripts: never)",
    )  # fmt: skip
    retry_failed: bool = Field(False, description="start failed runs again")
    max_usd: float | None = Field(None, gt=0, description="refuse a sweep that may cost more than this in total")
    usd_per_hour: float | None = Field(None, gt=0, description="USD per machine-hour, for backends without prices")
    yes: bool = Field(False, description="skip the confirmation before it costs money")
    dry_run: bool | Literal["json"] = Field(
        False, description="print the runs and their cost, and start nothing; --dry-run=json prints JSON"
    )
