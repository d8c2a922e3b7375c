"""The command line of a sweep, together with its file.  Imports nothing heavy, as --help must be quick."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, create_model

from launch.core import backend as backends
from launch.core.backend import Backend
from launch.core.training.options import SCRIPT_SECTION, TRAINS
from launch.core.training.options import split as at_the_end
from launch.sweep import spec as specs
from launch.sweep.options import SweepOptions
from launch.sweep.planned import OURS
from launch.sweep.spec import DEFAULT_BACKEND, Spec
from trainer.config import SECTIONS
from trainer.errors import SettingsError
from trainer.settings import completion, flags
from trainer.settings.argparser import flag, parser_for

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


@dataclass(frozen=True)
class SweepRequest:
    """overrides: settings and options that apply to every run; out: the folder of results."""

    spec: Spec
    backend: Backend
    options: SweepOptions
    overrides: Mapping[str, Any]
    out: Path

    @property
    def costs(self) -> bool:
        return self.backend.is_billed and not self.spec.rehearse


def read(argv: Sequence[str]) -> SweepRequest:
    """The file and the flags.  Raises SettingsError; exits for --help."""
    words = list(argv)
    where = words.pop(0) if words and not words[0].startswith("-") else ""
    if not where and not _needs_no_sweep(words):
        raise SettingsError(f"no sweep is named; give a YAML file, or one of: {', '.join(specs.presets())}.")
    spec = specs.read(where, small="--small" in words) if where else None
    backend = backends.find(_value_of("--backend", words) or (spec.backend if spec else DEFAULT_BACKEND))
    options, overrides = _flags(words, backend)
    assert spec is not None  # --help and --version have exited
    spec = replace(spec, backend=backend.name, rehearse=_is_rehearsed(spec, backend, options))
    return SweepRequest(spec, backend, options, overrides, options.out or _default_out(spec, options))


def _is_rehearsed(spec: Spec, backend: Backend, options: SweepOptions) -> bool:
    """The flag, or else what the file says of its own backend.  Raises SettingsError."""
    rehearse = options.rehearse
    if rehearse is None:
        rehearse = spec.rehearse and backend.name == spec.backend
    if rehearse and not backend.scene:
        known = backends.all_with(lambda one: bool(one.scene))
        raise SettingsError(f"--rehearse works for {' and '.join(known)}, not for {backend.name}; "
                            f"add --backend {known[0]}.")  # fmt: skip
    return rehearse


def _default_out(spec: Spec, options: SweepOptions) -> Path:
    return Path("runs") / f"sweep-{spec.name}{'-small' if options.small else ''}"


def _flags(words: Sequence[str], backend: Backend) -> tuple[SweepOptions, dict[str, Any]]:
    """The sweep's own options, and the values for all runs as they were written."""
    own, about = _own_options(backend), ABOUT.format(presets=", ".join(specs.presets()))
    sections = {
        "backend": "launch.sweep", next(iter(own.model_fields)): backend.module, **SCRIPT_SECTION, **SECTIONS
    }  # fmt: skip
    parser = parser_for([SweepOptions, own, *TRAINS], PROG, about, sections, {})
    completion.complete(parser)
    words, arguments = at_the_end(words)
    given = flags.with_file(vars(parser.parse_args(words)), [own, *TRAINS])
    if arguments:
        given["args"] = arguments
    for name in given:
        if name in OURS:
            raise SettingsError(f"{flag(name)} is set by the sweep for each run; leave it out.")
    sweep_values = {name: given.pop(name) for name in list(given) if name in SweepOptions.model_fields}
    (options,) = flags.build(sweep_values, [SweepOptions])
    return cast(SweepOptions, options), given


def _needs_no_sweep(words: Sequence[str]) -> bool:
    """Whether the command line is answered without a sweep: help, the version, or a shell's completion."""
    return completion.is_asked() or bool({"-h", "--help", "--version"} & set(words))


def _value_of(flag: str, words: Sequence[str]) -> str | None:
    """The last value given for `flag`, before the flags are known."""
    values = [after for word, after in pairwise(words) if word == flag]
    values += [word.partition("=")[2] for word in words if word.startswith(f"{flag}=")]
    return values[-1] if values else None


def _own_options(backend: Backend) -> type[BaseModel]:
    """The backend's options but those that the sweep sets, or has itself."""
    model = backend.options
    fields: Any = {
        name: (field.annotation, field) for name, field in model.model_fields.items()
        if name not in SweepOptions.model_fields and name not in OURS
    }  # fmt: skip
    config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    return create_model(model.__name__, __config__=config, **fields)
