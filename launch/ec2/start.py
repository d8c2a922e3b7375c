"""Carries out a plan: starts the nodes, follows the job, takes everything down.  Read _live() first."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from launch.aws import Aws
from launch.ec2 import requests, stop
from launch.ec2.cluster import members, volumes_missing
from launch.ec2.costs import cost_so_far
from launch.ec2.fleet import Fleet, find
from launch.ec2.lookup import read_json
from launch.ec2.planner import Launch, inner
from launch.ec2.requests import Cluster
from launch.ec2.stop import Clock
from launch.ec2.watch import Follower, Over, cluster_json
from launch.errors import AwsError, Ended, NoAnswer
from launch.perform import Say, perform
from launch.plan import Plan
from launch.price import usd
from trainer.contract import Exit
from trainer.errors import TrainerError

# From RunInstances' answer until EC2 shows all nodes with their volumes.
APPEAR_S, LOOK_EVERY_S = 300.0, 3.0


@dataclass(frozen=True)
class World:
    """What a launch acts on, and how it talks.  may_detach: asks the user who pressed Ctrl-C; plan_again: looks
    everything up anew and plans what is missing.
    """

    aws: Aws
    clock: Clock
    say: Say
    may_detach: Callable[[], bool]
    plan_again: Callable[[], Plan]


def launch(plan: Plan, world: World) -> int:
    """Starts what is missing, follows the job and removes it; returns the exit code of the training.

    Whatever happens, nothing is left, unless the user detaches.  Raises TrainerError after taking everything down.
    """
    return _live(plan, world, lambda: begin(plan, world))


def attach(plan: Plan, world: World) -> int:
    """launch() for a job that was started before; if none of its nodes is left, none is started."""
    launched = inner(plan)
    if launched.missing == launched.cluster.nodes:
        return _live(plan, world, lambda: cluster_json(world.aws, launched.cluster.folder))
    return launch(plan, world)


def _live(plan: Plan, world: World, start: Callable[[], Mapping[str, Any]]) -> int:
    """The life of a job from start() to its end."""
    cluster, say = inner(plan).cluster, world.say
    say(f"job {cluster.job}; from any terminal: python -m launch.ec2 status|logs|stop {cluster.job}")
    started = False
    try:
        with _signals_as_ctrl_c():
            start()
            started = True
            if cluster.settled.options.detach:
                return _detached(cluster, say)
            over = Follower(cluster, world.aws, world.clock, say, lambda: _go_on(world)).follow()
    except KeyboardInterrupt:
        if started and world.may_detach():
            return _detached(cluster, say)
        over = Over(130, "stopped as asked")
        _take_down(cluster, world, unsure=not started)
    except TrainerError as error:
        if started or inner(plan).missing:  # else it is somebody's running job, which we could not even join
            _take_down(cluster, world, unsure=isinstance(error, NoAnswer), instead=error)
        raise
    else:
        _take_down(cluster, world, unsure=False)
    if over.code != Exit.DONE:
        raise Ended(f"{over.sentence}. {_look_at(cluster)}", over.code)
    say(f"{over.sentence}; results: aws s3 sync {cluster.folder.uri}/run runs/{cluster.job}")
    return over.code


def _look_at(cluster: Cluster) -> str:
    return f"See python -m launch.ec2 logs {cluster.job}, and {cluster.folder.uri}/boot/ for how the nodes booted."


def begin(plan: Plan, world: World, *, again: bool = False) -> Mapping[str, Any]:
    """Makes the requests of `plan` and tells the nodes of each other; returns cluster.json.  Converges if repeated."""
    cluster, aws = inner(plan).cluster, world.aws
    try:
        perform(plan.steps, aws.call, world.say)
    except AwsError as error:
        if error.aws_code != "InvalidGroup.Duplicate" or again:
            raise
        # An answer got lost and botocore asked a second time: the group is there, and will be found.
        return begin(world.plan_again(), world, again=True)
    fleet = _wait_for_nodes(inner(plan), world)
    before = read_json(aws, cluster.folder.bucket, cluster.folder.cluster)
    told = members(cluster, fleet, before)
    if told != before:
        request = requests.put_cluster(cluster.folder, told)
        aws.call(request.service, request.operation, request.params)
    chosen = {row["instance"] for row in told["nodes"]}
    if surplus := [node.id for node in fleet.living if node.id not in chosen]:
        aws.call("ec2", "TerminateInstances", {"InstanceIds": surplus})
    places = ", ".join(sorted({f"{node.type} in {node.zone}" for node in fleet.living}))
    world.say(f"{len(chosen)} nodes are started ({places}); booting takes a few minutes")
    return told


def _go_on(world: World) -> Mapping[str, Any]:
    """Replaces lost nodes: what a second start of the job would do."""
    plan = world.plan_again()
    if plan.problems:
        raise plan.problems[0]
    return begin(plan, world)


def _wait_for_nodes(launched: Launch, world: World) -> Fleet:
    """All nodes, with their data volumes.  Raises AwsError if one ended at once, or does not show up."""
    cluster, until = launched.cluster, world.clock.now() + APPEAR_S
    while True:
        fleet = find(world.aws, cluster.job)
        if cluster.settled.data_volume == "multi-attach":
            _attach_volume(fleet, world)
        if len(fleet.living) >= cluster.nodes and not volumes_missing(cluster, fleet):
            return fleet
        for node in fleet.nodes:
            if node.generation == launched.generation and not node.lives:
                why = node.reason or "EC2 gives no reason"
                raise AwsError(f"node {node.id} ended as soon as it was started: {why}.", "EndedAtOnce")
        if world.clock.now() > until:
            raise AwsError(f"EC2 shows {len(fleet.living)} of {cluster.nodes} nodes after {APPEAR_S / 60:g} minutes.")
        world.clock.sleep(LOOK_EVERY_S)


def _attach_volume(fleet: Fleet, world: World) -> None:
    """Attaches the shared volume to every node that runs and does not have it yet."""
    for volume in fleet.kind("volume"):
        if volume.volume_type != "io2" or volume.state not in ("available", "in-use"):
            continue
        for node in fleet.living:
            if node.state == "running" and node.id not in volume.attached_to:
                request = requests.attach(volume.id, node.id)
                world.aws.call(request.service, request.operation, request.params)


def _detached(cluster: Cluster, say: Say) -> int:
    name = cluster.job
    say(f"the job goes on without this terminal, at most until {cluster.deadline:%Y-%m-%d %H:%M} UTC.")
    for verb, what in (("attach", "follow it, replace lost nodes, and take it down at its end"), ("stop", "end it")):
        say(f"  python -m launch.ec2 {verb} {name}   {what}")
    return Exit.DONE


def _take_down(cluster: Cluster, world: World, *, unsure: bool, instead: TrainerError | None = None) -> None:
    """Removes everything.  What goes wrong here is told, with what still ends the nodes."""
    aws, sooner = world.aws, f"python -m launch.ec2 stop {cluster.job}"
    try:
        cost = cost_so_far(find(aws, cluster.job), world.clock.utc())
        removed = stop.stop(aws, cluster.job, world.clock, world.say, unsure=unsure)
        stop.mark_ended(aws, cluster.folder, world.clock)
    except TrainerError as error:
        raise AwsError(
            f"{instead or 'the job is over.'} Taking it down failed too: {error} What still runs ends itself by "
            f"{cluster.deadline:%Y-%m-%d %H:%M} UTC; sooner with {sooner}"
        ) from error
    except KeyboardInterrupt:
        world.say(f"taking down is not finished; do it with {sooner}")
        raise
    if removed:
        world.say(f"{removed} resources removed, none is left; the job cost about {usd(cost)}")


@contextmanager
def _signals_as_ctrl_c() -> Iterator[None]:
    """A closed terminal or a kill ends the job as Ctrl-C does, instead of leaving it behind."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    except ValueError:  # not in the main thread: a notebook's worker
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
