"""Earlier jobs of a script: what they tell of the next one's time, and of its restarts.  Pure.

A script says nothing of its time before it has run, and how it scales is not known.  So only a job that was the same
in all that counts gives a number; of another one the plan tells how long it took, and in what it differed.  A job that
was cut short counts by its pace, if its metrics told how far it was: see trainer.script.pace.
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
# The options beside machines that a script's time depends on: its processes on each of them, its data, what it finds in
# its environment, and the network between its nodes; the last two lines are Slurm's.
COUNTING = (
    "nproc_per_node", "distribution", "input_mode", "data", "data_volume", "data_s3", "data_snapshot",
    "environment", "image", "ami", "efa", "placement_group", "encrypt_traffic", "profiler",
    "gres", "cpus_per_task", "mem", "constraint", "nodelist", "exclusive", "sbatch",
    "launcher", "setup", "container_image", "container_edf",
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """What a script's time depends on.  machines: "2 x g5.2xlarge", empty where it could be one of several types.

    record: see Training.record, with the folder of the source in which it starts; options: those of COUNTING.
    """

    digest: str
    record: Mapping[str, Any]
    machines: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Earlier:
    """A job that has ended.  kept: the names of files in its run folder, of which there may be more.

    seconds: of the whole training; done: the share of it at its end, below 1 where that came early: see took().
    """

    job: str
    setting: Setting
    seconds: float
    kept: tuple[str, ...] = ()
    done: float = 1.0

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
    """The seconds that the whole training of a job takes that has ended, and the share of it that was done.

    Of one that was cut short: what it took until it last told how far it was, and the rest at its pace.  0 where that
    is not known.
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
    """How long before its end a job last told how far it was: it may have hung, or been saving."""
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
    """The setting in a job.json; None where it tells of no script, or cannot be read: others may write it."""
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


def told(quote: Quote, train: Training, now: Setting, earlier: Sequence[Earlier], *, has_wait: bool = False) -> Quote:
    """`quote` with the time of a script, as its user or an earlier job tells; our trainer's is forecast, and stays.

    earlier: the newest first; has_wait: whether their times begin with a wait for machines, which nobody pays.
    """
    if train.told_s is not None:
        return replace(quote, told_s=train.told_s)
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
    return replace(quote, told_s=closest.seconds, told_by=by, told_has_wait=has_wait, notes=notes)


def _differences(then: Setting, now: Setting) -> list[str]:
    """In what two settings differ, in words that follow "with"."""
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
    """Whether it is the same file of its source there: of one repository several may have a train.py."""
    now = _record(train)
    return all(setting.record.get(name) == now.get(name) for name in ("script", "cwd"))


def restarts(earlier: Sequence[Earlier]) -> tuple[str, str]:
    """Whether a restart continues or starts over, as a code and in words, by what the newest earlier job has kept."""
    goes_on = "continues from what it kept in $DDP_RUN_DIR"
    if not earlier:
        return "anew", f"starts over, unless it {goes_on} (trainer.kit does)"
    newest = earlier[0]
    if any(name.startswith(f"{CHECKPOINTS}/step-") for name in newest.kept):
        return "checkpoint", f"continues from its newest checkpoint: {newest.job} saved some with trainer.kit"
    if newest.kept:
        some = ", ".join(one_line(name, 40) for name in newest.kept[:3])
        more = ", ..." if len(newest.kept) > 3 else ""
        return "kept", f"starts over, unless it continues from what {newest.job} kept in $DDP_RUN_DIR: {some}{more}"
    return "anew", f"starts over: {newest.job} kept no file in $DDP_RUN_DIR"
