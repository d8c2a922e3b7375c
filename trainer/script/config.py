"""What one rank of a user's own training needs to know: ScriptConfig, and its command line.  Torch-free.

    python -m trainer.script --run-dir runs/mine -- train.py --lr 0.1
    python -m trainer.script --run-dir runs/mine -- -m package.module --lr 0.1

The launchers write such a line with to_words(), and each rank reads it with parse().
"""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from trainer.errors import SettingsError
from trainer.settings import flags

PROG = "python -m trainer.script"
ABOUT = """Run one rank of a training of your own; what stands after -- is the script, with its arguments.

  python -m trainer.script --run-dir runs/mine -- train.py --lr 0.1
  python -m trainer.script --run-dir runs/mine -- -m package.module --lr 0.1
  python -m trainer.torchrun --nproc-per-node 2 -m trainer.script --run-dir runs/mine -- train.py"""

SECTIONS = {"run_dir": "what the script finds", "source": "its source", "processes": "how it runs"}


# Of a variable's value, which may have a comma: CUDA_VISIBLE_DEVICES=0,1.
_ESCAPED = (("%", "%25"), (",", "%2C"))


def _split(value: Any) -> Any:
    return [_unescaped(word) for word in value.split(",") if word] if isinstance(value, str) else value


def _escaped(word: str) -> str:
    for plain, code in _ESCAPED:
        word = word.replace(plain, code)
    return word


def _unescaped(word: str) -> str:
    for plain, code in reversed(_ESCAPED):
        word = word.replace(code, plain)
    return word


class _Flags(BaseModel):
    """All that stands before --.  Units are in the names."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)

    run_dir: Path = Field(description="folder that is kept and found again after a restart: DDP_RUN_DIR")
    data_dir: Path | None = Field(None, description="folder of the data: DDP_DATA_DIR (default: none)")
    job: str = Field("", description="name of the job: DDP_JOB")
    variables: Annotated[tuple[str, ...], BeforeValidator(_split)] = Field(
        (),
        description="NAME=VALUE,... for the script, a comma in a value as %2C (default: none)",
    )
    restarts: int = Field(0, ge=0, description="how often the job was started again before: DDP_RESTARTS")

    source: Path | None = Field(
        None, description=".tar.gz of the source (default: the script is where this is started)"
    )
    digest: str = Field("", description="SHA-256 of --source: 64 hexadecimal digits")
    work: Path | None = Field(None, description="folder to unpack --source and to install packages in")
    cwd: str = Field(".", description="where in the source to start the script")
    requirements: str = Field("", description="file in the source that lists the packages to install (default: none)")

    processes: Literal["torchrun", "one"] = Field(
        "torchrun", description="torchrun: this is one of its ranks; one: it starts this node's processes itself"
    )
    max_silence_s: float = Field(
        3600, ge=0, le=1e7, description="seconds without any output after which the script is ended; 0: no limit"
    )
    max_output_mb: int = Field(200, ge=1, le=1_000_000, description="MB of output of this rank that are passed on")

    @field_validator("digest")
    @classmethod
    def _is_sha256(cls, digest: str) -> str:
        if digest and (len(digest) != 64 or set(digest) - set("0123456789abcdef")):
            raise ValueError("must be 64 of the digits 0-9 and a-f")
        return digest

    @field_validator("cwd", "requirements")
    @classmethod
    def _is_inside(cls, path: str) -> str:
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise ValueError("must be a path inside the source")
        return path

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.source is not None and not (self.digest and self.work):
            raise ValueError("--source needs its --digest, and --work to unpack it in")
        if self.requirements and self.work is None:
            raise ValueError("--requirements needs --work to install packages in")
        return self


class ScriptConfig(_Flags):
    """One rank of a user's own training.  words: the script, or -m and its module, and its arguments."""

    words: tuple[str, ...]

    @field_validator("words")
    @classmethod
    def _names_a_script(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        if not words or (words[0] in ("", "-m") and not words[1:]):
            raise ValueError("give the script, or -m and its module, after --")
        return words

    @property
    def changed(self) -> dict[str, Any]:
        """The flags that differ from their defaults."""
        fields = _Flags.model_fields.items()
        found = {name: getattr(self, name) for name, field in fields if getattr(self, name) != field.default}
        if self.variables:
            found["variables"] = tuple(map(_escaped, self.variables))
        return found

    @property
    def name(self) -> str:
        """What the user calls it: train.py, or -m package.module."""
        return " ".join(self.words[:2]) if self.words[0] == "-m" else self.words[0]

    @property
    def for_python(self) -> tuple[str, ...]:
        """The words as Python takes them: a file whose name begins like an option is given by its folder."""
        first, *rest = self.words
        return (f"./{first}" if first.startswith("-") and first != "-m" else first, *rest)


def to_words(config: ScriptConfig) -> tuple[str, ...]:
    """The command line that parse() reads as `config`; defaults are left out."""
    return (*flags.to_argv(config), "--", *config.words)


def parse(argv: Sequence[str]) -> ScriptConfig:
    """The settings on a command line.  Raises SettingsError; exits for --help."""
    own, words = _parted(argv)
    (given,) = flags.parse(own, [_Flags], prog=PROG, about=ABOUT, sections=SECTIONS, defaults={"run_dir": ""})
    if not words or words == ("-m",):
        raise SettingsError("no script is given; write it after --, as in: -- train.py --lr 0.1")
    return ScriptConfig(**given.model_dump(), words=words)


def _parted(argv: Sequence[str]) -> tuple[Sequence[str], tuple[str, ...]]:
    """What stands before the first --, and what behind it."""
    if "--" not in argv:
        return argv, ()
    here = list(argv).index("--")
    return argv[:here], tuple(argv[here + 1 :])
