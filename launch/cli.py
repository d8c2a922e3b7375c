"""The command line of every backend: settings in, a plan shown or performed, errors as one sentence.

What a backend's plan is, and how it is made, is the backend's own business.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field

from launch.job import Job, Where
from trainer import flags
from trainer.config import SECTIONS, TrainConfig
from trainer.contract import Exit
from trainer.errors import TrainerError

Plan = TypeVar("Plan")


class LaunchOptions(BaseModel):
    """What every launcher takes."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    dry_run: bool = Field(False, description="print what would be done, and do nothing")


@dataclass(frozen=True)
class Backend(Generic[Where, Plan]):
    """One way to run a job.  plan decides and does not act; show writes a plan as text; perform acts on it.

    perform returns the exit code of its command line; all three may raise TrainerError.
    """

    prog: str
    about: str
    options: type[Where]
    plan: Callable[[Job[Where]], Plan]
    show: Callable[[Plan], str]
    perform: Callable[[Plan], int]


def main(backend: Backend[Where, Plan], argv: Sequence[str]) -> int:
    """Does what the command line asks of `backend`; returns the exit code."""
    try:
        launch, job = _read(backend, argv)
        act = _print(backend.show) if launch.dry_run else backend.perform
        return act(backend.plan(job))
    except TrainerError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code


def _read(backend: Backend[Where, Plan], argv: Sequence[str]) -> tuple[LaunchOptions, Job[Where]]:
    sections = {"dry_run": backend.prog.removeprefix("python -m "), **SECTIONS}
    models: list[type[BaseModel]] = [LaunchOptions, backend.options, TrainConfig]
    launch, where, train = flags.parse(argv, models, prog=backend.prog, about=backend.about, sections=sections)
    return cast(LaunchOptions, launch), Job(cast(TrainConfig, train), cast(Where, where))


def _print(show: Callable[[Plan], str]) -> Callable[[Plan], int]:
    def act(plan: Plan) -> int:
        print(show(plan))
        return Exit.DONE

    return act
