"""A rehearsal on EC2: an account as in infra/account.md, nodes in namespaces or as processes, and their faults."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from moto.ebs.models import EBSSnapshot

from launch.rehearse import accounts
from launch.rehearse.aws.batch.container_operations import make_fargate_queue
from launch.rehearse.aws.batch.jobs import OVER
from launch.rehearse.aws.batch.scheduler import step
from launch.rehearse.aws.ec2 import ebs
from launch.rehearse.aws.ec2.account import Ec2Account
from launch.rehearse.aws.ec2.moto_patches import patched
from launch.rehearse.aws.server import Request, RequestLog, first, served
from launch.rehearse.backend import POLL_S, RehearsedBackend, RehearsedJob
from launch.rehearse.faults import Fault
from launch.rehearse.nodes.ec2 import namespaces, processes
from launch.rehearse.nodes.ec2.node import KEY, TOKEN, Machines, Node, NodeSetup, Volume
from launch.rehearse.nodes.ec2.watcher import InstanceRun, Watcher
from launch.rehearse.nodes.fargate import KEY as CONTROLLER_KEY
from launch.rehearse.nodes.fargate import TOKEN as CONTROLLER_TOKEN
from launch.rehearse.nodes.fargate import Fargate
from launch.rehearse.nodes.network import why_not_slow
from trainer.contract import Exit
from trainer.errors import SettingsError

GATEWAY, PORT = "172.31.255.254", 5000  # the last address of moto's default VPC, 172.31.0.0/16
QUEUES = "AWS Batch is ours, by AWS's pages and model: its containers are processes, and its queue has no other jobs."
HOST_FAILED = "Server.InternalError: Internal error"
SPOT_TAKEN = "Server.SpotInstanceTermination: Spot instance termination"
NOTICE_S = 120.0


@contextmanager
def opened(job: RehearsedJob, folder: Path, log: RequestLog) -> Iterator[Ec2]:
    """Run EC2 and its nodes inside the block, and remove them afterwards.  Raises NotSetUp, SettingsError."""
    accounts.check_ec2(job)
    account = Ec2Account(job.region)
    with ExitStack() as stack:
        stack.enter_context(patched(account.rules))
        accounts.fill_ec2(account, job)
        for region in job.regions[1:]:
            accounts.fill_other_region(Ec2Account(region, rules=account.rules), job)
        accounts.grant(account.rules.access, account.id, job, "node", KEY, TOKEN)
        accounts.grant(account.rules.access, account.id, job, "controller", CONTROLLER_KEY, CONTROLLER_TOKEN)
        machines = stack.enter_context(_machines(folder))
        machines.check_aws_cli()
        account.rules.address = machines.address
        tokens = account.rules.access.tokens
        port = inside = stack.enter_context(served(log, tokens))
        if machines.gateway != processes.LOCALHOST:
            inside = stack.enter_context(served(log, tokens, machines.gateway, PORT, machines.place))
        fargate = Fargate(account.rules, f"http://{processes.LOCALHOST}:{port}", folder / "fargate")
        if queue := job.options.get("queue"):
            make_fargate_queue(account.rules, queue, job.region, account.id, accounts.vcpus(account))
            account.rules.batch.start = fargate.start
        stack.callback(fargate.close)
        setup = NodeSetup(f"http://{machines.gateway}:{inside}")
        publishes = _publishes(job, machines)
        if publishes:
            account.ec2.snapshots.pop(accounts.placeholder(account, job), None)
        data = _data(job, folder, account, makes_images=machines.kind != processes.Processes.kind)
        is_shared = job.options.get("data_volume") == "multi-attach"
        watcher = Watcher(account, machines, setup, job.nodes, data, is_shared, job.regions)
        with closing(
            Ec2(
                job=job, account=account, machines=machines, watcher=watcher, node_kind=machines.kind,
                endpoint=fargate.endpoint, publishes=publishes, fargate=fargate,
            )
        ) as backend:  # fmt: skip
            fargate.on_line = lambda line: backend.on_line(line)  # which the display sets
            yield backend


@dataclass(kw_only=True)
class Ec2(RehearsedBackend):
    """EC2 and its nodes on this machine."""

    account: Ec2Account
    machines: Machines
    watcher: Watcher
    fargate: Fargate  # the launchers of a queue
    reclaimed: list[tuple[float, InstanceRun]] = field(default_factory=list)  # nodes that EC2 will reclaim, and when
    full: list[Node] = field(default_factory=list)  # nodes with a full disk
    has_route: bool = True  # the subnets have a route to the internet

    @property
    def differences(self) -> Sequence[str]:
        return (*self.machines.differences, *((QUEUES,) if self.job.options.get("queue") else ()))

    @property
    def node_runs(self) -> Mapping[str, InstanceRun]:
        return self.watcher.node_runs

    def poll(self) -> None:
        step(self.account.rules)  # of queues
        self.watcher.poll()
        self._reclaim()
        for node in list(self.full):
            if node.is_on:
                namespaces.fill_disk(node)  # again, as files may have been removed since

    def end_nodes(self) -> None:
        self.fargate.close()
        self.watcher.close()

    def await_end(self) -> int | None:
        jobs = [job for job in self.account.rules.batch.jobs.values() if job.request["jobName"] == self.job.name]
        if not jobs:
            return None
        while jobs[-1].status not in OVER and not self.trouble:
            time.sleep(POLL_S)
        last = jobs[-1].last
        code = last.exit_code if last else None
        return Exit.MACHINE if code is None else code

    def ranks(self) -> Mapping[str, int]:
        cluster = self.account.s3(f"jobs/{self.job.name}/cluster.json", self.job.bucket) or {"nodes": ()}
        return {row["instance"]: row["rank"] for row in cluster["nodes"]}

    def prepare(self, fault: Fault) -> str | None:
        match fault.kind:
            case "no-capacity":
                return self._close_zone(fault)
            case "no-route":
                self.account.remove_internet_route()
                self.has_route = False
                return "the subnets have no route to the internet"
            case "sick-node":
                self.watcher.sick = fault.number
                return f"the GPU of the last node is broken, {fault.number} times in all"
            case "controller-killed" if not self.job.options.get("queue"):
                raise SettingsError(f"--inject {fault}: only a job in a queue has a launcher there; add --queue demo.")
            case "spot-notice" if not self.job.options.get("spot"):
                raise SettingsError(f"--inject {fault}: only spot instances get a notice; add --spot.")
            case "disk-full":
                self._need_namespaces(fault, "a node with its own disk")
                self.watcher.setup = replace(self.watcher.setup, has_own_disk=True)
            case "slow-network":
                self._need_namespaces(fault, "nodes with their own network")
                if why := why_not_slow():
                    raise SettingsError(f"--inject {fault}: this machine {why}.")
                self.watcher.setup = replace(self.watcher.setup, rate=fault.where)
                return f"every node sends and receives at most {fault.where}"
        return None

    def _close_zone(self, fault: Fault) -> str:
        if not fault.where.startswith("zone-"):
            if fault.where not in self.job.regions:
                raise SettingsError(f"--inject {fault}: the job may run in {', '.join(self.job.regions)}.")
            self.account.rules.capacity |= dict.fromkeys(accounts.zones(Ec2Account(fault.where)), 0)
            return f"no capacity in {fault.where}"
        zone, zones = self.account.region + fault.where.removeprefix("zone-"), accounts.zones(self.account)
        if zone not in zones:
            raise SettingsError(f"--inject {fault}: the zones of {self.account.region} are {', '.join(zones)}.")
        self.account.rules.capacity[zone] = 0
        return f"no capacity in {zone}"

    def _need_namespaces(self, fault: Fault, needed: str) -> None:
        if not isinstance(self.machines, namespaces.NodeNetwork):
            why = namespaces.why_not_here()
            raise SettingsError(f"--inject {fault}: needs {needed}; here nodes are processes, because that {why}.")

    def inject(self, fault: Fault) -> str | None:
        if fault.kind == "controller-killed":
            return "the launcher in the queue was killed" if self.fargate.kill() else None
        running = [run for run in self.node_runs.values() if run.ended is None]
        if not running:
            return None
        if fault.kind == "disk-full":
            return self._fill_disk(running)
        last = running[-1]
        if fault.kind == "node-dies":
            last.node.power_off()
            self.account.kill(last.name, HOST_FAILED)
            return f"{last.name} died"
        if last.node.imds is None:
            return None
        last.node.imds.give_spot_notice()
        self.reclaimed.append((time.monotonic() + NOTICE_S, last))
        return f"{last.name} got the two-minute notice"

    def _fill_disk(self, running: Sequence[InstanceRun]) -> str:
        """Fill the disk of the node with the lowest rank."""
        ranks = self.ranks()
        head = min(running, key=lambda run: ranks.get(run.name, len(running)))
        namespaces.fill_disk(head.node)
        self.full.append(head.node)
        return f"the disk of {head.name} is full"

    def repair(self) -> str | None:
        if not self.has_route:
            self.account.add_internet_route()
            self.has_route = True
            return "the subnets have their route to the internet again"
        if not self.full:
            return None
        self.full.clear()
        return "the disk has free space again"

    def phase_starts(self, requests: Sequence[Request]) -> Mapping[str, float | None]:
        exits = [request.at for request in requests if _is_exit_record(request)]
        return {
            "provision": first(requests, "PutObject"),
            "boot": min((run.began for run in self.node_runs.values()), default=None),
            "rendezvous": first(requests, "CreateLogStream", by_launcher=False),
            "tear down": max(exits, default=first(requests, "TerminateInstances")),
        }

    def _reclaim(self) -> None:
        """End the spot nodes whose two minutes are over."""
        for due, run in list(self.reclaimed):
            if time.monotonic() > due and run.ended is None:
                self.reclaimed.remove((due, run))
                self.account.kill(run.name, SPOT_TAKEN)


def _is_exit_record(request: Request) -> bool:
    return not request.by_launcher and request.operation == "PutObject" and "/exits/" in request.path


@contextmanager
def _machines(folder: Path) -> Iterator[Machines]:
    """Run nodes in namespaces if possible, else as processes."""
    if namespaces.why_not_here() is None:
        with namespaces.node_network(folder / "nodes", f"{GATEWAY}/16") as network:
            yield network
    elif why := processes.why_not_here():
        raise SettingsError(f"this machine cannot run nodes: a rehearsal {why}.")
    else:
        with processes.processes(folder / "nodes") as machines:
            yield machines


def _publishes(job: RehearsedJob, machines: Machines) -> bool:
    """Whether the data are published into a snapshot block by block, for nodes that can mount it."""
    has_other_source = job.options.get("data_s3") or job.options.get("data_snapshot") or job.train.data_url
    return (
        job.is_published
        and accounts.brings_data(job)
        and not has_other_source
        and machines.kind != processes.Processes.kind
    )


def _data(job: RehearsedJob, folder: Path, account: Ec2Account, makes_images: bool) -> Callable[[str], Volume | None]:
    """A function that creates a node's data volume.  makes_images: as a file system, else as the folder itself."""

    def volume(name: str) -> Volume | None:
        if job.data is None:
            return None
        if not makes_images:
            return Volume(name, job.data.resolve())
        if (published := ebs.snapshot_of(account, name)) is not None:
            return _from_blocks(published, name, folder)
        image = folder / "data.img"
        if not image.exists():
            size = sum(file.stat().st_size for file in job.data.rglob("*") if file.is_file())
            Volume.of(job.data, name, image, mib=32 + 2 * (size >> 20))
        return Volume(name, image)

    return volume


def _from_blocks(published: EBSSnapshot, name: str, folder: Path) -> Volume:
    """A volume with the blocks that were sent to AWS, and holes elsewhere."""
    image = folder / f"{published.snapshot_id}.img"
    if not image.exists():
        with image.open("wb") as file:
            ebs.write_volume(published, file, fills=False)
    return Volume(name, image)
