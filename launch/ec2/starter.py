"""Starts the nodes of a job and replaces lost ones, retrying while there is no capacity."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from launch.aws.client import Aws
from launch.aws.instances.inventory import NO_START, TAKEN_BACK, Fleet, Resource, nodes_and_volumes, nodes_of
from launch.aws.retry import RETRY_S, STOP_RETRY_S, Given, is_transient, retrying
from launch.core.errors import AwsError, NoAnswer
from launch.core.perform import perform
from launch.core.plan import Plan, Request
from launch.core.terminal import Say
from launch.ec2 import requests
from launch.ec2.backend import Runtime
from launch.ec2.capacity import CapacityWait, is_no_capacity
from launch.ec2.job_folder import STOPPED, check_not_stopped, cluster_file, members_of, volumes_missing
from launch.ec2.planner import Launch
from launch.ec2.regions import plan_job
from launch.ec2.requests import Cluster
from launch.ec2.warm import is_lost
from launch.ec2.watch import APPEAR_S

LOOK_EVERY_S = 3.0
# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/troubleshooting-launch.html
NO_KEY = (
    "  Most often EC2 may not use the key that encrypts a volume; python -m launch.doctor looks at the snapshot's "
    "and at the default key."
)
NOT_STARTED = "NotStarted"  # the toolkit's error code for nodes that EC2 accepted and could not start


@dataclass
class Starter:
    """Starts the nodes of `plan`."""

    plan: Plan[Launch]
    runtime: Runtime
    aws: Aws
    say: Say  # never fails, unlike runtime.say if the terminal is closed
    waits: bool  # wait for capacity for the first nodes as --wait-for-capacity says; replacements always do
    lost: bool = False  # warm nodes were no longer there for the job

    def start(self) -> Mapping[str, Any]:
        """Make the plan's requests, write cluster.json and return it.  Idempotent."""
        members = self._start(self.plan, may_retry=True)
        self.waits = True
        return members

    def replace_lost(self) -> Mapping[str, Any]:
        """Replace lost nodes, as running the same command again would."""
        return self._start(self._same_start_again(self.plan), may_retry=True)

    def _start(self, plan: Plan[Launch], *, may_retry: bool) -> Mapping[str, Any]:
        cluster = plan.payload.cluster
        try:
            plan = self._perform(plan)
        except AwsError as error:
            if self._is_lost(error, cluster):
                self.say(f"{error}  Starting new nodes.")
                return self._start(self._same_start_again(plan), may_retry=may_retry)
            if error.aws_code != "InvalidGroup.Duplicate" or not may_retry:
                raise
            # botocore retried a request whose answer was lost: the group exists, and a new plan finds it.
            return self._start(self._same_start_again(plan), may_retry=False)
        try:
            fleet = self._wait_for_nodes(plan.payload)
        except AwsError as error:
            if error.aws_code != NOT_STARTED:
                raise
            # EC2 accepted the request and then had no capacity: the same as a rejected request.
            self.say(f"{error}  Trying elsewhere.")
            self._end_generation(plan.payload.generation)
            return self._start(self._same_start_again(plan), may_retry=may_retry)
        members = self._written(cluster, fleet)
        places = ", ".join(sorted({f"{node.type} in {node.zone}" for node in fleet.living}))
        how = f"warm nodes of {cluster.warm.job}" if cluster.warm else "nodes started"
        wait = "" if cluster.warm else "; they take a few minutes to boot"
        self.runtime.say(f"{cluster.nodes} {how} ({places}){wait}")
        # A concurrent stop has not seen these nodes.
        check_not_stopped(self.aws, cluster.folder, cluster.started, has_started=True)
        return members

    def _is_lost(self, error: AwsError, cluster: Cluster) -> bool:
        """Whether warm nodes were no longer there for the job, for the first time."""
        was_lost, self.lost = self.lost, self.lost or is_lost(error, cluster)
        return self.lost and not was_lost

    def _written(self, cluster: Cluster, fleet: Fleet) -> Mapping[str, Any]:
        """Write cluster.json if it has changed, and return it."""
        previous = self._retrying(partial(members_of, self.aws, cluster.folder))
        members = cluster_file(cluster, fleet, previous)
        if members != previous:
            put = [requests.put_cluster_file(cluster.folder, members)]
            self._retrying(partial(perform, put, self.aws.call, self.runtime.say))
            self._retrying(partial(self._begin_limit, cluster, int(members["deadline"])))
        return members

    def _begin_limit(self, cluster: Cluster, deadline: int) -> None:
        """Set the final time limit after a wait: until now it allowed for the longest possible wait."""
        ends = datetime.fromtimestamp(deadline, UTC) + cluster.warm_time
        if ends < cluster.deadline:
            for request in requests.time_limit(replace(cluster, deadline=ends), exists=True):
                self._do(request)

    def _perform(self, plan: Plan[Launch]) -> Plan[Launch]:
        """Make the plan's requests, retrying while there is no capacity and the user waits; return the last plan."""
        clock, hours = self.runtime.clock, plan.payload.job.where.wait_for_capacity if self.waits else 0.0
        wait = CapacityWait(clock, self.say, hours)
        while True:
            try:
                if plan.problem is not None:
                    self._note_wait(plan, hours)
                    raise plan.problem
                perform(plan.steps, self.aws.call, self.runtime.say, clock.sleep)
                return plan
            except AwsError as error:
                self._check_worth_waiting(error, plan, hours)
                wait.note(error, plan)
                if wait.is_over:
                    raise wait.error() from error
                why = "no capacity" if is_no_capacity(error) else f"warning: {error}"
            wait.pause(why)
            plan = self._retrying(partial(self._same_start_again, plan), RETRY_S)

    def _check_worth_waiting(self, error: AwsError, plan: Plan[Launch], hours: float) -> None:
        """Raise `error` unless waiting may help and the user waits."""
        if error.aws_code == requests.NAME_TAKEN and plan is not self.plan:
            raise self._stopped_by_another() from error
        if not hours or not _is_transient(error, plan):
            raise error

    def _note_wait(self, plan: Plan[Launch], hours: float) -> None:
        """Write job.json at the first wait: from then on the job has begun, and another command can stop it."""
        if hours and plan.payload.save_spec is not None:
            self._do(plan.payload.save_spec)

    def _same_start_again(self, plan: Plan[Launch]) -> Plan[Launch]:
        """A new plan for the missing nodes.  Raises AwsError if the job was stopped meanwhile."""
        again = self._plan_again()
        if again.payload.cluster.started != plan.payload.cluster.started:
            raise self._stopped_by_another()
        return again

    def _stopped_by_another(self) -> AwsError:
        return AwsError(f"job {self.plan.payload.cluster.job} was stopped or restarted by another command.", STOPPED)

    def _plan_again(self) -> Plan[Launch]:
        """A new plan.  Raises its problem, except a lack of capacity, for which the user may wait."""
        cluster = self.plan.payload.cluster
        plan = plan_job(self.plan.payload.job, self.runtime, cluster.region, is_first=False)
        if plan.problem is not None and not is_no_capacity(plan.problem):
            raise plan.problem
        return plan

    def _wait_for_nodes(self, launched: Launch) -> Fleet:
        """All nodes with their data volumes.  Raises AwsError if one ends at once or is not listed in time."""
        cluster, clock = launched.cluster, self.runtime.clock
        until = clock.now() + APPEAR_S
        while True:
            fleet = self._retrying(partial(nodes_and_volumes, self.aws, cluster.job))
            if cluster.resolved.data_volume == "multi-attach":
                self._share_volume(fleet)
            if len(fleet.living) >= cluster.nodes and not volumes_missing(cluster, fleet):
                return fleet
            _check_started(fleet, launched)
            if clock.now() > until:
                minutes = f"{APPEAR_S / 60:g} minutes"
                raise AwsError(f"EC2 lists {len(fleet.living)} of {cluster.nodes} nodes after {minutes}.")
            clock.sleep(LOOK_EVERY_S)

    def _end_generation(self, generation: int) -> None:
        """Terminate one generation of nodes, so that all can be started in another zone."""
        aws, clock, job = self.aws, self.runtime.clock, self.plan.payload.cluster.job
        until = clock.now() + APPEAR_S
        while ids := [node.id for node in nodes_of(aws, job).living if node.generation == generation]:
            if clock.now() > until:
                raise AwsError(f"{', '.join(ids)} still run after {APPEAR_S / 60:g} minutes.")
            aws.call("ec2", "TerminateInstances", {"InstanceIds": ids})
            clock.sleep(LOOK_EVERY_S)
        for volume in nodes_and_volumes(aws, job).shared_volumes:
            if not volume.attached_to:  # it would bind the next nodes to its zone
                aws.call("ec2", "DeleteVolume", {"VolumeId": volume.id})

    def _share_volume(self, fleet: Fleet) -> None:
        """Attach the shared volume to every running node, to be deleted with the last of them.

        Create it if it was deleted with the last node of an earlier generation.
        """
        if fleet.living and not fleet.shared_volumes:
            newest = max(node.generation for node in fleet.living)
            self._do(requests.shared_volume(self.plan.payload.cluster, fleet.living[0].zone, newest))
        for volume in fleet.shared_volumes:
            if volume.state in ("available", "in-use"):
                self._attach(volume, fleet)

    def _attach(self, volume: Resource, fleet: Fleet) -> None:
        for node in fleet.living:
            if node.id in volume.attached_to and node.id not in volume.deleted_with:
                self._do(requests.delete_with(node.id))
            elif node.state == "running" and node.id not in volume.attached_to:
                self._do(requests.attach(volume.id, node.id))

    def _retrying(self, act: Callable[[], Given], limit_s: float = STOP_RETRY_S) -> Given:
        """Retry a repeatable action, so that its failure ends neither a wait nor nodes that were waited for."""
        return retrying(act, self.runtime.clock, self.say, limit_s=limit_s)

    def _do(self, request: Request) -> None:
        perform([request], self.aws.call, self.runtime.say, self.runtime.clock.sleep)


def _is_transient(error: AwsError, plan: Plan[Launch]) -> bool:
    """Whether a waiting launcher retries after `error`: also if AWS was busy or unreachable.

    Not before job.json exists, where a stop records the end, nor if the request may have taken effect.
    """
    is_busy = is_transient(error) and not isinstance(error, NoAnswer) and plan.payload.save_spec is None
    return is_busy or is_no_capacity(error)


def _check_started(fleet: Fleet, launched: Launch) -> None:
    """Raise AwsError if a new node has already ended."""
    for node in fleet.nodes:
        if node.generation == launched.generation and not node.lives:
            reason = node.reason or "EC2 gives no reason"
            is_transient = launched.cluster.warm is not None or reason.startswith((*NO_START, *TAKEN_BACK))
            code = NOT_STARTED if is_transient else "EndedAtOnce"
            hint = NO_KEY if reason.startswith("Client.InternalError") else ""
            raise AwsError(f"node {node.id} ended right after its start: {reason.rstrip('.')}.{hint}", code)
