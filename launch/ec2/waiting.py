"""The requests that found no capacity while a launch looks, or waits, for machines."""

from collections import Counter
from dataclasses import dataclass, field

from launch.core.errors import AwsError
from launch.core.perform import REMEDY, NothingLeft
from launch.core.plan import Plan
from launch.core.terminal import table
from launch.ec2.planner import Launch
from trainer.errors import TrainerError

ASK_EVERY_S = 300.0


def is_no_capacity(error: TrainerError) -> bool:
    """Whether nothing had capacity, now or as nodes started, so that waiting may help."""
    if not isinstance(error, AwsError) or error.aws_code != "NothingLeftToTry":
        return False
    # Waiting does not help where EC2 does not support the request.
    return not isinstance(error, NothingLeft) or error.codes != {"Unsupported"}


def tried_in(plan: Plan[Launch]) -> tuple[str, ...]:
    """A row's beginning, for a plan that has nothing to try."""
    job = plan.payload.job.where
    return ",".join(job.instance_type), ",".join(job.zones) or plan.payload.cluster.region, "-"


@dataclass
class Tried:
    """The answers of all rounds, by what was asked for."""

    columns: tuple[str, ...] = ("type", "zone", "market", "answer")
    times: Counter[tuple[str, ...]] = field(default_factory=Counter)
    answers: dict[tuple[str, ...], str] = field(default_factory=dict)

    def note(self, error: AwsError, otherwise: tuple[str, ...] = ()) -> None:
        """Counts a round in which nothing had capacity.  otherwise: what was tried, where the error does not say."""
        rows: list[tuple[str, ...]] = [(*otherwise, str(error).splitlines()[0])] if otherwise else []
        if isinstance(error, NothingLeft):
            self.columns, rows = error.columns, list(error.tried)
        for *label, answer in rows:
            self.times[tuple(label)] += 1
            self.answers[tuple(label)] = answer

    def error(self, hours: float) -> AwsError:
        """The end of the waiting, with a row for each request that was made."""
        rows = [(*label, answer, str(self.times[label])) for label, answer in self.answers.items()]
        tried = table((*self.columns, "times"), rows)
        within = f" within {hours:g} h" if hours else ""
        return AwsError(f"no capacity{within}:\n{tried}\n{REMEDY}", "NothingLeftToTry")
