"""How a job ended: what the exit records of its nodes tell.  Pure; see infra/ec2/boot.sh for the records."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from launch.core.names import TIME
from trainer.contract import STOPPED, Exit
from trainer.outcome import Outcome, state_of

Record = Mapping[str, Any]

# Steps of a record that say nothing against its node: AWS took it back, or somebody ended it.
TAKEN = ("spot", "signal")
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


def clearest(failures: Collection[Record]) -> Record:
    """The record that tells most about a failure: not one that merely lost the others, nor a silent one."""
    return min(failures, key=lambda r: (r["code"] == Exit.MACHINE, r["reason"] == SILENT, rank_of(r)))


def of_failure(record: Record) -> Outcome:
    """The end of a job because of this record's node."""
    code, rank = record["code"], "?" if record["rank"] is None else record["rank"]
    where = f"node {rank} ({record['instance']}) failed in step {record['step']} with exit code {code}"
    remedy = "; --root-gb sets the size of its disk" if code == Exit.DISK else ""
    return Outcome(state_of(code), code, f"{where}: {record['reason'].rstrip('.')}{remedy}")


def of_records(records: Collection[Record]) -> Outcome | None:
    """What the records of a job's nodes tell; None where none of them failed or was done."""
    failures = [record for record in records if is_failure(record)]
    if failures:
        return of_failure(clearest(failures))
    if any(record["code"] == Exit.DONE for record in records):
        return DONE
    return None


def completed(outcome: Outcome, job: str, started: datetime | None, now: datetime, usd: float | None) -> Outcome:
    """`outcome` of a job that ends now, with its name, time and cost."""
    seconds = max(0.0, (now - started).total_seconds()) if started else None
    return replace(outcome, job=job, ended=now.strftime(TIME), seconds=seconds, usd=usd)


def rank_of(record: Record) -> int:
    """The rank of a node, -1 for one that does not know it."""
    return -1 if record["rank"] is None else int(record["rank"])
