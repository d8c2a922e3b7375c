"""What nodes write into the job folder: boot progress, and exit records, from which the outcome follows."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from launch.aws.client import Aws
from launch.aws.names import TIME, Folder
from launch.aws.progress import resumed_by_name
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.terminal import Say
from launch.ec2.backend import command
from trainer.contract import FAILED_CHECK, STOPPED, Exit
from trainer.outcome import Outcome, state_of

Record = Mapping[str, Any]

# Steps of records of nodes that did not fail: AWS reclaimed them, or a user ended them.
TAKEN = ("spot", "signal")
# The step of a node that failed its health check; it is replaced once.
HEALTH = "health"
# The reason if a node's training printed no error; another node's record may be clearer.
SILENT = "the training gave no reason"

DONE = Outcome("done", Exit.DONE)


def stopped(reason: str) -> Outcome:
    return Outcome("stopped", STOPPED, reason)


def at_time_limit(job: str) -> Outcome:
    reason = f"the time limit ended the job; to resume, start it again with --job-name {job} and a higher --max-hours"
    return Outcome("interrupted", Exit.INTERRUPTED, reason)


def is_failure(record: Record) -> bool:
    return record["code"] != Exit.DONE and record["step"] not in TAKEN


def sentence_of(record: Record) -> str:
    """A sentence on how the record's node failed its health check."""
    reason = record["reason"].rpartition(FAILED_CHECK)[2].removesuffix("; take another machine.").rstrip(".")
    return f"node {_rank_text(record)} ({record['instance']}){FAILED_CHECK}{reason}"


def clearest(failures: Collection[Record]) -> Record:
    """The most informative record: neither one that only lost connection to the others, nor one without a reason."""
    return min(failures, key=lambda r: (r["code"] == Exit.MACHINE, is_silent(r), rank_of(r)))


def is_silent(record: Record) -> bool:
    """Whether the node's training printed no error.  Without restarts left, boot.sh prefixes the reason."""
    return bool(record["reason"].endswith(SILENT))


def of_failure(record: Record) -> Outcome:
    """The outcome of a job that failed because of this record's node."""
    code, rank = record["code"], _rank_text(record)
    if record["step"] == HEALTH:
        return Outcome(state_of(code), code, sentence_of(record))
    where = f"node {rank} ({record['instance']}) failed in step {record['step']} with exit code {code}"
    remedy = "; --root-gb sets the size of its disk" if code == Exit.DISK else ""
    return Outcome(state_of(code), code, f"{where}: {record['reason'].rstrip('.')}{remedy}")


def of_records(records: Collection[Record]) -> Outcome | None:
    """The outcome by the nodes' records; None if no node has failed or finished."""
    failures = [record for record in records if is_failure(record)]
    if failures:
        return of_failure(clearest(failures))
    if any(record["code"] == Exit.DONE for record in records):
        return DONE
    return None


def completed(outcome: Outcome, job: str, started: datetime | None, now: datetime, usd: float | None) -> Outcome:
    """`outcome` with the job's name, duration and cost, if it ends now."""
    seconds = max(0.0, (now - started).total_seconds()) if started else None
    reason = resumed_by_name(outcome.reason, job)
    return replace(outcome, reason=reason, job=job, ended=now.strftime(TIME), seconds=seconds, usd=usd)


def _rank_text(record: Record) -> str:
    return "?" if record["rank"] is None else str(record["rank"])


def rank_of(record: Record) -> int:
    """The rank in a record; -1 if the node did not know it."""
    return -1 if record["rank"] is None else int(record["rank"])


# The boot steps, in order; "" for a node without any.
STEPS = {
    "": "not reported yet",
    "started": "waiting for the others",
    "data": "getting the data",
    "image": "getting the image",
    "train": "training",
}
# After so long without a new step the user is warned; boot.sh has its own limits.
SLOW_S = 600.0
CHECK_EVERY_S = 60.0
CHECKED_AT_ONCE = 100  # https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstanceStatus.html
CONSOLE_LINES = 15


def marks(aws: Aws, folder: Folder) -> dict[str, str]:
    """The last boot step of each instance that has reported one, in this or an earlier start."""
    order, steps = list(STEPS), dict[str, str]()
    for item in aws.objects(folder.bucket, folder.boot):
        instance, _, step = item["Key"].removeprefix(folder.boot).partition(".")
        step = step if step in STEPS else "started"  # the boot log: it has reported
        steps[instance] = max(steps.get(instance, ""), step, key=order.index)
    return steps


def first_marks(folder: Folder, listed: Iterable[Mapping[str, Any]], since: datetime | None) -> dict[str, datetime]:
    """When the first node reached each boot step after `since`, by the `listed` objects of the job folder."""
    found = dict[str, datetime]()
    for item in listed:
        step, at = item["Key"].rpartition(".")[2], item["LastModified"]
        if item["Key"].startswith(folder.boot) and step in STEPS and (since is None or at >= since):
            found[step] = min(at, found.get(step, at))
    return found


def console(aws: Aws, instance: str) -> list[str]:
    """The last lines of a node's console, or why there are none.  EC2 keeps it for an hour after termination."""
    try:
        output = aws.call("ec2", "GetConsoleOutput", {"InstanceId": instance}).get("Output", "")
    except AwsError as error:
        return [f"its console cannot be read: {error}"]
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    return lines[-CONSOLE_LINES:] or ["EC2 has no console output for it"]


@dataclass
class Booting:
    """Reports the nodes' boot progress until all of them train, and nodes that EC2 finds impaired."""

    aws: Aws
    folder: Folder
    clock: Clock
    say: Say
    _known: dict[str, str] = field(default_factory=dict)
    _summary: str = ""
    _changed_at: float = 0.0
    _checked_at: float = 0.0
    _reported: set[str] = field(default_factory=set)

    def report(self, members: Mapping[str, Any]) -> frozenset[str]:
        """Report changes; return the instances that have ever reported.  members: cluster.json.  Raises AwsError."""
        nodes = members["nodes"]
        if any(self._step(row) != "train" for row in nodes):
            self._known = marks(self.aws, self.folder)
            self._report_steps(nodes)
        self._check(nodes)
        return frozenset(self._known)

    def _step(self, row: Mapping[str, Any]) -> str:
        return self._known.get(row["instance"], "")

    def _report_steps(self, nodes: Sequence[Mapping[str, Any]]) -> None:
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
        """Read EC2's status checks of the nodes, once a minute."""
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
        except AwsError as error:  # informational only
            if error.aws_code != "InvalidInstanceID.NotFound":  # it has just terminated
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
        """Print the warning once per `what`."""
        if what not in self._reported:
            self.say(f"warning: {text}")
        self._reported.add(what)
