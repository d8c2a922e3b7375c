"""Carries out a plan: starts the nodes, follows the job, takes everything down.  Read _live() first."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from launch.core.aws import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError, Ended, NoAnswer
from launch.core.lookup import read_json
from launch.core.perform import Say, perform
from launch.core.plan import Plan
from launch.core.price import usd
from launch.core.signals import Hangup, hangups, hangups_ignored, unless_gone
from launch.ec2 import machines, requests, stop
from launch.ec2.costs import cost_so_far
from launch.ec2.fleet import Fleet, find
from launch.ec2.judge import Over
from launch.ec2.planner import Launch, inner
from launch.ec2.requests import Cluster
from launch.ec2.roster import members, volumes_missing
from launch.ec2.watch import APPEAR_S, Follower, cluster_json
from trainer.contract import Exit
from trainer.errors import TrainerError

LOOK_EVERY_S = 3.0


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
    return _live(plan, world, lambda: begin(plan, world), lambda: _go_on(plan, world))


def attach(plan: Plan, world: World) -> int:
    """launch() for a job that was started before; if none of its nodes is left, none is started."""
    launched = inner(plan)
    if launched.missing == launched.cluster.nodes:
        return _live(plan, world, lambda: cluster_json(world.aws, launched.cluster.folder), None)
    return launch(plan, world)


Change = Callable[[], Mapping[str, Any]]


def _live(plan: Plan, world: World, start: Change, replace_lost: Change | None) -> int:
    """The life of a job from start() to its end."""
    cluster, say, is_ours = inner(plan).cluster, unless_gone(world.say), inner(plan).missing > 0
    say(f"job {cluster.job}; from any terminal: python -m launch.ec2 status|logs|stop {cluster.job}")
    with hangups():
        try:
            start()
            is_ours = True
            if cluster.resolved.detaches:
                return _detached(cluster, say)
            over = Follower(cluster, world.aws, world.clock, world.say, replace_lost).follow()
        except KeyboardInterrupt:
            if not is_ours:
                raise  # somebody's running job, which we had not even joined
            if world.may_detach():
                return _detached(cluster, say)
            over = Over(130, "stopped as asked")
            _take_down(cluster, world, say, unsure=True)
        except (Exception, Hangup) as error:  # also bugs: nothing may go on costing money
            if is_ours:
                unsure = not isinstance(error, AwsError) or isinstance(error, NoAnswer)
                _take_down(cluster, world, say, unsure=unsure, instead=error)
            if isinstance(error, (Hangup, BrokenPipeError)):
                raise Ended(f"stopped, as nobody listens any more ({error})", 130) from error
            raise
        else:
            _take_down(cluster, world, say, unsure=False)
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
        perform(plan.steps, aws.call, world.say, world.clock.sleep)
    except AwsError as error:
        if error.aws_code != "InvalidGroup.Duplicate" or again:
            raise
        # An answer got lost and botocore asked a second time: the group is there, and will be found.
        return begin(_planned_again(world), world, again=True)
    fleet = _wait_for_nodes(inner(plan), world)
    before = read_json(aws, cluster.folder.bucket, cluster.folder.cluster)
    told = members(cluster, fleet, before)
    if told != before:
        perform([requests.put_cluster(cluster.folder, told)], aws.call, world.say)
    places = ", ".join(sorted({f"{node.type} in {node.zone}" for node in fleet.living}))
    world.say(f"{cluster.nodes} nodes are started ({places}); booting takes a few minutes")
    return told


def _go_on(plan: Plan, world: World) -> Mapping[str, Any]:
    """Replaces lost nodes of the start that `plan` is: what the same command again would do."""
    again = _planned_again(world)
    if inner(again).cluster.started != inner(plan).cluster.started:
        raise AwsError(f"job {inner(plan).cluster.job} was ended or started anew meanwhile.")
    return begin(again, world)


def _planned_again(world: World) -> Plan:
    plan = world.plan_again()
    if plan.problems:
        raise plan.problems[0]
    return plan


def _wait_for_nodes(launched: Launch, world: World) -> Fleet:
    """All nodes, with their data volumes.  Raises AwsError if one ended at once, or does not show up."""
    cluster, until = launched.cluster, world.clock.now() + APPEAR_S
    while True:
        fleet = find(world.aws, cluster.job)
        if cluster.resolved.data_volume == "multi-attach":
            _share_volume(fleet, world)
        if len(fleet.living) >= cluster.nodes and not volumes_missing(cluster, fleet):
            return fleet
        for node in fleet.nodes:
            if node.generation == launched.generation and not node.lives:
                why = node.reason or "EC2 gives no reason"
                raise AwsError(f"node {node.id} ended as soon as it was started: {why}.", "EndedAtOnce")
        if world.clock.now() > until:
            raise AwsError(f"EC2 shows {len(fleet.living)} of {cluster.nodes} nodes after {APPEAR_S / 60:g} minutes.")
        world.clock.sleep(LOOK_EVERY_S)


def _share_volume(fleet: Fleet, world: World) -> None:
    """Attaches the shared volume to every node that runs, and makes it go with the last of them."""
    for volume in fleet.kind("volume"):
        if volume.volume_type != "io2" or volume.state not in ("available", "in-use"):
            continue
        for node in fleet.living:
            if node.id in volume.attached_to and node.id not in volume.goes_with:
                perform([machines.end_with(node.id)], world.aws.call, world.say)
            elif node.state == "running" and node.id not in volume.attached_to:
                perform([machines.attach(volume.id, node.id)], world.aws.call, world.say)


def _detached(cluster: Cluster, say: Say) -> int:
    name = cluster.job
    say(f"the job goes on without this terminal, at most until {cluster.deadline:%Y-%m-%d %H:%M} UTC.")
    for verb, what in (("attach", "follow it, replace lost nodes, and take it down at its end"), ("stop", "end it")):
        say(f"  python -m launch.ec2 {verb} {name}   {what}")
    return Exit.DONE


def _take_down(
    cluster: Cluster, world: World, say: Say, *, unsure: bool, instead: Exception | Hangup | None = None
) -> None:
    """Removes everything.  What goes wrong here is told, with what still ends the nodes."""
    aws, sooner = world.aws, f"python -m launch.ec2 stop {cluster.job}"
    try:
        with hangups_ignored():
            cost = _cost(cluster, world)
            stop.mark_ended(aws, cluster.folder, world.clock, say)
            removed = stop.stop(aws, cluster.job, world.clock, say, unsure=unsure)
    except TrainerError as error:
        raise AwsError(
            f"{instead or 'the job is over.'} Taking it down failed too: {error} What still runs ends itself by "
            f"{cluster.deadline:%Y-%m-%d %H:%M} UTC; sooner with {sooner}"
        ) from error
    except KeyboardInterrupt:
        say(f"taking down is not finished; do it with {sooner}")
        raise
    if removed:
        say(f"{removed} resources removed, none is left{cost}")


def _cost(cluster: Cluster, world: World) -> str:
    """A clause about it; nothing where AWS cannot be asked, for that must not keep the nodes running."""
    try:
        return f"; the job cost about {usd(cost_so_far(find(world.aws, cluster.job), world.clock.utc()))}"
    except TrainerError:
        return ""
