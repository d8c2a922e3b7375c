"""How a job ended, from the exit records of its nodes.  Pure; see infra/ec2/boot.sh for the records."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from launch.aws.names import TIME
from launch.aws.progress import resumed_by_name
from trainer.contract import FAILED_CHECK, STOPPED, Exit
from trainer.outcome import Outcome, state_of

Record = Mapping[str, Any]

# Steps of a record that say nothing against its node: AWS took it back, or somebody ended it.
TAKEN = ("spot", "signal")
# The step of a node that failed its health check; it is replaced once.
HEALTH = "health"
# The reason of a node whose training printed no error; another node may know more.
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
    """How this record's node failed its health check, in one sentence."""
    reason = record["reason"].rpartition(FAILED_CHECK)[2].removesuffix("; take another machine.").rstrip(".")
    return f"node {_rank_text(record)} ({record['instance']}){FAILED_CHECK}{reason}"


def clearest(failures: Collection[Record]) -> Record:
    """The record that tells most about a failure: not one that merely lost the others, nor a silent one."""
    return min(failures, key=lambda r: (r["code"] == Exit.MACHINE, is_silent(r), rank_of(r)))


def is_silent(record: Record) -> bool:
    """Whether the node's training printed no error; without restarts left, boot.sh puts that in front."""
    return bool(record["reason"].endswith(SILENT))


def of_failure(record: Record) -> Outcome:
    """The end of a job because of this record's node."""
    code, rank = record["code"], _rank_text(record)
    if record["step"] == HEALTH:
        return Outcome(state_of(code), code, sentence_of(record))
    where = f"node {rank} ({record['instance']}) failed in step {record['step']} with exit code {code}"
    remedy = "; --root-gb sets the size of its disk" if code == Exit.DISK else ""
    return Outcome(state_of(code), code, f"{where}: {record['reason'].rstrip('.')}{remedy}")


def of_records(records: Collection[Record]) -> Outcome | None:
    """The outcome according to the records of a job's nodes; None if none of them failed or was done."""
    failures = [record for record in records if is_failure(record)]
    if failures:
        return of_failure(clearest(failures))
    if any(record["code"] == Exit.DONE for record in records):
        return DONE
    return None


def completed(outcome: Outcome, job: str, started: datetime | None, now: datetime, usd: float | None) -> Outcome:
    """`outcome` of a job that ends now, with its name, time and cost."""
    seconds = max(0.0, (now - started).total_seconds()) if started else None
    reason = resumed_by_name(outcome.reason, job)
    return replace(outcome, reason=reason, job=job, ended=now.strftime(TIME), seconds=seconds, usd=usd)


def _rank_text(record: Record) -> str:
    return "?" if record["rank"] is None else str(record["rank"])


def rank_of(record: Record) -> int:
    """The rank of a node, -1 for one that does not know it."""
    return -1 if record["rank"] is None else int(record["rank"])
