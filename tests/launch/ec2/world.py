"""A launch under test: an account, a clock whose sleeps are when things happen, and what was said."""

import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache

from launch.aws.client import Aws
from launch.aws.instances.inventory import find
from launch.core.clock import Clock
from launch.core.plan import Plan
from launch.ec2.backend import Runtime
from launch.ec2.planner import Launch
from launch.ec2.regions import plan_job
from launch.ec2.start import attach, launch
from launch.ec2.stop import Target, remove
from tests.launch.ec2.account import Account
from tests.launch.ec2.known import NAME
from tests.launch.ec2.known import job as job_called
from trainer.outcome import Outcome, parse

EARLIER = "earlier"  # the job whose nodes another one may take over
Event = Callable[[], None]


@cache
def one_aws() -> Aws:
    """One for all commands of all stages: they keep nothing between calls, and clients take as long as ten calls."""
    return Aws(Account.region)


@dataclass
class Stage:
    """events: what happens at each sleep, one after the other; after the last one nothing happens any more.

    where: options of the next command; always: of each.
    """

    account: Account
    events: Iterator[Event] = field(default_factory=lambda: iter(()))
    said: list[str] = field(default_factory=list)
    may_detach: bool = False
    where: dict[str, object] = field(default_factory=dict)
    slept_s: float = 0.0
    always: dict[str, object] = field(default_factory=dict)
    jobs: tuple[str, ...] = (NAME,)

    def __post_init__(self) -> None:
        self.account.rules.now = self.clock().now

    @property
    def aws(self) -> Aws:
        return one_aws()

    def clock(self) -> Clock:
        return Clock(now=lambda: time.time() + self.slept_s, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.slept_s += seconds
        assert self.slept_s < 7_200, "nothing ever happens:\n" + "\n".join(self.said[-20:])
        next(self.events, lambda: None)()

    def plan(self) -> Plan[Launch]:
        """Looks everything up and plans, as the command line does.  Raises the plan's problem."""
        plan = plan_job(job_called(**{**self.always, **self.where}), self.runtime())
        if plan.problem:
            raise plan.problem
        return plan

    def plan_anyhow(self) -> Plan[Launch]:
        """The plan, also with problems."""
        return plan_job(job_called(**{**self.always, **self.where}), self.runtime())

    def perform(self, plan: Plan[Launch]) -> int:
        outcome = launch(plan, self.runtime())
        return outcome.exit_code if outcome else 0

    def runtime(self) -> Runtime:
        return Runtime(
            lambda _region: self.aws,
            self.clock(),
            self.said.append,
            lambda: self.may_detach,
            {},
            approve=lambda what: None,
            results=self.account.results,
        )

    def launch(self) -> int:
        """python -m launch.ec2 ...; returns the exit code."""
        outcome = launch(self.plan(), self.runtime())
        return outcome.exit_code if outcome else 0

    def launch_anyhow(self) -> int:
        """The same where a plan's problem may pass while the user waits, as regions.Place.problem judges."""
        outcome = launch(plan_job(job_called(**{**self.always, **self.where}), self.runtime()), self.runtime())
        return outcome.exit_code if outcome else 0

    def attach(self) -> int:
        """python -m launch.ec2 attach JOB; returns the exit code."""
        outcome = attach(self.plan(), self.runtime())
        return outcome.exit_code if outcome else 0

    def stop(self, *jobs: str) -> None:
        """python -m launch.ec2 stop JOB, for each of these jobs, or of those of the stage."""
        for job in jobs or self.jobs:
            remove(Target(self.aws, job, find(self.aws)), self.clock(), self.said.append)

    def end_nodes(self, code: int = 0, step: str = "train", reason: str = "done") -> Event:
        """An event: every node of cluster.json leaves its exit record and is gone."""

        def end() -> None:
            if code == 0:
                self.account.put_json(f"jobs/{NAME}/run/model.pt", "the weights")
            for row in self.cluster["nodes"]:
                self.leave_record(row["instance"], code, step, reason)

        return end

    def stay_warm(self, job: str = NAME, code: int = 0, minutes: int = 30) -> Event:
        """An event: the nodes of the job leave their exit records and wait for a next job, as boot.sh does."""

        def stay() -> None:
            found = self.account.s3(f"jobs/{job}/cluster.json")
            assert found is not None
            for row in found["nodes"]:
                record = {"instance": row["instance"], "rank": row["rank"], "generation": 1, "code": code,
                          "step": "train", "reason": "done", "restarts": 0, "at": self.clock().now(),
                          "warm_until": self.clock().now() + 60 * minutes}  # fmt: skip
                self.account.put_json(f"jobs/{job}/exits/{row['instance']}.json", record)

        return stay

    def leave_warm(self, **where: object) -> None:
        """The job EARLIER has run and ended, and its nodes wait for a next one."""
        self.jobs = (NAME, EARLIER)
        self.where = {"job_name": EARLIER, "keep_warm": 30, "detach": True, **where}
        self.launch()
        self.stay_warm(EARLIER)()
        del self.where["detach"]
        assert self.attach() == 0
        self.where = {}

    def leave_record(self, instance: str, code: int, step: str, reason: str) -> None:
        """What boot.sh writes before it turns the node off."""
        record = {"instance": instance, "rank": 0, "generation": 1, "code": code, "step": step, "reason": reason,
                  "restarts": 0, "at": self.clock().now()}  # fmt: skip
        self.account.put_json(f"jobs/{NAME}/exits/{instance}.json", record)
        self.account.kill(instance, "Client.InstanceInitiatedShutdown: Instance initiated shutdown")

    def report(self, step: str = "train", *ranks: int) -> Event:
        """An event: nodes mark how far they have come, as boot.sh does.  ranks: of those that do; none: all."""

        def mark() -> None:
            for row in self.cluster["nodes"]:
                if not ranks or row["rank"] in ranks:
                    self.account.put_json(f"jobs/{NAME}/boot/{row['instance']}.{step}", "")

        return mark

    def lose_node(self, rank: int) -> Event:
        """An event: AWS takes the node with this rank back."""
        return lambda: self.account.kill(self.cluster["nodes"][rank]["instance"])

    def end_first_node_at_once(self, reason: str) -> None:
        """While the next launch waits for EC2 to list its nodes, one of them ends for `reason`."""
        self.account.slow.hidden, self.account.slow.pending = 1, 3
        self.events = iter([lambda: self.account.kill(self.account.nodes[0].id, reason)])

    @property
    def outcome(self) -> Outcome | None:
        """outcome.json in the job's folder."""
        content = self.account.s3(f"jobs/{NAME}/outcome.json")
        return parse(json.dumps(content)) if content is not None else None

    @property
    def cluster(self) -> dict[str, object]:
        """cluster.json as the nodes read it."""
        found = self.account.s3(f"jobs/{NAME}/cluster.json")
        assert found is not None
        return found


def idle(looks: int) -> list[Event]:
    """So many sleeps in which nothing happens."""
    return list(itertools.repeat(lambda: None, looks))
