"""Performs a plan: starts the nodes, follows the job, removes everything.  Start reading at _Life.live()."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from launch.aws.client import Aws
from launch.aws.instances import removal
from launch.aws.instances.inventory import Fleet, find
from launch.aws.lookup import spec_of
from launch.aws.progress import put_outcome
from launch.aws.refusals import DENIED, EXPIRED, INVALID_KEYS
from launch.aws.retry import is_busy, is_transient, retrying
from launch.core.clock import minute
from launch.core.errors import AwsError, Ended, LeftRunning, NoAnswer, NotSetUp
from launch.core.plan import Plan
from launch.core.price import usd
from launch.core.signals import Hangup, hangups, hangups_ignored, unless_gone
from launch.core.terminal import Say
from launch.ec2 import stop
from launch.ec2.backend import BACKEND_NAME, Runtime, command
from launch.ec2.costs import cost_so_far
from launch.ec2.job_folder import fetch_results_at_end, is_stopped_error, start_of
from launch.ec2.planner import Launch
from launch.ec2.queue_verbs import is_led
from launch.ec2.records import completed, stopped
from launch.ec2.regions import plan_job
from launch.ec2.requests import NAME_TAKEN, Cluster
from launch.ec2.starter import Starter
from launch.ec2.warm import await_warm, end_claimed
from launch.ec2.watch import Follower, find_ends, read_cluster_file
from trainer.contract import Exit
from trainer.errors import SettingsError, TrainerError
from trainer.outcome import Outcome, state_of

READS = ("Describe", "Get", "List")  # prefixes of AWS operations that only read


def is_unreachable(error: TrainerError) -> bool:
    """Whether the error says nothing about the job: AWS did not answer, or this launcher lost read access.

    Credentials may have expired or been replaced, the clock may be wrong, or the machine may have left the network
    that a bucket policy allows: https://docs.aws.amazon.com/AmazonS3/latest/userguide/example-bucket-policies.html
    """
    return (
        is_transient(error) or isinstance(error, NotSetUp) or (isinstance(error, AwsError) and _is_denied_read(error))
    )


def _is_denied_read(error: AwsError) -> bool:
    is_refused = error.aws_code in {*DENIED, *INVALID_KEYS} and error.operation.startswith(READS)
    return is_refused or error.aws_code in EXPIRED


Change = Callable[[], Mapping[str, Any]]


def launch(
    plan: Plan[Launch], runtime: Runtime, *, waits: bool = True, check: Callable[[], None] = lambda: None
) -> Outcome | None:
    """Start the missing nodes, follow the job and remove it.  Returns the outcome; None if the user detached.

    Unless the user detaches, everything is removed in any case.  Raises Ended, after the removal, if the job did not
    finish or the launch failed.
    waits: wait for capacity for --wait-for-capacity hours; replacements of lost nodes always do.
    check: called once the nodes have started; raises AwsError if the job was stopped meanwhile.
    """
    _check_no_leader(plan, runtime)
    try:
        return _live(_Life(plan, runtime, waits, check))
    except AwsError as error:
        if error.aws_code != NAME_TAKEN:
            raise
    # With the same settings this launch joins that job.
    runtime.say(f"another command has just started job {plan.payload.cluster.job}")
    job, region = plan.payload.job, plan.payload.cluster.region
    plan = plan_job(job, runtime, region)
    if plan.problem is not None:
        raise plan.problem
    return _live(_Life(plan, runtime, waits, check, joins=True))


def _check_no_leader(plan: Plan[Launch], runtime: Runtime) -> None:
    """Raise Ended if the job has begun and a launcher in a queue leads it."""
    cluster = plan.payload.cluster
    if runtime.has_successor or plan.payload.missing == cluster.nodes:
        return
    if is_led(runtime.make_aws(cluster.region), cluster.folder):
        attach = command("attach", cluster.job, cluster.region)
        raise SettingsError(f"job {cluster.job} is led by its launcher in a queue; to follow it: {attach}")


def _live(life: "_Life") -> Outcome | None:
    return life.live(life.starter.start, life.starter.replace_lost)


def attach(plan: Plan[Launch], runtime: Runtime) -> Outcome | None:
    """launch() for a job that was started before; starts no nodes if none is left."""
    life = _Life(plan, runtime)
    if plan.payload.missing < life.cluster.nodes:
        return _live(life)
    return life.live(lambda: read_cluster_file(life.aws, life.cluster.folder), None)


@dataclass
class _Life:
    """A job from its start to its removal, in this launcher."""

    plan: Plan[Launch]
    runtime: Runtime
    waits: bool = True
    check: Callable[[], None] = lambda: None
    joins: bool = False  # follow a start that another command has just begun

    def __post_init__(self) -> None:
        self.aws: Aws = self.runtime.make_aws(self.cluster.region)
        # Whether this launcher must remove the job if it fails.
        self.must_remove = self.plan.payload.missing > 0 and not self.joins
        self.say: Say = unless_gone(self.runtime.say)
        self.starter = Starter(self.plan, self.runtime, self.aws, self.say, self.waits)

    @property
    def cluster(self) -> Cluster:
        return self.plan.payload.cluster

    def live(self, start: Change, replace_lost: Change | None) -> Outcome | None:
        """Call start() and follow the job to its end."""
        self._show_commands(f"job {self.cluster.job}; in another terminal:", "status", "logs", "stop")
        with hangups():
            try:
                start()
                self.must_remove = True
                self.check()
                if self.cluster.resolved.detaches:
                    self._detach()
                    return None
                runtime = self.runtime
                follower = Follower(self.cluster, self.aws, runtime.clock, runtime.say, replace_lost)
                outcome = self._follow(follower)
            except LeftRunning:
                raise
            except KeyboardInterrupt:
                if not self.must_remove:
                    raise  # another command's running job, which this launcher had not joined yet
                if self._may_detach():
                    self._detach()
                    return None
                outcome = self._take_down(stopped("stopped with Ctrl-C"), unsure=True)
            except (Exception, Hangup) as error:  # bugs, too: nothing may remain and be billed
                self._after_failure(error)
                raise
            else:
                outcome = self._end(outcome)
        if outcome.exit_code != Exit.DONE:
            self._show_commands("see also:", "logs", "status", "fetch")
            raise Ended(outcome.reason, outcome.exit_code, outcome)
        self.say("the training is done")
        self._fetch()
        return outcome

    def _fetch(self) -> None:
        if self.cluster.resolved.options.fetch:
            fetch_results_at_end(self.aws, self.cluster.folder, self.runtime.results, self.say)
        else:
            self._show_commands("to fetch its results:", "fetch")

    def _end(self, outcome: Outcome) -> Outcome:
        """Remove the job, or leave its nodes warm; return the outcome with duration and cost."""
        clock = self.runtime.clock
        if self.cluster.warm_time and outcome.state in ("done", "failed"):
            with hangups_ignored(), suppress(TrainerError), self._explain_interrupts():
                if warm := await_warm(self.aws, self.cluster.job, self.cluster.nodes, clock):
                    return stop.leave_warm(self.aws, warm, self.cluster.started, outcome, clock, self.say)
        return self._take_down(outcome, unsure=False)

    def _follow(self, follower: Follower) -> Outcome:
        """The outcome.  Raises LeftRunning if this machine cannot reach AWS: the nodes continue without it."""
        try:
            return follower.follow()
        except TrainerError as error:
            if is_stopped_error(error):
                return stopped("the job was stopped by another command")
            if not is_unreachable(error):
                raise
            self.say(f"{error}\nThe job is left as it is.")
            self._detach()
            raise LeftRunning(f"lost sight of the job: {error}", error.code) from error

    def _after_failure(self, error: Exception | Hangup) -> None:
        """Remove the job after `error`.  Raises Ended, with the outcome, unless the error is a bug."""
        if isinstance(error, AwsError) and error.aws_code == NAME_TAKEN:
            return  # the resources under this name belong to another command
        is_hangup = isinstance(error, (Hangup, BrokenPipeError))
        if self.runtime.has_successor:
            self._leave_to_successor(error)
        outcome = stopped(f"stopped: the terminal was closed ({error})") if is_hangup else _outcome_of(error)
        if self.must_remove:
            is_sure = isinstance(error, AwsError) and not isinstance(error, NoAnswer)
            outcome = self._take_down(outcome, unsure=not is_sure, cause=error)
        if is_hangup:
            raise Ended(outcome.reason, outcome.exit_code, outcome) from error
        if self.must_remove and isinstance(error, TrainerError):
            raise Ended(str(error), outcome.exit_code, outcome) from error

    # ---- leaving

    def _leave_to_successor(self, error: Exception | Hangup) -> None:
        """Raise LeftRunning if `error` says nothing of the job: this launcher was ended, AWS is out of reach, a bug."""
        if isinstance(error, TrainerError) and not is_unreachable(error):
            return
        is_bug = not isinstance(error, (TrainerError, Hangup, OSError))
        if is_bug and (fleet := self._found()) is not None and not fleet.living:
            return
        self.say(f"{type(error).__name__}: {error}\nThe job is left to the next launcher.")
        raise LeftRunning(f"left the job: {error}", Exit.INTERRUPTED) from error

    def _show_commands(self, heading: str, *verbs: str) -> None:
        self.say(heading)
        for verb in verbs:
            self.say(f"  {command(verb, self.cluster.job, self.cluster.region)}")

    def _may_detach(self) -> bool:
        """The user's answer; False if the terminal is closed at the question, which stops the job as always."""
        with suppress(Hangup, OSError):
            return self.runtime.may_detach()
        return False

    def _detach(self) -> None:
        deadline = minute(self.cluster.deadline)
        self.say(f"the job keeps running without this terminal, until {deadline} at most.")
        self._show_commands("to follow it, replace lost nodes and remove it at its end:", "attach")
        self._show_commands("to stop it:", "stop")

    def _take_down(self, outcome: Outcome, *, unsure: bool, cause: BaseException | None = None) -> Outcome:
        """Remove everything, then write outcome.json; return the outcome with duration and cost.

        A launcher that slept or waits may learn late that its job was stopped and started again: it then leaves that
        start's resources and files alone.
        Raises Ended with the exit code for AWS if a resource remains; its outcome keeps the training's state.
        unsure: see removal.remove(); cause: the error that led here, for the message if the removal fails, too.
        """
        with hangups_ignored():
            if self._is_started_again():
                return self._leave(outcome, unsure)
            fleet = self._found()
            cost = None if fleet is None else cost_so_far(fleet, self.runtime.clock.utc())
            return self._remove_and_record(outcome, cost, unsure, cause)

    def _remove_and_record(
        self, outcome: Outcome, cost: float | None, unsure: bool, cause: BaseException | None
    ) -> Outcome:
        has_folder, removed, failure = self._remove(unsure, cause)
        now = self.runtime.clock.utc()
        outcome = completed(outcome, self.cluster.job, self.cluster.started, now, cost)
        if failure is not None:
            ending = outcome.reason or "the training is done"
            outcome = replace(outcome, exit_code=Exit.AWS, reason=f"{ending}; its resources are not removed")
        elif removed:
            price = "" if cost is None else f".  The job cost about {usd(cost)}"
            self.say(f"removed {removed} resources; none is left{price}")
        if has_folder:
            put_outcome(self.aws, self.cluster.folder, outcome, self.say)
        if failure is not None:
            raise Ended(str(failure), Exit.AWS, outcome) from failure
        return outcome

    def _remove(self, unsure: bool, cause: BaseException | None) -> tuple[bool, int, AwsError | None]:
        """Whether the job has a folder, the number of removed resources, and the error if some remain."""
        cluster, clock, has_folder = self.cluster, self.runtime.clock, False
        remedy = command("stop", cluster.job, cluster.region)
        try:
            with self._explain_interrupts():
                end_claimed(self.aws, cluster)
                has_folder = stop.mark_ended(self.aws, cluster.folder, clock, self.say) is not None
                return has_folder, stop.stop(self.aws, cluster.job, clock, self.say, unsure=unsure), None
        except TrainerError as error:
            deadline = minute(cluster.deadline)
            return (
                has_folder,
                0,
                AwsError(
                    f"{cause or 'the job has ended.'} Removing its resources failed: {error} Nodes that still run will "
                    f"terminate themselves by {deadline}; to remove them now: {remedy}"
                ),
            )

    def _found(self) -> Fleet | None:
        """The job's resources; None if AWS does not answer, which must not keep the nodes running."""
        with suppress(TrainerError), self._explain_interrupts():
            return find_ends(self.aws, self.cluster.folder, find(self.aws, self.cluster.job, limits=False))
        return None

    @contextmanager
    def _explain_interrupts(self) -> Iterator[None]:
        """If another Ctrl-C interrupts the removal, print how to finish it."""
        try:
            yield
        except KeyboardInterrupt:
            remedy = command("stop", self.cluster.job, self.cluster.region)
            self.say(f"not everything is removed; finish with {remedy}")
            raise

    def _is_started_again(self) -> bool:
        """Whether the job has been stopped and started again since this launcher's start.  False if S3 does not answer.

        A laptop that wakes up has no network for a while, so retry for as long as a removal would.
        """
        look = partial(spec_of, self.aws, self.cluster.folder, BACKEND_NAME)
        with suppress(TrainerError), self._explain_interrupts():
            spec = retrying(
                look, self.runtime.clock, self.say, lambda error: is_transient(error) and not is_busy(error)
            )
            return start_of(spec or {}) not in (None, self.cluster.started)
        return False

    def _leave(self, outcome: Outcome, unsure: bool) -> Outcome:
        """Terminate only this start's nodes, which EC2 may have started just as the job was stopped."""
        cluster, clock = self.cluster, self.runtime.clock
        end = partial(removal.end_start, self.aws, cluster.job, cluster.started, clock, self.say, unsure=unsure)
        retrying(end, clock, self.say)
        self._show_commands(
            f"job {cluster.job} has been started again; that start is left as it is.  To stop it:", "stop"
        )
        return completed(outcome, cluster.job, cluster.started, clock.utc(), None)


def _outcome_of(error: BaseException) -> Outcome:
    """The outcome of a job that an error of the launcher ended."""
    if isinstance(error, TrainerError):
        reason = (str(error).splitlines() or [""])[0].rstrip(":")
        return Outcome(state_of(error.code), error.code, reason)
    return Outcome("failed", Exit.BUG, f"a bug in the launcher: {type(error).__name__}: {error}")
