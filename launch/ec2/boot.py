"""How far nodes have booted: the marks that infra/ec2/boot.sh leaves in the job folder, EC2's status checks."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from launch.aws.client import Aws
from launch.aws.names import Folder
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.terminal import Say
from launch.ec2.names import command

# The steps, in order; "" is a node that has left no mark.
STEPS = {
    "": "not reported yet",
    "started": "waiting for the others",
    "data": "getting the data",
    "image": "getting the image",
    "train": "training",
}
# After so long without a new step the user is told; boot.sh has its own limits.
SLOW_S = 600.0
CHECK_EVERY_S = 60.0
CHECKED_AT_ONCE = 100  # https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstanceStatus.html
CONSOLE_LINES = 15


def marks(aws: Aws, folder: Folder) -> dict[str, str]:
    """The last step of each instance that has left a mark, in this start or an earlier one."""
    query = {"Bucket": folder.bucket, "Prefix": folder.boot}
    listed = aws.pages("s3", "ListObjectsV2", "Contents", query)
    order, steps = list(STEPS), dict[str, str]()
    for item in listed:
        instance, _, step = item["Key"].removeprefix(folder.boot).partition(".")
        step = step if step in STEPS else "started"  # its boot log: it has reported
        steps[instance] = max(steps.get(instance, ""), step, key=order.index)
    return steps


def console(aws: Aws, instance: str) -> list[str]:
    """The last lines of a node's console, which EC2 keeps for an hour after its end; or why there are none."""
    try:
        output = aws.call("ec2", "GetConsoleOutput", {"InstanceId": instance}).get("Output", "")
    except AwsError as error:
        return [f"its console cannot be read: {error}"]
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    return lines[-CONSOLE_LINES:] or ["EC2 has no console output for it"]


@dataclass
class Booting:
    """Reports how far the nodes of a job have booted until all of them train, and which ones EC2 finds impaired."""

    aws: Aws
    folder: Folder
    clock: Clock
    say: Say
    _known: dict[str, str] = field(default_factory=dict)
    _summary: str = ""
    _changed_at: float = 0.0
    _checked_at: float = 0.0
    _told: set[str] = field(default_factory=set)

    def look(self, members: Mapping[str, Any]) -> frozenset[str]:
        """The instances that have ever reported.  members: cluster.json.  Raises AwsError."""
        nodes = members["nodes"]
        if any(self._step(row) != "train" for row in nodes):
            self._known = marks(self.aws, self.folder)
            self._tell(nodes)
        self._check(nodes)
        return frozenset(self._known)

    def _step(self, row: Mapping[str, Any]) -> str:
        return self._known.get(row["instance"], "")

    def _tell(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        counts, now = Counter(map(self._step, nodes)), self.clock.now()
        summary = ", ".join(f"{counts[step]} {words}" for step, words in STEPS.items() if counts[step])
        if summary != self._summary:
            self.say(f"nodes: {summary}")
            self._summary, self._changed_at = summary, now
        elif now - self._changed_at > SLOW_S:
            for row in nodes:
                if self._step(row) != "train":
                    self._report_slow(row, now)

    def _report_slow(self, row: Mapping[str, Any], now: float) -> None:
        minutes = round((now - self._changed_at) / 60)
        shell = command("ssh", self.folder.job, self.aws.region, "--node", str(row["rank"]))
        words = f"node {row['rank']} ({row['instance']}) has been {STEPS[self._step(row)]} for {minutes} min"
        self._warn(f"{row['instance']} {self._step(row)}", f"{words}; for a shell on it: {shell}")

    def _check(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        """Asks EC2 for its own checks of the nodes, once a minute."""
        now = self.clock.now()
        if now - self._checked_at < CHECK_EVERY_S:
            return
        self._checked_at, ranks = now, {row["instance"]: row["rank"] for row in nodes}
        instances = list(ranks)
        try:
            for start in range(0, len(instances), CHECKED_AT_ONCE):
                query = {"InstanceIds": instances[start : start + CHECKED_AT_ONCE]}
                for row in self.aws.pages("ec2", "DescribeInstanceStatus", "InstanceStatuses", query):
                    self._report_impaired(row, ranks[row["InstanceId"]])
        except AwsError as error:  # good to know, and no more
            if error.aws_code != "InvalidInstanceID.NotFound":  # one that has just ended
                self._warn("status", str(error))

    def _report_impaired(self, status: Mapping[str, Any], rank: int) -> None:
        failed = [name for name in ("SystemStatus", "InstanceStatus") if status[name]["Status"] == "impaired"]
        if failed:
            instance = status["InstanceId"]
            self._warn(
                f"{instance} impaired",
                f"EC2 finds node {rank} ({instance}) impaired ({', '.join(failed)}); if it makes no progress, end it, "
                f"and a new one replaces it: aws ec2 terminate-instances --instance-ids {instance} "
                f"--region {self.aws.region}",
            )

    def _warn(self, what: str, text: str) -> None:
        """Prints the text, once."""
        if what not in self._told:
            self.say(f"warning: {text}")
        self._told.add(what)
