"""Launches a job in the first of several regions that has capacity; in the others nothing is left.

One region is tried at a time: what a launch made there is removed, and that is verified, before the next one begins.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from launch.aws.refusals import THROTTLED
from launch.aws.retry import RETRY_S, retrying
from launch.core.clock import duration
from launch.core.errors import AwsError, Ended, Forbidden
from launch.ec2.job_folder import check_not_stopped
from launch.ec2.regions import Place, Plans, overview, plan_everywhere
from launch.ec2.requests import Cluster
from launch.ec2.runtime import Runtime
from launch.ec2.start import launch
from launch.ec2.waiting import ASK_EVERY_S, Tried, tried_in
from trainer.contract import Exit
from trainer.outcome import Outcome


def launch_anywhere(plans: Plans, runtime: Runtime) -> Outcome | None:
    """launch() in one region, with what it returns and raises.  Raises Ended where none has capacity."""
    if plans.home or len(plans.places) == 1:
        place = plans.tried[0]
        runtime.say(place.plan.brief)
        return launch(place.plan, runtime)
    return _Search(plans, runtime).search()


def _may_be_had_elsewhere(error: Ended) -> bool:
    """Whether a launch failed, and everything was removed, for a reason that another region may not have."""
    cause = error.__cause__
    passes = {"NothingLeftToTry", *THROTTLED}
    return isinstance(cause, Forbidden) or (isinstance(cause, AwsError) and cause.aws_code in passes)


@dataclass
class _Search:
    """begun: the last two starts in each of the regions tried so far: a stop marks the newest that it can see."""

    plans: Plans
    runtime: Runtime
    tried: Tried = field(default_factory=Tried)
    begun: dict[str, list[Cluster]] = field(default_factory=dict)

    def search(self) -> Outcome | None:
        """One round over all regions, and more as long as the user waits."""
        clock, hours = self.runtime.clock, self.plans.places[0].plan.payload.job.where.wait_for_capacity
        until = clock.now() + hours * 3600
        self.runtime.say(overview(self.plans))
        while True:
            for place in self.plans.tried:
                retrying(self._check_not_stopped, clock, self.runtime.say, limit_s=RETRY_S)
                try:
                    return self._launch(place)
                except Ended as error:
                    if not _may_be_had_elsewhere(error):
                        raise
                    self._note(place, error)
            if clock.now() >= until:
                raise self._nowhere(hours)
            left = duration(timedelta(seconds=until - clock.now()))
            self.runtime.say(f"no capacity; asking again in {ASK_EVERY_S / 60:g} min, for {left} more")
            clock.sleep(min(ASK_EVERY_S, max(1.0, until - clock.now())))
            self.plans = retrying(self._plans_again, clock, self.runtime.say, limit_s=RETRY_S)

    def _plans_again(self) -> Plans:
        """New plans, unless somebody has stopped the job.  Raises their problem."""
        self._check_not_stopped()
        plans = plan_everywhere(self.plans.places[0].plan.payload.job, self.runtime)
        if plans.problem is not None:
            raise plans.problem
        return plans

    def _launch(self, place: Place) -> Outcome | None:
        is_first, cluster = place.region not in self.begun, place.plan.payload.cluster
        self.begun[place.region] = [*self.begun.get(place.region, ()), cluster][-2:]
        self.runtime.say(place.plan.brief if is_first else f"trying {place.region}")
        # A stop may have seen nothing of this region yet, and have marked the start in another.
        check = partial(self._check_not_stopped, has_started=True)
        return launch(place.plan, self.runtime, waits=False, check=check)

    def _check_not_stopped(self, *, has_started: bool = False) -> None:
        """Raises AwsError if the job was stopped in one of the regions tried so far."""
        for region, clusters in self.begun.items():
            aws = self.runtime.make_aws(region)
            for cluster in clusters:
                check_not_stopped(aws, cluster.folder, cluster.started, has_started=has_started)

    def _note(self, place: Place, error: Ended) -> None:
        cause = error.__cause__
        assert isinstance(cause, AwsError)
        self.tried.note(cause, otherwise=tried_in(place.plan))

    def _nowhere(self, hours: float) -> Ended:
        error = self.tried.error(hours)
        reason = f"no capacity in {', '.join(self.begun)}"
        return Ended(str(error), Exit.AWS, Outcome("failed", Exit.AWS, reason, job=self.plans.job))
