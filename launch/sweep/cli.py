"""Parse a sweep's command line and file.  Imports nothing heavy, as --help must be quick."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from launch.core import backend as backends
from launch.core.backend import BACKENDS, Backend
from launch.core.options import DRY_RUN, DryRun, Options, WordList
from launch.core.training.options import SCRIPT_SECTION, TRAINS
from launch.core.training.options import split as at_the_end
from launch.sweep import grid
from launch.sweep.grid import DEFAULT_BACKEND, SweepFile
from launch.sweep.planned import RESERVED
from trainer.config import SECTIONS
from trainer.errors import SettingsError
from trainer.settings import argparser, flags
from trainer.settings.argparser import Help, flag, parser_for

PROG = "python -m launch.sweep"
ABOUT = """\
Runs many trainings, one after another, on any backend: the grid of a YAML file, or a preset of infra/sweeps.
Trainer settings (or a script's arguments, after --) and backend options apply to every run.  The same command resumes
a stopped sweep.

  python -m launch.sweep weak-scaling --small
  python -m launch.sweep weak-scaling --backend ec2 --dry-run
  python -m launch.sweep my-sweep.yaml --backend local --gpus 1,2 --epochs 3 --out runs/mine

presets:
  {presets}
"""


def _counts(value: Any) -> Any:
    """'1,2' -> ['1', '2']; anything else is left for the field's type to check."""
    return [word for word in value.split(",") if word.strip()] if isinstance(value, str) else value


Counts = Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(_counts)]


class SweepOptions(Options):
    """Which runs, where, and what they may cost."""

    backend: str | None = Field(None, description=f"{', '.join(BACKENDS)} (default: the file's)")
    small: bool = Field(False, description="run the file's small version: a minute or two on a laptop")
    rehearse: bool | None = Field(None, description="run each job on this machine, against an embedded AWS; no account")
    gpus: Counts = Field((), description="GPUs (or CPU ranks) per run, instead of the file's")
    only: WordList = Field((), description="names of the runs to do now; the others are left for later")
    out: Path | None = Field(None, description="folder for results, also to resume from (default: runs/sweep-NAME)")
    parallel: int = Field(1, ge=1, description="runs at a time (local: each gets its share of cores and GPUs)")
    diverged_at: float | None = Field(
        None, ge=0, allow_inf_nan=False,
        description="end a run whose training loss rises to N times its lowest; 0: never (default: 3; scripts: never)",
    )  # fmt: skip
    retry_failed: bool = Field(False, description="start failed runs again")
    collect: bool = Field(False, description="only gather the results of runs in a --queue that have ended")
    max_usd: float | None = Field(None, gt=0, description="refuse a sweep that may cost more than this in total")
    usd_per_hour: float | None = Field(None, gt=0, description="USD per machine-hour, for backends without prices")
    yes: bool = Field(False, description="skip the confirmation before it costs money")
    dry_run: DryRun = DRY_RUN


@dataclass(frozen=True)
class SweepRequest:
    """A parsed command line."""

    file: SweepFile
    backend: Backend
    options: SweepOptions
    overrides: Mapping[str, Any]  # settings and options of every run
    out: Path  # the folder of results

    @property
    def costs(self) -> bool:
        return self.backend.is_billed and not self.file.rehearse


def read(argv: Sequence[str]) -> SweepRequest:
    """Read the file and the flags.  Raises SettingsError; exits for --help."""
    words = list(argv)
    where = words.pop(0) if words and not words[0].startswith("-") else ""
    if not where and not _is_help(words):
        raise SettingsError(f"no sweep is named; give a YAML file, or one of: {', '.join(grid.presets())}.")
    file = grid.read(where, small="--small" in words) if where else None
    backend = backends.find(_value_of("--backend", words) or (file.backend if file else DEFAULT_BACKEND))
    options, overrides = _flags(words, backend)
    assert file is not None  # --help and --version have exited
    file = replace(file, backend=backend.name, rehearse=_is_rehearsed(file, backend, options))
    return SweepRequest(file, backend, options, overrides, options.out or _default_out(file, options))


def _is_rehearsed(file: SweepFile, backend: Backend, options: SweepOptions) -> bool:
    """Whether to rehearse: by the flag, or else by the file for its own backend.  Raises SettingsError."""
    rehearse = options.rehearse
    if rehearse is None:
        rehearse = file.rehearse and backend.name == file.backend
    if rehearse and not backend.rehearsal:
        known = backends.all_with(lambda one: bool(one.rehearsal))
        raise SettingsError(f"--rehearse works for {' and '.join(known)}, not for {backend.name}; "
                            f"add --backend {known[0]}.")  # fmt: skip
    return rehearse


def _default_out(file: SweepFile, options: SweepOptions) -> Path:
    return Path("runs") / f"sweep-{file.name}{'-small' if options.small else ''}"


def _flags(words: Sequence[str], backend: Backend) -> tuple[SweepOptions, dict[str, Any]]:
    """The sweep's own options, and the unparsed values for all runs."""
    own, about = _own_options(backend), ABOUT.format(presets=", ".join(grid.presets()))
    sections = {
        "backend": "launch.sweep", next(iter(own.model_fields)): backend.module, **SCRIPT_SECTION, **SECTIONS
    }  # fmt: skip
    parser = parser_for([SweepOptions, own, *TRAINS], Help(PROG, about, sections))
    argparser.complete(parser)
    words, arguments = at_the_end(words)
    given = flags.with_file(vars(parser.parse_args(words)), [own, *TRAINS])
    if arguments:
        given["args"] = arguments
    for name in given:
        if name in RESERVED:
            raise SettingsError(f"{flag(name)} is set by the sweep for each run; leave it out.")
    sweep_values = {name: given.pop(name) for name in list(given) if name in SweepOptions.model_fields}
    (options,) = flags.build(sweep_values, [SweepOptions])
    return cast(SweepOptions, options), given


def _is_help(words: Sequence[str]) -> bool:
    """Whether the command line needs no sweep: help, the version, or a shell's completion."""
    return argparser.is_asked() or bool({"-h", "--help", "--version"} & set(words))


def _value_of(flag: str, words: Sequence[str]) -> str | None:
    """The last value of `flag`, before the flags are parsed."""
    values = [after for word, after in pairwise(words) if word == flag]
    values += [word.partition("=")[2] for word in words if word.startswith(f"{flag}=")]
    return values[-1] if values else None


def _own_options(backend: Backend) -> type[BaseModel]:
    """The backend's options without those that the sweep sets or defines itself."""
    model = backend.options
    fields: Any = {
        name: (field.annotation, field) for name, field in model.model_fields.items()
        if name not in SweepOptions.model_fields and name not in RESERVED
    }  # fmt: skip
    config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    return create_model(model.__name__, __config__=config, **fields)
