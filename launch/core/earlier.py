"""Estimate a script's time and its restarts from earlier jobs of the same script.  Pure.

The time of a script is unknown before it has run, and so is how it scales.  So only a job with equal settings gives
a number; for any other the plan states how long it took and how it differed.  A job that was cut short counts by its
pace, if its metrics include its progress: see trainer.script.pace.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from launch.core.estimate.forecast import hours
from launch.core.quote import Quote
from launch.core.training.base import Training
from launch.core.training.options import training_from
from trainer.contract import CHECKPOINTS
from trainer.errors import SettingsError, one_line
from trainer.outcome import Outcome
from trainer.script.pace import Pace

NOT_KNOWN = "not known before the script has run once; give an estimate with --expected-hours"
# The options beside machines that a script's time depends on: its processes on each of them, its data, its environment,
# and the network between its nodes; the last two lines are Slurm's.
COUNTING = (
    "nproc_per_node", "distribution", "input_mode", "data", "data_volume", "data_s3", "data_snapshot",
    "environment", "image", "ami", "efa", "placement_group", "encrypt_traffic", "profiler",
    "gres", "cpus_per_task", "mem", "constraint", "nodelist", "exclusive", "sbatch",
    "launcher", "setup", "container_image", "container_edf",
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """What a script's time depends on."""

    digest: str
    record: Mapping[str, Any]  # see Training.record, with the folder of the source in which it starts
    machines: str  # "2 x g5.2xlarge"; empty if it could be one of several types
    options: Mapping[str, Any]  # those of COUNTING


@dataclass(frozen=True)
class Earlier:
    """A job that has ended."""

    job: str
    setting: Setting
    seconds: float  # of the whole training, see took()
    kept: tuple[str, ...] = ()  # names of files in its run folder; not always all of them
    done: float = 1.0  # share of the training that was done at its end

    @property
    def in_words(self) -> str:
        """How long it took, to follow its name."""
        part = "" if self.done == 1 else f", of which {self.done:.0%} was done,"
        return f"{self.verb} {hours(self.seconds / 3600)}{part}"

    @property
    def verb(self) -> str:
        return "took" if self.done == 1 else "would have taken"

    @property
    def cut(self) -> str:
        """How its time is known, if it was cut short."""
        return "" if self.done == 1 else f", by its pace until it ended with {self.done:.0%} done"


def took(outcome: Outcome | None, pace: Pace | None) -> tuple[float, float]:
    """Seconds of an ended job's whole training, and the share of it that was done; zeros if not known.

    For a job that was cut short: its time until its last progress, and the rest at its pace.
    """
    if outcome is None or not outcome.seconds or outcome.seconds < 0:
        return 0.0, 0.0
    if outcome.state == "done":
        return outcome.seconds, 1.0
    rest = pace.rest_s if pace else None
    if pace is None or rest is None:
        return 0.0, 0.0
    return max(pace.seconds, outcome.seconds - _silence_s(outcome, pace)) + rest, pace.done


def _silence_s(outcome: Outcome, pace: Pace) -> float:
    """Seconds from a job's last progress to its end: it may have hung, or been saving."""
    try:
        return max(0.0, datetime.fromisoformat(outcome.ended).timestamp() - pace.at)
    except (ValueError, OverflowError):
        return 0.0


def setting_of(train: Training, machines: str, where: Mapping[str, Any]) -> Setting:
    """The setting of a job.  where: the backend's options, as JSON has them."""
    return Setting(train.digest, _record(train), machines, {name: where.get(name) for name in COUNTING})


def _record(train: Training) -> dict[str, Any]:
    return {**train.record, "cwd": train.cwd}


def setting_in(spec: Mapping[str, Any]) -> Setting | None:
    """The setting in a job.json; None if it has no script or cannot be read."""
    try:
        where = spec["where"]
        types = where["instance_type"]
        names = types.split(",") if isinstance(types, str) else types
        if type(where["nodes"]) is not int or not all(isinstance(name, str) for name in names):
            return None
        machines = f"{where['nodes']} x {names[0]}" if len(names) == 1 else ""
        found = setting_of(training_from(spec["train"]), machines, where)
    except (SettingsError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None
    return found if found.digest else None


def with_time(
    quote: Quote, train: Training, now: Setting, earlier: Sequence[Earlier], *, has_wait: bool = False
) -> Quote:
    """Add a script's time to `quote`: the user's estimate, or an earlier job's time.

    The built-in trainer has a forecast instead, and its quote is returned as it is.
    earlier: the newest first; has_wait: whether their times begin with a wait for machines, which is not billed.
    """
    if train.expected_s is not None:
        return replace(quote, estimate_s=train.expected_s)
    if not train.digest:
        return quote
    if not earlier:
        return replace(quote, why_unknown=NOT_KNOWN)
    closest = min(earlier, key=lambda one: (len(_differences(one.setting, now)), one.done < 1))
    differences = _differences(closest.setting, now)
    if differences:
        how = f"{closest.in_words} with {' and '.join(differences)}"
        return replace(quote, why_unknown=f"not known: {closest.job} {how}; give an estimate with --expected-hours")
    notes = quote.notes
    if quote.most_s is not None and closest.seconds > quote.most_s and not has_wait:
        notes = (*notes, f"{closest.job} {closest.verb} longer than this job's time limit; raise it")
    wait = " with its wait for instances" if has_wait else ""
    by = f"as {closest.job} {closest.verb}{wait}{closest.cut}, the same source and arguments on {now.machines}"
    return replace(quote, estimate_s=closest.seconds, estimate_from=by, estimate_has_wait=has_wait, notes=notes)


def _differences(then: Setting, now: Setting) -> list[str]:
    """How two settings differ, in words that follow "with"."""
    found = list[str]()
    if then.digest != now.digest:
        found.append("other files in its source")
    if then.record["args"] != now.record["args"]:
        given = shlex.join(map(str, then.record["args"]))
        found.append(f"other arguments ({one_line(given, 100) or 'none'})")
    if _rest(then) != _rest(now):
        found.append("other settings")
    if then.machines != now.machines or not now.machines:
        found.append(f"other machines ({one_line(then.machines, 60) or 'of one of several types'})")
    return found


def _rest(setting: Setting) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    return {name: value for name, value in setting.record.items() if name != "args"}, setting.options


def is_same_script(setting: Setting, train: Training) -> bool:
    """Whether both run the same file of their source: a repository may have several train.py."""
    now = _record(train)
    return all(setting.record.get(name) == now.get(name) for name in ("script", "cwd"))


def restarts(earlier: Sequence[Earlier]) -> tuple[str, str]:
    """Whether a restart continues or starts over, as a code and in words, judging by what the newest job has kept."""
    continues = "continues from what it kept in $DDP_RUN_DIR"
    if not earlier:
        return "anew", f"starts over, unless it {continues} (trainer.kit does)"
    newest = earlier[0]
    if any(name.startswith(f"{CHECKPOINTS}/step-") for name in newest.kept):
        return "checkpoint", f"continues from its newest checkpoint: {newest.job} saved some with trainer.kit"
    if newest.kept:
        some = ", ".join(one_line(name, 40) for name in newest.kept[:3])
        more = ", ..." if len(newest.kept) > 3 else ""
        return "kept", f"starts over, unless it continues from what {newest.job} kept in $DDP_RUN_DIR: {some}{more}"
    return "anew", f"starts over: {newest.job} kept no file in $DDP_RUN_DIR"
