"""ScriptConfig, the settings of one rank of a user's own training script, and its command line.  Torch-free.

    python -m trainer.script --run-dir runs/mine -- train.py --lr 0.1
    python -m trainer.script --run-dir runs/mine -- -m package.module --lr 0.1

The launchers write such a line with to_words(), and each rank reads it with parse().
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from trainer.errors import SettingsError, one_line
from trainer.settings import flags
from trainer.settings.argparser import as_text, flag

PROG = "python -m trainer.script"
ABOUT = """Run one rank of your own training script; give the script and its arguments after --.

  python -m trainer.script --run-dir runs/mine -- train.py --lr 0.1
  python -m trainer.script --run-dir runs/mine -- -m package.module --lr 0.1
  python -m trainer.torchrun --nproc-per-node 2 -m trainer.script --run-dir runs/mine -- train.py"""

SECTIONS = {"run_dir": "what the script finds", "source": "its source", "processes": "how it runs"}


def _listed(value: Any) -> Any:
    """'A=1,B=2' and '["A=1", "B=2"]' -> ['A=1', 'B=2']."""
    if not isinstance(value, str):
        return value
    if not value.startswith("["):
        return [word for word in value.split(",") if word]
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError("must be a JSON list, or values with commas between them") from None


class Flags(BaseModel):
    """The settings that have a command-line flag."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)

    run_dir: Path = Field(description="folder that survives restarts: DDP_RUN_DIR")
    data_dir: Path | None = Field(None, description="folder of the data: DDP_DATA_DIR (default: none)")
    job: str = Field("", description="name of the job: DDP_JOB")
    variables: Annotated[tuple[str, ...], BeforeValidator(_listed)] = Field(
        (), description="NAME=VALUE,... for the script, or a JSON list of them (default: none)"
    )
    restarts: int = Field(0, ge=0, description="number of earlier restarts of the job: DDP_RESTARTS")

    source: Path | None = Field(None, description=".tar.gz of the source (default: the current folder)")
    digest: str = Field("", description="SHA-256 of --source: 64 hexadecimal digits")
    work: Path | None = Field(None, description="folder in which to unpack --source and install packages")
    cwd: str = Field(".", description="where in the source to start the script")
    requirements: str = Field("", description="file in the source that lists the packages to install (default: none)")

    processes: Literal["torchrun", "one"] = Field(
        "torchrun", description="torchrun: this is one of its ranks; one: it starts this node's processes itself"
    )
    max_silence_s: float = Field(
        3600,
        ge=0,
        le=10_000_000,
        description="seconds without any output after which the script is stopped; 0: no limit",
    )
    max_output_mb: int = Field(200, ge=1, le=1_000_000, description="maximum MB of this rank's output to print")


class ScriptConfig(Flags):
    """Settings of one rank of a user's own training script.  Raises SettingsError."""

    words: tuple[str, ...]  # the script, or -m and its module, and its arguments

    def model_post_init(self, _: Any) -> None:
        if self.digest and not re.fullmatch("[0-9a-f]{64}", self.digest):
            raise SettingsError(f"--digest {one_line(self.digest)}: must be 64 of the digits 0-9 and a-f.")
        _check_inside("--cwd", self.cwd)
        _check_inside("--requirements", self.requirements)
        if self.source is not None and not (self.digest and self.work):
            raise SettingsError("--source needs its --digest, and --work to unpack it in.")
        if self.requirements and self.work is None:
            raise SettingsError("--requirements needs --work to install packages in.")
        if self.words[:1] in ((), ("",)) or self.words == ("-m",):
            raise SettingsError("no script is given; write it after --, as in: -- train.py --lr 0.1")

    @property
    def name(self) -> str:
        """What the user calls it: train.py, or -m package.module."""
        return " ".join(self.words[:2]) if self.words[0] == "-m" else self.words[0]

    @property
    def for_python(self) -> tuple[str, ...]:
        """The arguments for Python; a file whose name starts with a dash gets ./ in front."""
        first, *rest = self.words
        return (f"./{first}" if first.startswith("-") and first != "-m" else first, *rest)


def _check_inside(name: str, path: str) -> None:
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise SettingsError(f"{name} {one_line(path)}: must be a path inside the source.")


def to_words(config: ScriptConfig) -> tuple[str, ...]:
    """The command line that parse() reads as `config`; defaults are left out."""
    defaults = {name: field.default for name, field in Flags.model_fields.items()}
    given = {name: getattr(config, name) for name in defaults if getattr(config, name) != defaults[name]}
    return (*(word for name, value in given.items() for word in (flag(name), _as_word(value))), "--", *config.words)


def _as_word(value: Any) -> str:
    # A list as JSON: a value may have commas, as in CUDA_VISIBLE_DEVICES=0,1.
    return json.dumps(value) if isinstance(value, tuple) else as_text(value)


def parse(argv: Sequence[str]) -> ScriptConfig:
    """The settings on a command line.  Raises SettingsError; exits for --help."""
    own, words = _split(argv)
    (given,) = flags.parse(own, [Flags], prog=PROG, about=ABOUT, sections=SECTIONS)
    return ScriptConfig(**dict(given), words=words)


def _split(argv: Sequence[str]) -> tuple[Sequence[str], tuple[str, ...]]:
    """The arguments before the first --, and those after it."""
    if "--" not in argv:
        return argv, ()
    here = list(argv).index("--")
    return argv[:here], tuple(argv[here + 1 :])
