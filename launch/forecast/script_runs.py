"""What the runs of a script tell of its time, from the folders of sweeps.  Reads only."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from posixpath import isabs, normpath, relpath

from launch.core import backend as backends
from launch.core import catalog, runs
from launch.core.earlier import COUNTING, took
from launch.core.estimate.formulas import Layout
from launch.core.run import Run, number
from launch.forecast.options import ScriptOptions
from launch.forecast.samples import Sample, Samples, plain
from trainer import outcome as outcomes
from trainer.contract import PACE
from trainer.errors import SettingsError, one_line
from trainer.files import LARGEST_JSON, read_regular
from trainer.script.pace import Pace, parse

# Beside nodes and types: how many ranks a node has is in the layout.
OPTIONS = tuple(name for name in (*COUNTING, "gpu_type", "partition") if name != "nproc_per_node")
SHOWN = 5

Refused = list[tuple[str, str]]


def read(script: ScriptOptions, arguments: Sequence[str], places: Sequence[Path]) -> Samples:
    """The samples of the script's runs in and below `places`.  Raises SettingsError where there is none.

    arguments: of the script; none: those that all of its runs have.
    """
    wanted = f"-m {script.module}" if script.module else _spelt(str(script.script))
    if not places:
        raise SettingsError(f"how {wanted} scales is not known before it has run; {_remedy(script)}")
    found, unread = runs.readable(places)
    own = _with_arguments(_of_script(found, wanted, script, places[0]), wanted, arguments)
    refused: Refused = []
    samples = [sample for run in own if (sample := _sample(run, refused))]
    if not samples:
        run, why = refused[0]
        raise SettingsError(
            f"no run of {wanted} below {places[0]} tells how long it takes: {run} {why}; train it to its end once."
        )
    return Samples(f"{wanted} {_arguments_of(own[0])}".rstrip(), _without_cut(samples), tuple(refused), tuple(unread))


def _spelt(path: str) -> str:
    """A script as a run has it that was started here: ./train.py and train.py are one."""
    return normpath(relpath(path) if isabs(path) else path)


def _remedy(script: ScriptOptions) -> str:
    name = f"module: {script.module}" if script.module else f"script: {script.script}"
    return (
        "put this into scaling.yaml, run `python -m launch.sweep scaling.yaml`, and add --from-run "
        f"runs/sweep-scaling:\nbackend: ec2\n{name}\ngrid: {{instance_type: [g5.2xlarge], nodes: [1, 2]}}"
    )


def _of_script(found: Sequence[Run], wanted: str, script: ScriptOptions, place: Path) -> list[Run]:
    known = [run for run in found if run.is_script and isinstance(run.settings.get("args"), list)]
    own = [run for run in known if _script_of(run) == wanted]
    if own:
        return own
    others = sorted({one_line(_script_of(run), 60) for run in known})[:SHOWN]
    if others:
        raise SettingsError(f"{place} has no run of {wanted}; its runs are of {', '.join(others)}: name one of these.")
    raise SettingsError(
        f"{place} has no run of a script that says on what machines it ran, as those of sweeps do; {_remedy(script)}"
    )


def _script_of(run: Run) -> str:
    name = str(run.settings["script"])
    return name if name.startswith("-m ") else _spelt(name)


def _with_arguments(own: Sequence[Run], wanted: str, arguments: Sequence[str]) -> list[Run]:
    """The runs with these arguments; without any, all of them if they have the same."""
    by_words: dict[str, list[Run]] = {}
    for run in own:
        by_words.setdefault(_arguments_of(run), []).append(run)
    shown = ", or ".join(one_line(words, 100) or "none" for words in list(by_words)[:SHOWN])
    asked = shlex.join(arguments)
    if not arguments and len(by_words) > 1:
        raise SettingsError(
            f"the runs of {wanted} there have different arguments: {shown}; name those of one after --, or its folder "
            "with --from-run."
        )
    found = by_words.get(asked) if arguments else own
    if not found:
        raise SettingsError(f"no run of {wanted} there has the arguments {asked}; they have {shown}.")
    return list(found)


def _arguments_of(run: Run) -> str:
    return shlex.join(map(str, run.settings["args"]))


def _sample(run: Run, refused: Refused) -> Sample | None:
    """What the run tells; None, and the reason in `refused`, where it tells nothing."""
    seconds, done = _seconds(run)
    layout = _layout(run)
    if run.rehearsed:
        refused.append((run.name, f"was rehearsed on this machine, and never saw {_name(run)}"))
    elif layout is None:
        refused.append((run.name, "does not say how many GPUs its nodes had"))
    elif seconds <= 0:
        refused.append((run.name, f"is {run.state}, and told no pace"))
    else:
        kind = {"variables": run.settings.get("variables"), "processes": run.settings.get("processes")}
        kind |= {name: run.options[name] for name in OPTIONS if name in run.options}
        return Sample(run.name, _name(run), layout, seconds, kind, done)
    return None


def _seconds(run: Run) -> tuple[float, float]:
    """From its launch to its end, but for a queue; of one that was cut short by its pace.  With the share done."""
    if run.state == "done":
        held_s = backends.find(run.backend).held_s(run.folder) if run.backend in backends.BACKENDS else None
        return held_s or run.seconds or 0.0, 1.0
    return took(outcomes.read(run.folder), _pace(run.folder / PACE))


def _pace(path: Path) -> Pace | None:
    try:
        return parse(read_regular(path, LARGEST_JSON))
    except OSError:
        return None


def _name(run: Run) -> str:
    """The type as it was given; the backend's name where its machines have none."""
    types = run.options.get("instance_type")
    first = types[0] if isinstance(types, (list, tuple)) and types else types
    return str(first or run.backend)


def _layout(run: Run) -> Layout | None:
    """Nodes, and the ranks of each, or its GPUs where one process uses them all; None where that is not known."""
    instance = catalog.load().get(plain(_name(run)))
    gpus = max(1, instance.gpus) if instance else number(run.options, "gpus_per_node")
    if run.settings.get("processes") == "one":
        each = gpus
    else:
        each = number(run.options, "nproc_per_node") or gpus or (None if run.options.get("instance_type") else 1)
    return Layout(int(number(run.options, "nodes") or 1), int(each)) if each else None


def _without_cut(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Where a run came to its end, those that did not on the same machines count for nothing."""
    whole = {(sample.machine, sample.layout) for sample in samples if sample.done == 1}
    return tuple(sample for sample in samples if sample.done == 1 or (sample.machine, sample.layout) not in whole)
