"""What the regions of an account hold that needs the roles of one stack: jobs, and stacks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain

from launch.core.aws import Aws
from launch.core.backend import all_with, find
from launch.core.errors import AwsError, Forbidden
from launch.core.lookup import Lookups
from launch.core.regions import look_everywhere
from launch.infra.lookup import stack_of
from launch.infra.template import STACK
from trainer.errors import TrainerError
from trainer.settings.registry import import_function


@dataclass(frozen=True)
class Region:
    """jobs: each with the command that stops it; problems: failed look-ups."""

    name: str
    jobs: tuple[str, ...] = ()
    has_stack: bool = False
    problems: tuple[TrainerError, ...] = ()

    @property
    def is_closed(self) -> bool:
        """Whether the organization forbids every look-up that failed: then nobody can start a job there either."""
        return bool(self.problems) and all(isinstance(problem, Forbidden) for problem in self.problems)


# Names the jobs that hold something in a region, see Backend.holding.
Holders = Sequence[Callable[[Aws, datetime], tuple[str, ...]]]


def look(clients: Sequence[Aws], now: datetime) -> tuple[Region, ...]:
    """Looks up what each region holds, in parallel."""
    holders = [import_function(find(name).holding) for name in all_with(lambda one: bool(one.holding))]
    return look_everywhere(clients, lambda aws: (_look(aws, now, holders),))[0]


def _look(aws: Aws, now: datetime, holders: Holders) -> Region:
    lookups, no_jobs = Lookups(), tuple[str, ...]()
    jobs = [lookups.required(partial(holding, aws, now), no_jobs) for holding in holders]
    has_stack = lookups.required(lambda: stack_of(aws) is not None, False)
    return Region(aws.region, tuple(chain.from_iterable(jobs)), has_stack, tuple(lookups.problems))


def check(regions: Sequence[Region], here: str) -> tuple[str, ...]:
    """Warnings.  Raises AwsError if a region has jobs, a stack outside `here`, or could not be looked up.  Pure."""
    _check_known(regions)
    _check_no_jobs([job for region in regions for job in region.jobs])
    _check_no_stacks([region.name for region in regions if region.has_stack and region.name != here], here)
    closed = ", ".join(region.name for region in regions if region.is_closed)
    return (
        (f"not checked, because the organization forbids access, so no job can run there: {closed}.",) if closed else ()
    )


def _check_known(regions: Sequence[Region]) -> None:
    for region in regions:
        for problem in region.problems:
            if not isinstance(problem, Forbidden):
                raise AwsError(f"cannot tell whether jobs run in {region.name}: {problem}")


def _check_no_jobs(jobs: Sequence[str]) -> None:
    if jobs:
        more = f" and {len(jobs) - 3} more" if len(jobs) > 3 else ""
        raise AwsError(f"jobs still hold resources: {', '.join(jobs[:3])}{more}; stop them first.", "JobsRun")


def _check_no_stacks(others: Sequence[str], here: str) -> None:
    if others:
        commands = "\n".join(f"  python -m launch.infra down --region {region}" for region in others)
        raise AwsError(
            f"stacks in other regions use the roles in this stack {STACK}; delete those first, and this one ({here}) "
            f"last:\n{commands}",
            "NeededElsewhere",
        )
