"""Waiting for capacity: whether it may help, and EC2's answers meanwhile."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta

from launch.core.clock import Clock, duration
from launch.core.errors import AwsError
from launch.core.perform import REMEDY, NothingLeft
from launch.core.plan import Plan
from launch.core.terminal import Say, table
from launch.ec2.planner import Launch
from trainer.errors import TrainerError

ASK_EVERY_S = 300.0


def is_no_capacity(error: TrainerError) -> bool:
    """Whether the error is a lack of capacity, so that waiting may help."""
    if not isinstance(error, AwsError) or error.aws_code != "NothingLeftToTry":
        return False
    # Waiting does not help where EC2 does not support the request.
    return not isinstance(error, NothingLeft) or error.codes != {"Unsupported"}


@dataclass
class CapacityWait:
    """The rounds of requests of one launch, and EC2's answers in all of them."""

    clock: Clock
    say: Say
    hours: float  # as --wait-for-capacity says; 0 for a single round
    columns: tuple[str, ...] = ("type", "zone", "market", "answer")
    times: Counter[tuple[str, ...]] = field(default_factory=Counter)
    answers: dict[tuple[str, ...], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._until = self.clock.now() + self.hours * 3600

    def note(self, error: AwsError, plan: Plan[Launch]) -> None:
        """Count a round without capacity."""
        if isinstance(error, NothingLeft):
            self.columns, rows = error.columns, list(error.tried)
        else:
            job = plan.payload.job.where
            place = ",".join(job.zones) or plan.payload.cluster.region
            rows = [(",".join(job.instance_type), place, "-", str(error).splitlines()[0])]
        for *label, answer in rows:
            self.times[tuple(label)] += 1
            self.answers[tuple(label)] = answer

    @property
    def is_over(self) -> bool:
        return self.clock.now() >= self._until

    def pause(self, why: str) -> None:
        """Sleep until the next round."""
        left = self._until - self.clock.now()
        self.say(f"{why}; retrying in {ASK_EVERY_S / 60:g} min, for {duration(timedelta(seconds=left))} more")
        self.clock.sleep(min(ASK_EVERY_S, max(1.0, left)))

    def error(self) -> AwsError:
        """The error after the wait, with a row for each request."""
        rows = [(*label, answer, str(self.times[label])) for label, answer in self.answers.items()]
        tried = table((*self.columns, "times"), rows)
        within = f" within {self.hours:g} h" if self.hours else ""
        return AwsError(f"no capacity{within}:\n{tried}\n{REMEDY}", "NothingLeftToTry")
