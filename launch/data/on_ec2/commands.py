"""Publish data that are in S3 by a temporary EC2 instance: start it, follow it, and remove what was made for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from launch.aws.client import Aws
from launch.aws.instances import removal
from launch.aws.instances.inventory import Fleet, Node, find_tagged, nodes_of
from launch.aws.lookup import read_json
from launch.aws.names import TIME, bucket_of
from launch.aws.retry import Given, Retry, is_busy, is_transient, retrying
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.perform import NothingLeft, perform
from launch.core.plan import CONFLICT, TAKEN, Plan, dry_run
from launch.core.terminal import Say
from launch.data.costs import types_for, vcpus
from launch.data.on_ec2.bundle import bundle
from launch.data.on_ec2.facts import (
    LOG,
    PROGRESS,
    PUBLISHES_TAG,
    Facts,
    Run,
    exit_record_of,
    known_run,
    look_up,
    put_run,
)
from launch.data.on_ec2.planner import compared_for, is_continued, is_done, plan_run
from launch.data.options import NameOptions, PublishOptions
from trainer.contract import Exit
from trainer.errors import MachineError, TrainerError, error_with

if TYPE_CHECKING:
    from launch.data.commands import Runtime

# run.json has changed since the plan, is being written, or was deleted: another command has started or ended a run.
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
CHANGED = (TAKEN, CONFLICT, "NoSuchKey")
OVERTAKEN = (*CHANGED, "InvalidGroup.Duplicate")  # also by a request whose answer was lost
TRIES, RETRY_DELAY_S = 3, 5.0
INSTEAD = "Try again later, or with another --instance-type, --subnet or --region."


@dataclass(frozen=True)
class OnEc2:
    """publish, for data in S3 by an instance."""

    runtime: "Runtime"
    from_here: Callable[[], int]  # publishes the same data from this machine
    show: Callable[[NameOptions], int]  # the verb show

    def publish(self, options: PublishOptions, name: str, aws: Aws) -> int:
        facts, plan, is_cheaper_here = self._planned(options, name, aws)
        if is_cheaper_here:
            self.runtime.say("--by cheaper: publishing it from here costs no more than an instance would")
            return self.from_here()
        if options.dry_run:
            return dry_run(plan, options.dry_run, self.runtime.say)
        if is_done(options, name, facts):
            self.runtime.say(f"{name} is already published from there; add --replace if its content has changed.")
            return self.show(NameOptions(name=name, region=facts.region))
        if plan.problem:
            raise plan.problem
        self.runtime.say(plan.brief)
        if not (options.yes or options.max_usd or is_continued(options, name, facts, self.runtime.clock.utc())):
            self.runtime.confirm("this starts an instance, at the price above")
        run = self._start(options, name, aws, plan)
        self.runtime.say(
            f"{run.id} has begun; Ctrl-C leaves it running.  The same command follows it again, and "
            f"python -m launch.data stop {name} ends it."
        )
        Follower(aws, self.runtime.clock, self.runtime.say, run).follow()
        return self.show(NameOptions(name=name, region=facts.region))

    def _planned(self, options: PublishOptions, name: str, aws: Aws) -> tuple[Facts, Plan[Run], bool]:
        """The facts, the plan, and whether --by cheaper chooses this machine."""
        now = self.runtime.clock.utc()
        facts = look_up(aws, name, str(options.source), types_for(options.instance_type), options.subnet, now)
        work, compared = compared_for(options, facts, vcpus())
        plan = plan_run(options, name, facts, work, compared, bundle(), now)
        may_choose = options.by == "cheaper" and not is_continued(options, name, facts, now)
        return facts, plan, may_choose and compared is not None and compared.cheaper == "here"

    def _start(self, options: PublishOptions, name: str, aws: Aws, plan: Plan[Run]) -> Run:
        """Make the requests; continue a run that another command, or a request with a lost answer, has started."""
        for left in reversed(range(TRIES)):
            try:
                self._perform(aws, plan)
                break
            except AwsError as error:
                if not left or error.aws_code not in OVERTAKEN:
                    raise
                self.runtime.clock.sleep(RETRY_DELAY_S)
                _, plan, _ = self._planned(options, name, aws)
                if plan.problem:
                    raise plan.problem from error
        return plan.payload

    def _perform(self, aws: Aws, plan: Plan[Run]) -> None:
        """Perform the plan; remove what it has made if AWS refuses the instance."""
        try:
            perform(plan.steps, aws.call, self.runtime.say, self.runtime.clock.sleep)
        except AwsError as error:
            if error.operation == "RunInstances" or error.aws_code == "NothingLeftToTry":
                self.runtime.say("no instance was started; remove what was made for it")
                Remover(aws, self.runtime.clock, self.runtime.say, plan.payload.name).remove_run(plan.payload)
            if isinstance(error, NothingLeft):
                raise AwsError(error.table_and(INSTEAD), error.aws_code) from error
            raise


def stop(runtime: "Runtime", name: str, region: str | None) -> int:
    """Stop the runs that publish a data set."""
    aws = runtime.make_aws(region)
    removed = Remover(aws, runtime.clock, runtime.say, name).stop()
    runtime.say(
        f"nothing of it runs any more in {aws.region}; the same publish command continues with its snapshot"
        if removed
        else f"no instance publishes {name} in {aws.region}"
    )
    return Exit.DONE


# ---- following

LOOK_S = 15.0
UNSEEN_S = 120.0  # EC2 may not list a new instance for a while
STEPS = {
    "programs": "installing Python",
    "disk": "making a file system on its disks",
    "code": "getting the toolkit",
    "packages": "installing its packages",
    "publish": "publishing",
}


@dataclass
class Follower:
    """Follows a run to its end.  aws: in its region."""

    aws: Aws
    clock: Clock
    say: Say
    run: Run
    _shown: str = ""  # the progress

    def follow(self) -> Mapping[str, Any]:
        """Wait for the end and remove all resources; return the record of its end, or raise its error."""
        record = self._wait()
        Remover(self.aws, self.clock, self.say, self.run.name).remove_run(self.run)
        code = record.get("code")
        if code != 0:
            words = f"{record.get('reason') or 'it gave no reason'}; its log: {self.run.uri}/{LOG}"
            known = code if isinstance(code, int) and 0 < code < 256 else 1
            raise error_with(known, f"{self.run.id} ended in step {record.get('step')}: {words}")
        return record

    def _wait(self) -> Mapping[str, Any]:
        retry, began = Retry(self.clock, is_transient=is_transient), self.clock.now()
        has_been_seen = False
        while True:
            try:
                if (record := exit_record_of(self.aws, self.run)) is not None:
                    return record
                self._show_progress()
                nodes = nodes_of(self.aws, self.run.id).nodes
                has_been_seen |= bool(nodes)
                if self._is_lost(nodes, began, has_been_seen=has_been_seen):
                    # It may have written its record meanwhile.
                    return exit_record_of(self.aws, self.run) or self._unexplained()
                retry.success()
            except AwsError as error:
                retry.failure(error)
                self.say(f"warning: {error}")
            self.clock.sleep(LOOK_S)

    def _is_lost(self, nodes: tuple[Node, ...], began: float, *, has_been_seen: bool) -> bool:
        """Whether the run is lost: no instance, and no record to expect."""
        if self.clock.utc() > self.run.deadline + timedelta(minutes=10):
            return True
        if any(node.lives for node in nodes):
            return False
        return has_been_seen or self.clock.now() - began > UNSEEN_S

    def _show_progress(self) -> None:
        """Show the progress if it has changed."""
        progress = read_json(self.aws, self.run.bucket, self.run.prefix + PROGRESS) or {}
        if progress.get("run") != self.run.id:
            return
        step, last = str(progress.get("step", "")), str(progress.get("last", "")).strip()
        words = last if step == "publish" and last else STEPS.get(step, step)
        if words != self._shown:
            self.say(f"  {words}")
        self._shown = words

    def _unexplained(self) -> Mapping[str, Any]:
        if self.clock.utc() >= self.run.deadline:
            reason = (
                "its time limit has come; run the same command again, with more --max-hours: it continues from there"
            )
        else:
            reason = "it ended without a record of why; run the same command again"
        return {"code": MachineError.code, "step": "publish", "reason": reason}


# ---- removing


@dataclass(frozen=True)
class Remover:
    """Removes runs of the data set `name`, and records their end.  Idempotent."""

    aws: Aws
    clock: Clock
    say: Say
    name: str

    def remove_run(self, run: Run) -> None:
        """Remove one run; others of the data set stay as they are.  Raises AwsError for what cannot be removed."""
        self._remove(Fleet(started={run.id: run.started}), run.id)
        self._record_end(run.bucket, run.id)

    def stop(self) -> int:
        """Remove all runs; return the number of resources.  Raises AwsError for the rest."""
        found = self._retrying(partial(find_tagged, self.aws, PUBLISHES_TAG, self.name))
        runs = sorted({node.job for node in found.present} | {group.job for group in found.resources})
        # First of all, and without S3: instances cost money.
        removed = sum(self._remove(found, run) for run in runs)
        caller = retrying(partial(self.aws.call, "sts", "GetCallerIdentity"), self.clock, self.say, is_busy)
        bucket = bucket_of(str(caller["Account"]), self.aws.region)
        run, _, ended = self._retrying(partial(known_run, self.aws, bucket, self.name))
        if run is not None and not ended:
            if run.id not in runs:  # EC2 may not list its instance yet
                removed += self._remove(Fleet(started={run.id: run.started}), run.id)
            self._record_end(bucket, run.id)
        return removed

    def _remove(self, found: Fleet, run: str) -> int:
        unsure = removal.is_young(found, run, self.clock.utc())
        remedy = f"python -m launch.data stop {self.name}"
        return removal.remove(self.aws, run, self.clock, self.say, remedy, unsure=unsure)

    def _record_end(self, bucket: str, run: str) -> None:
        """Write the end of a run into run.json, unless another command, or a request with a lost answer, has."""

        def record() -> None:
            known, etag, ended = known_run(self.aws, bucket, self.name)
            if known is not None and known.id == run and not ended:
                request = put_run(known, etag, self.clock.utc().strftime(TIME))
                self.aws.call(request.service, request.operation, request.params)

        retrying(record, self.clock, self.say, lambda error: is_transient(error) or _is_overtaken(error))

    def _retrying(self, act: Callable[[], Given]) -> Given:
        return retrying(act, self.clock, self.say)


def _is_overtaken(error: TrainerError) -> bool:
    return isinstance(error, AwsError) and error.aws_code in CHANGED
