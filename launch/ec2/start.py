"""Performs a plan: starts the nodes, follows the job, removes everything.  Read _Life.live() first."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from launch.core.aws import Aws
from launch.core.errors import AwsError, Ended, NoAnswer
from launch.core.lookup import read_json
from launch.core.outcomes import put_outcome
from launch.core.perform import Say, perform
from launch.core.plan import Plan
from launch.core.price import usd
from launch.core.signals import Hangup, hangups, hangups_ignored, unless_gone
from launch.ec2 import machines, requests, stop
from launch.ec2.costs import cost_so_far
from launch.ec2.fleet import Fleet, find
from launch.ec2.names import command
from launch.ec2.outcome import completed, stopped
from launch.ec2.planner import Launch
from launch.ec2.planning import plan_job
from launch.ec2.requests import Cluster
from launch.ec2.roster import roster, volumes_missing
from launch.ec2.runtime import Runtime
from launch.ec2.watch import APPEAR_S, Follower, read_roster
from trainer.contract import Exit
from trainer.errors import TrainerError
from trainer.outcome import Outcome, state_of

LOOK_EVERY_S = 3.0

Change = Callable[[], Mapping[str, Any]]


def launch(plan: Plan[Launch], runtime: Runtime) -> Outcome | None:
    """Starts what is missing, follows the job and removes it.  Returns how it ended; None if the user detached.

    Nothing is left, whatever happens, unless the user detaches.  Raises Ended for a job that was not done and
    for a launch that failed, both after everything is removed.
    """
    life = _Life(plan, runtime)
    return life.live(life.begin, life.replace_lost)


def attach(plan: Plan[Launch], runtime: Runtime) -> Outcome | None:
    """launch() for a job that was started before; if none of its nodes is left, none is started."""
    life = _Life(plan, runtime)
    if plan.payload.missing < life.cluster.nodes:
        return life.live(life.begin, life.replace_lost)
    return life.live(lambda: read_roster(life.aws, life.cluster.folder), None)


@dataclass
class _Life:
    """The life of a job as this launcher sees it.  is_ours: whether this launcher must remove the job if it fails."""

    plan: Plan[Launch]
    runtime: Runtime

    def __post_init__(self) -> None:
        self.aws: Aws = self.runtime.make_aws(self.cluster.region)
        self.is_ours = self.plan.payload.missing > 0
        self.say: Say = unless_gone(self.runtime.say)

    @property
    def cluster(self) -> Cluster:
        return self.plan.payload.cluster

    def live(self, start: Change, replace_lost: Change | None) -> Outcome | None:
        """From start() to the end of the job."""
        self._show_commands(f"job {self.cluster.job}; in another terminal:", "status", "logs", "stop")
        with hangups():
            try:
                start()
                self.is_ours = True
                if self.cluster.resolved.detaches:
                    self._detach()
                    return None
                runtime = self.runtime
                outcome = Follower(self.cluster, self.aws, runtime.clock, runtime.say, replace_lost).follow()
            except KeyboardInterrupt:
                if not self.is_ours:
                    raise  # somebody else's running job, which this launcher had not joined yet
                if self.runtime.may_detach():
                    self._detach()
                    return None
                outcome = self._take_down(stopped("stopped with Ctrl-C"), unsure=True)
            except (Exception, Hangup) as error:  # bugs, too: nothing may stay and be billed
                self._after_failure(error)
                raise
            else:
                outcome = self._take_down(outcome, unsure=False)
        if outcome.exit_code != Exit.DONE:
            self._show_commands("see also:", "logs", "status")
            raise Ended(outcome.reason, outcome.exit_code, outcome)
        folder, job = self.cluster.folder, self.cluster.job
        self.say("the training is done; to get its results:")
        self.say(f"  aws s3 sync {folder.uri}/run runs/{job} --region {self.cluster.region}")
        return outcome

    def _after_failure(self, error: Exception | Hangup) -> None:
        """Removes the job after `error`.  Raises Ended, with the outcome, unless the error is a bug."""
        is_hangup = isinstance(error, (Hangup, BrokenPipeError))
        outcome = stopped(f"stopped: the terminal was closed ({error})") if is_hangup else _outcome_of(error)
        if self.is_ours:
            is_sure = isinstance(error, AwsError) and not isinstance(error, NoAnswer)
            outcome = self._take_down(outcome, unsure=not is_sure, cause=error)
        if is_hangup:
            raise Ended(outcome.reason, outcome.exit_code, outcome) from error
        if self.is_ours and isinstance(error, TrainerError):
            raise Ended(str(error), outcome.exit_code, outcome) from error

    # ---- starting

    def begin(self) -> Mapping[str, Any]:
        """Makes the requests of the plan and writes cluster.json, which it returns.  Converges if repeated."""
        return self._begin(self.plan, may_retry=True)

    def replace_lost(self) -> Mapping[str, Any]:
        """Replaces lost nodes, as the same command would do."""
        again = self._plan_again()
        if again.payload.cluster.started != self.cluster.started:
            raise AwsError(f"job {self.cluster.job} was stopped or restarted by another command.")
        return self._begin(again, may_retry=True)

    def _begin(self, plan: Plan[Launch], *, may_retry: bool) -> Mapping[str, Any]:
        cluster, clock = plan.payload.cluster, self.runtime.clock
        try:
            perform(plan.steps, self.aws.call, self.runtime.say, clock.sleep)
        except AwsError as error:
            if error.aws_code != "InvalidGroup.Duplicate" or not may_retry:
                raise
            # botocore repeated a request whose answer was lost: the group exists, and a new plan will find it.
            return self._begin(self._plan_again(), may_retry=False)
        fleet = self._wait_for_nodes(plan.payload)
        previous = read_json(self.aws, cluster.folder.bucket, cluster.folder.cluster)
        members = roster(cluster, fleet, previous)
        if members != previous:
            perform([requests.put_roster(cluster.folder, members)], self.aws.call, self.runtime.say)
        places = ", ".join(sorted({f"{node.type} in {node.zone}" for node in fleet.living}))
        self.runtime.say(f"{cluster.nodes} nodes started ({places}); they take a few minutes to boot")
        return members

    def _plan_again(self) -> Plan[Launch]:
        plan = plan_job(self.plan.payload.job, self.runtime)
        if plan.problem is not None:
            raise plan.problem
        return plan

    def _wait_for_nodes(self, launched: Launch) -> Fleet:
        """All nodes with their data volumes.  Raises AwsError if one ends at once, or is not listed in time."""
        cluster, clock = launched.cluster, self.runtime.clock
        until = clock.now() + APPEAR_S
        while True:
            fleet = find(self.aws, cluster.job)
            if cluster.resolved.data_volume == "multi-attach":
                self._share_volume(fleet)
            if len(fleet.living) >= cluster.nodes and not volumes_missing(cluster, fleet):
                return fleet
            _check_started(fleet, launched.generation)
            if clock.now() > until:
                minutes = f"{APPEAR_S / 60:g} minutes"
                raise AwsError(f"EC2 lists {len(fleet.living)} of {cluster.nodes} nodes after {minutes}.")
            clock.sleep(LOOK_EVERY_S)

    def _share_volume(self, fleet: Fleet) -> None:
        """Attaches the shared volume to every running node, to be deleted with the last of them."""
        for volume in fleet.shared_volumes:
            if volume.state not in ("available", "in-use"):
                continue
            for node in fleet.living:
                if node.id in volume.attached_to and node.id not in volume.deleted_with:
                    perform([machines.delete_with(node.id)], self.aws.call, self.runtime.say)
                elif node.state == "running" and node.id not in volume.attached_to:
                    perform([machines.attach(volume.id, node.id)], self.aws.call, self.runtime.say)

    # ---- leaving

    def _show_commands(self, heading: str, *verbs: str) -> None:
        self.say(heading)
        for verb in verbs:
            self.say(f"  {command(verb, self.cluster.job, self.cluster.region)}")

    def _detach(self) -> None:
        deadline = f"{self.cluster.deadline:%Y-%m-%d %H:%M} UTC"
        self.say(f"the job keeps running without this terminal, until {deadline} at most.")
        self._show_commands("to follow it, replace lost nodes and remove it at its end:", "attach")
        self._show_commands("to stop it:", "stop")

    def _take_down(self, outcome: Outcome, *, unsure: bool, cause: BaseException | None = None) -> Outcome:
        """Removes everything, then writes outcome.json; returns the outcome with time and cost.

        unsure: see stop.stop(); cause: the error that led here, for the sentence if this fails, too.
        """
        with hangups_ignored():
            cost = self._cost()
            has_folder, removed = self._remove(unsure, cause)
            now = self.runtime.clock.utc()
            outcome = completed(outcome, self.cluster.job, self.cluster.started, now, cost)
            if removed:
                price = "" if cost is None else f".  The job cost about {usd(cost)}"
                self.say(f"removed {removed} resources; none is left{price}")
            if has_folder:
                warning = put_outcome(self.aws, self.cluster.folder, outcome)
                if warning:
                    self.say(f"warning: {warning}")
        return outcome

    def _remove(self, unsure: bool, cause: BaseException | None) -> tuple[bool, int]:
        """Whether the job has a folder, and how many resources were removed.  Raises AwsError with what to do."""
        cluster, clock = self.cluster, self.runtime.clock
        remedy = command("stop", cluster.job, cluster.region)
        try:
            has_folder = stop.mark_ended(self.aws, cluster.folder, clock, self.say)
            return has_folder, stop.stop(self.aws, cluster.job, clock, self.say, unsure=unsure)
        except TrainerError as error:
            deadline = f"{cluster.deadline:%Y-%m-%d %H:%M} UTC"
            raise AwsError(
                f"{cause or 'the job has ended.'} Removing its resources failed: {error} Nodes that still run will "
                f"terminate themselves by {deadline}; to remove them now: {remedy}"
            ) from error
        except KeyboardInterrupt:
            self.say(f"not everything is removed; finish with {remedy}")
            raise

    def _cost(self) -> float | None:
        """USD so far; None if AWS cannot be asked, which must not keep the nodes running."""
        try:
            return cost_so_far(find(self.aws, self.cluster.job), self.runtime.clock.utc())
        except TrainerError:
            return None


def _outcome_of(error: BaseException) -> Outcome:
    """The end of a job because of an error of the launcher's."""
    if isinstance(error, TrainerError):
        reason = (str(error).splitlines() or [""])[0].rstrip(":")
        return Outcome(state_of(error.code), error.code, reason)
    return Outcome("failed", Exit.BUG, f"a bug in the launcher: {type(error).__name__}: {error}")


def _check_started(fleet: Fleet, generation: int) -> None:
    """Raises AwsError if a new node has ended already."""
    for node in fleet.nodes:
        if node.generation == generation and not node.lives:
            reason = node.reason or "EC2 gives no reason"
            raise AwsError(f"node {node.id} ended right after its start: {reason}.", "EndedAtOnce")
