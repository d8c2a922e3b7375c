"""What the regions of an account have that needs the roles of one stack: jobs, and stacks of their own."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from launch.core.aws import Aws
from launch.core.errors import AwsError, Forbidden
from launch.core.lookup import Lookups
from launch.ec2 import fleet, leaks
from launch.infra.lookup import stack_of
from launch.infra.template import STACK
from launch.sagemaker import training_jobs as trainings
from trainer.errors import TrainerError


@dataclass(frozen=True)
class Region:
    """jobs: each with the command that stops it; problems: what could not be looked up."""

    name: str
    jobs: tuple[str, ...] = ()
    has_stack: bool = False
    problems: tuple[TrainerError, ...] = ()

    @property
    def is_closed(self) -> bool:
        """Whether the organization forbids what could not be looked up: then nobody can start a job there either."""
        return bool(self.problems) and all(isinstance(problem, Forbidden) for problem in self.problems)


def look(places: Sequence[Aws], now: datetime) -> tuple[Region, ...]:
    """What is in `places`, one per region, asked at once."""
    with ThreadPoolExecutor(max_workers=max(1, len(places))) as pool:
        return tuple(pool.map(lambda aws: _look(aws, now), places))


def _look(aws: Aws, now: datetime) -> Region:
    lookups, nothing = Lookups(), tuple[str, ...]()
    jobs = lookups.required(lambda: _on_ec2(aws, now), nothing) + lookups.required(lambda: _on_sagemaker(aws), nothing)
    has_stack = lookups.required(lambda: stack_of(aws) is not None, False)
    return Region(aws.region, jobs, has_stack, tuple(lookups.problems))


def _on_ec2(aws: Aws, now: datetime) -> tuple[str, ...]:
    jobs = [finding.job for finding in leaks.judge(fleet.find(aws), aws.region, now)]
    return tuple(f"{job} in {aws.region} (python -m launch.ec2 stop {job} --region {aws.region})" for job in jobs)


def _on_sagemaker(aws: Aws) -> tuple[str, ...]:
    names = [run.name for run in trainings.costing(aws)]
    return tuple(f"{name} in {aws.region} (python -m launch.sagemaker stop --region {aws.region})" for name in names)


def check(regions: Sequence[Region], here: str) -> tuple[str, ...]:
    """Warnings.  Raises AwsError if a region other than `here` has a stack, if jobs have something, or if that is not
    known.  Pure.
    """
    for region in regions:
        if region.problems and not region.is_closed:
            problem = next(problem for problem in region.problems if not isinstance(problem, Forbidden))
            raise AwsError(f"whether jobs run is not known: {region.name} could not be asked: {problem}")
    if jobs := [job for region in regions for job in region.jobs]:
        more = f" and {len(jobs) - 3} more" if len(jobs) > 3 else ""
        raise AwsError(f"jobs still have something: {', '.join(jobs[:3])}{more}; stop them first.", "JobsRun")
    if others := [region.name for region in regions if region.has_stack and region.name != here]:
        raise AwsError(_needed(others, here), "NeededElsewhere")
    closed = ", ".join(region.name for region in regions if region.is_closed)
    return (f"not asked, for the organization forbids it, so that no job can be there: {closed}.",) if closed else ()


def _needed(others: Sequence[str], here: str) -> str:
    """One after the other, and this one last."""
    commands = "\n".join(f"  python -m launch.infra down --region {region}" for region in others)
    return (
        f"the roles in this stack {STACK} are the account's, and the stacks of other regions need them; take those "
        f"down first, and this one ({here}) last:\n{commands}"
    )
