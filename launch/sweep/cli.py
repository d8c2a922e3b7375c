"""What a sweep's command line asks for, together with its file.  Nothing heavy: --help must be quick."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, create_model

from launch.sweep import spec as specs
from launch.sweep.backends import BACKENDS, BILLED, OURS, REHEARSED, options_of
from launch.sweep.options import SweepOptions
from launch.sweep.spec import Spec
from trainer.config import SECTIONS, TrainConfig
from trainer.errors import SettingsError
from trainer.settings import flags
from trainer.settings.argparser import flag, parser_for
from trainer.settings.registry import check_name

PROG = "python -m launch.sweep"
ABOUT = """\
Runs a training in many ways, one after another, on any backend: the grid of a YAML file, or a preset of
infra/sweeps.  Settings of the trainer and options of the backend hold for all runs.  Started again, it goes on.

  python -m launch.sweep weak-scaling --small
  python -m launch.sweep weak-scaling --backend ec2 --dry-run
  python -m launch.sweep my-sweep.yaml --backend local --gpus 1,2 --epochs 3 --out runs/mine

presets: {presets}
"""


@dataclass(frozen=True)
class Asked:
    """overrides: settings and options that hold for every run; out: the folder of results."""

    spec: Spec
    options: SweepOptions
    overrides: Mapping[str, Any]
    out: Path

    @property
    def costs(self) -> bool:
        return self.spec.backend in BILLED and not self.spec.rehearse


def read(argv: Sequence[str]) -> Asked:
    """The file and the flags.  Raises SettingsError; exits for --help."""
    words = list(argv)
    where = words.pop(0) if words and not words[0].startswith("-") else ""
    if not where and not {"-h", "--help"} & set(words):
        raise SettingsError(f"which sweep? Give a YAML file, or one of: {', '.join(specs.presets())}.")
    spec = specs.read(where, small="--small" in words) if where else None
    given_backend = _value_of("--backend", words)
    if given_backend is not None:
        check_name("backend", given_backend, BACKENDS)
    backend = given_backend or (spec.backend if spec else "local")
    options, overrides = _flags(words, backend)
    assert spec is not None  # --help has left
    rehearse = spec.rehearse and backend == spec.backend if options.rehearse is None else options.rehearse
    if rehearse and backend not in REHEARSED:
        raise SettingsError(f"--rehearse is for {' and '.join(REHEARSED)}, and this is {backend}; add --backend ec2.")
    out = options.out or Path("runs") / f"sweep-{spec.name}{'-small' if options.small else ''}"
    return Asked(replace(spec, backend=backend, rehearse=rehearse), options, overrides, out)


def _flags(words: Sequence[str], backend: str) -> tuple[SweepOptions, dict[str, Any]]:
    """The sweep's own options, and the values for all runs, as they were written."""
    own, about = _own_options(backend), ABOUT.format(presets=", ".join(specs.presets()))
    sections = {"backend": PROG, next(iter(own.model_fields)): f"launch.{backend}", **SECTIONS}
    given = vars(parser_for([SweepOptions, own, TrainConfig], PROG, about, sections, {}).parse_args(words))
    if config := given.pop("config", None):
        given = {**flags.read_yaml(Path(config), [own, TrainConfig]), **given}
    for name in given:
        if name in OURS:
            raise SettingsError(f"{flag(name)} is what the sweep decides for each run; leave it out.")
    ours = {name: given.pop(name) for name in list(given) if name in SweepOptions.model_fields}
    (options,) = flags.build(ours, [SweepOptions])
    return cast(SweepOptions, options), given


def _value_of(flag: str, words: Sequence[str]) -> str | None:
    """The last value given for `flag`, before the flags are known."""
    values = [after for word, after in pairwise(words) if word == flag]
    values += [word.partition("=")[2] for word in words if word.startswith(f"{flag}=")]
    return values[-1] if values else None


def _own_options(backend: str) -> type[BaseModel]:
    """What the backend takes that the sweep does not decide, or take itself."""
    model = options_of(backend)
    fields: Any = {
        name: (field.annotation, field) for name, field in model.model_fields.items()
        if name not in SweepOptions.model_fields and name not in OURS
    }  # fmt: skip
    config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    return create_model(model.__name__, __config__=config, **fields)
