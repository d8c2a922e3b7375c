"""Launches a job in the first of its regions that has capacity."""

from dataclasses import dataclass, field
from functools import partial

from launch.aws.refusals import THROTTLED
from launch.aws.retry import RETRY_S, retrying
from launch.core.errors import AwsError, Ended, Forbidden
from launch.ec2.backend import Runtime
from launch.ec2.capacity import CapacityWait
from launch.ec2.job_folder import check_not_stopped
from launch.ec2.regions import Place, Plans, plan_regions
from launch.ec2.requests import Cluster
from launch.ec2.start import launch
from trainer.contract import Exit
from trainer.outcome import Outcome

OF_A_REGION = ("NothingLeftToTry", *THROTTLED)


def launch_in_regions(plans: Plans, runtime: Runtime) -> Outcome | None:
    """launch() in the first region with capacity.  Raises Ended if none has any, and as launch() does."""
    if plans.home or len(plans.places) == 1:
        return launch(plans.tried[0].plan, runtime)
    return _Search(plans, runtime).search()


def _of_this_region(error: Ended) -> AwsError | None:
    """Why the launch failed, if that may not hold in another region; everything was removed."""
    cause = error.__cause__
    if isinstance(cause, AwsError) and (isinstance(cause, Forbidden) or cause.aws_code in OF_A_REGION):
        return cause
    return None


@dataclass
class _Search:
    """Tries a job's regions in order until one has capacity."""

    plans: Plans
    runtime: Runtime
    begun: dict[str, list[Cluster]] = field(default_factory=dict)  # by region: the last two starts, for stop markers

    def search(self) -> Outcome | None:
        """Try all regions, again and again while the user waits."""
        clock, say = self.runtime.clock, self.runtime.say
        wait = CapacityWait(clock, say, self.plans.places[0].plan.payload.job.where.wait_for_capacity)
        while True:
            for place in self.plans.tried:
                retrying(self._check_not_stopped, clock, say, limit_s=RETRY_S)
                try:
                    return self._launch(place)
                except Ended as error:
                    if (cause := _of_this_region(error)) is None:
                        raise
                    wait.note(cause, place.plan)
            if wait.is_over:
                reason = f"no capacity in {', '.join(self.begun)}"
                outcome = Outcome("failed", Exit.AWS, reason, job=self.plans.job)
                raise Ended(str(wait.error()), Exit.AWS, outcome)
            wait.pause("no capacity")
            self.plans = retrying(self._plans_again, clock, say, limit_s=RETRY_S)

    def _plans_again(self) -> Plans:
        """New plans.  Raises their problem, or AwsError if the job was stopped."""
        self._check_not_stopped()
        plans = plan_regions(self.plans.places[0].plan.payload.job, self.runtime)
        if plans.problem is not None:
            raise plans.problem
        return plans

    def _launch(self, place: Place) -> Outcome | None:
        is_first, cluster = place.region not in self.begun, place.plan.payload.cluster
        if self.begun:  # the plan of the first region has been shown
            self.runtime.say(place.plan.brief if is_first else f"trying {place.region}")
        self.begun[place.region] = [*self.begun.get(place.region, ()), cluster][-2:]
        # A stop may not have seen this region's start yet, and may have marked the start in another region.
        check = partial(self._check_not_stopped, has_started=True)
        return launch(place.plan, self.runtime, waits=False, check=check)

    def _check_not_stopped(self, *, has_started: bool = False) -> None:
        """Raises AwsError if the job was stopped in one of the regions tried so far."""
        for region, clusters in self.begun.items():
            aws = self.runtime.make_aws(region)
            for cluster in clusters:
                check_not_stopped(aws, cluster.folder, cluster.started, has_started=has_started)
