"""What one rank of a user's own training needs to know: ScriptConfig, and its command line.  Torch-free.

    python -m trainer.script --run-dir runs/mine -- train.py --lr 0.1
    python -m trainer.script --run-dir runs/mine -- -m package.module --lr 0.1

The launchers write such a line with to_words(), and each rank reads it with parse().
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from math import inf
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from trainer.errors import SettingsError, did_you_mean, one_line
from trainer.settings import flags
from trainer.settings.argparser import as_text, flag, kinds_of

PROG = "python -m trainer.script"
ABOUT = """Run one rank of a training of your own; what stands after -- is the script, with its arguments.

  python -m trainer.script --run-dir runs/mine -- train.py --lr 0.1
  python -m trainer.script --run-dir runs/mine -- -m package.module --lr 0.1
  python -m trainer.torchrun --nproc-per-node 2 -m trainer.script --run-dir runs/mine -- train.py"""

SECTIONS = {"run_dir": "what the script finds", "source": "its source", "processes": "how it runs"}


def described(description: str, *, least: float = -inf, most: float = inf) -> dict[str, Any]:
    """The metadata of a field that is a flag.  description: for --help; least, most: of a number."""
    return {"description": description, "least": least, "most": most}


@dataclass(frozen=True, kw_only=True)
class ScriptConfig:
    """One rank of a user's own training.  words: the script, or -m and its module, and its arguments.

    The others are its flags, with their units.  Raises SettingsError.
    """

    words: tuple[str, ...]

    run_dir: Path = field(metadata=described("folder that is kept and found again after a restart: DDP_RUN_DIR"))
    data_dir: Path | None = field(default=None, metadata=described("folder of the data: DDP_DATA_DIR (default: none)"))
    job: str = field(default="", metadata=described("name of the job: DDP_JOB"))
    variables: tuple[str, ...] = field(
        default=(), metadata=described("NAME=VALUE,... for the script, or a JSON list of them (default: none)")
    )
    restarts: int = field(
        default=0, metadata=described("how often the job was started again before: DDP_RESTARTS", least=0)
    )

    source: Path | None = field(
        default=None, metadata=described(".tar.gz of the source (default: the script is where this is started)")
    )
    digest: str = field(default="", metadata=described("SHA-256 of --source: 64 hexadecimal digits"))
    work: Path | None = field(default=None, metadata=described("folder to unpack --source and to install packages in"))
    cwd: str = field(default=".", metadata=described("where in the source to start the script"))
    requirements: str = field(
        default="", metadata=described("file in the source that lists the packages to install (default: none)")
    )

    processes: Literal["torchrun", "one"] = field(
        default="torchrun",
        metadata=described("torchrun: this is one of its ranks; one: it starts this node's processes itself"),
    )
    max_silence_s: float = field(
        default=3600,
        metadata=described(
            "seconds without any output after which the script is ended; 0: no limit", least=0, most=10_000_000
        ),
    )
    max_output_mb: int = field(
        default=200, metadata=described("MB of output of this rank that are passed on", least=1, most=1_000_000)
    )

    def __post_init__(self) -> None:
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
    def changed(self) -> dict[str, Any]:
        """The flags that differ from their defaults."""
        flags = {one.name: one.default for one in fields(self) if one.metadata}
        return {name: getattr(self, name) for name, usual in flags.items() if getattr(self, name) != usual}

    @property
    def name(self) -> str:
        """What the user calls it: train.py, or -m package.module."""
        return " ".join(self.words[:2]) if self.words[0] == "-m" else self.words[0]

    @property
    def for_python(self) -> tuple[str, ...]:
        """The words as Python takes them: a file whose name begins like an option is given by its folder."""
        first, *rest = self.words
        return (f"./{first}" if first.startswith("-") and first != "-m" else first, *rest)


def _check_inside(name: str, path: str) -> None:
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise SettingsError(f"{name} {one_line(path)}: must be a path inside the source.")


def to_words(config: ScriptConfig) -> tuple[str, ...]:
    """The command line that parse() reads as `config`; defaults are left out."""
    flags = [word for name, value in config.changed.items() for word in (flag(name), _as_word(value))]
    return (*flags, "--", *config.words)


def _as_word(value: Any) -> str:
    # A list as JSON: a value may have commas, as in CUDA_VISIBLE_DEVICES=0,1.
    return json.dumps(value) if isinstance(value, tuple) else as_text(value)


def parse(argv: Sequence[str]) -> ScriptConfig:
    """The settings on a command line.  Raises SettingsError; exits for --help."""
    own, words = _parted(argv)
    return ScriptConfig(**read(own, ScriptConfig, prog=PROG, about=ABOUT, sections=SECTIONS), words=words)


def _parted(argv: Sequence[str]) -> tuple[Sequence[str], tuple[str, ...]]:
    """What stands before the first --, and what behind it."""
    if "--" not in argv:
        return argv, ()
    here = list(argv).index("--")
    return argv[:here], tuple(argv[here + 1 :])


@dataclass(frozen=True)
class _Setting:
    """A setting as trainer.settings asks for it, by pydantic's names."""

    annotation: Any
    default: Any
    description: str
    least: float
    most: float
    is_needed: bool
    json_schema_extra: None = None


def read(
    argv: Sequence[str], settings: type[Any], *, prog: str, about: str, sections: Mapping[str, str]
) -> dict[str, Any]:
    """The values on a command line, and in the file that it names, by their names in `settings`, a dataclass.

    Raises SettingsError; exits for --help.
    """
    known = _settings_of(settings)
    model = cast(Any, SimpleNamespace(model_fields=known))
    texts = flags.cleaned(flags.read(argv, [model], prog=prog, about=about, sections=sections), cast(Any, known))
    values = dict[str, Any]()
    wrong = [f"{flag(name)} is missing." for name, one in known.items() if one.is_needed and name not in texts]
    for name, text in texts.items():
        try:
            values[name] = None if text is None else _value(text, known[name])
        except ValueError as error:
            wrong.append(f"{flag(name)} {one_line(text)}: must be {error}")
    if wrong:
        raise SettingsError("\n".join(wrong))
    flags.check_sizes(values)
    return values


def _settings_of(settings: type[Any]) -> dict[str, _Setting]:
    """Those of a dataclass, by name."""
    kinds, found = get_type_hints(settings), dict[str, _Setting]()
    for one in fields(settings):
        if one.metadata:
            is_needed = one.default is MISSING
            default = "" if is_needed else one.default
            found[one.name] = _Setting(kinds[one.name], default, is_needed=is_needed, **one.metadata)
    return found


def _value(text: Any, setting: _Setting) -> Any:
    """What a text means, or a list of a YAML file.  Raises ValueError, which ends a sentence with what it must be."""
    kind = kinds_of(cast(Any, setting))[0]
    if get_origin(kind) is tuple:
        return tuple(str(word) for word in _list(text) if word)
    if not isinstance(text, str):
        raise ValueError("a single value.")
    if kind in (int, float):
        return _number(text, setting, kind)
    if get_origin(kind) is Literal:
        return _choice(text, get_args(kind))
    return Path(text) if kind is Path else text


def _list(text: Any) -> Sequence[Any]:
    if not isinstance(text, str):
        return cast(Sequence[Any], text)
    if not text.startswith("["):
        return text.split(",")
    try:
        return cast(Sequence[Any], json.loads(text))
    except ValueError:
        raise ValueError("a JSON list, or values with commas between them.") from None


def _choice(text: str, choices: Sequence[str]) -> str:
    if text not in choices:
        raise ValueError(", ".join(choices) + (did_you_mean(one_line(text), choices) or "."))
    return text


def _number(text: Any, setting: _Setting, kind: type[int] | type[float]) -> int | float:
    try:
        number = kind(text)
    except ValueError:
        raise ValueError("a whole number." if kind is int else "a number.") from None
    if not setting.least <= number <= setting.most:  # what is no number is in no range
        upward = "" if setting.most == inf else f" and at most {setting.most:,}"
        raise ValueError(f"at least {setting.least:,}{upward}.")
    return number
