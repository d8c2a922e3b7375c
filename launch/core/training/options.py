"""The options of every launcher that name a script of the user's own, and the training that a command line means."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, BeforeValidator, Field

from launch.core.backend import Backend
from launch.core.options import Options, Pairs, read_variables
from launch.core.training.base import Training
from launch.core.training.classifier import ENTRY, Classifier
from launch.core.training.script import ENTRY as SCRIPT
from launch.core.training.script import Script, script_of
from trainer.config import TrainConfig
from trainer.errors import SettingsError, one_line
from trainer.script.config import parse
from trainer.settings import flags
from trainer.settings.argparser import flag, holds_paths

END = "--"  # the words after it are the script's
SCRIPT_SECTION = {"script": "a script of your own"}  # of --help
# Of the trainer's settings, those that mean the same for a script.
SHARED = ("run_dir", "data_dir")


def _words(value: Any) -> Any:
    """The words of a text, as a shell splits them; a list as it is, its numbers as text."""
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError as error:
            raise SettingsError(f"--args: {str(error).lower()}; close every quote.") from error
    return [str(word) for word in value] if isinstance(value, (list, tuple)) else value


class ScriptOptions(Options):
    """What trains in place of our trainer."""

    script: Path | None = Field(
        None, description="train with this Python file instead of the built-in trainer; its arguments follow --"
    )
    module: str | None = Field(None, description="the same for a module, as in `python -m MODULE`; -m for short")
    args: Annotated[tuple[str, ...], BeforeValidator(_words)] = Field(
        (),
        description="the script's arguments, like those after --; in YAML, a string or a list",
        json_schema_extra={"metavar": "TEXT"},
    )
    source_dir: Path | None = Field(
        None, description="folder to send with the script (default: its git repository, else its folder)"
    )
    processes: Literal["torchrun", "one"] = Field(
        "torchrun",
        description="torchrun: a process per GPU; one: a process per node that starts others, as Lightning does",
    )
    max_silence_s: float = Field(
        3600.0, ge=0, description="end a script that prints nothing for this many seconds; 0: never"
    )

    max_output_mb: int = Field(
        200, ge=1, le=1_000_000, description="MB of output to show per rank; the rest is dropped"
    )

    expected_hours: float | None = Field(
        None, gt=0, le=1e5, description="your estimate of the script's hours on these machines, for the expected price"
    )
    variables: Pairs = Field(
        (),
        description="environment variables for the script; use --secret for secrets",
        json_schema_extra={"metavar": "NAME=VALUE,..."},
    )

    @property
    def is_given(self) -> bool:
        return self.script is not None or self.module is not None


# Every command that takes a training reads these settings, ours last, and hands what it has built to training_of().
TRAINS: tuple[type[BaseModel], ...] = (ScriptOptions, TrainConfig)
OUR_SETTINGS = tuple(TrainConfig.model_fields)


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The launcher's words with -m spelt out, and the script's arguments."""
    words = list(argv)
    place = words.index(END) if END in words else len(words)
    return ["--module" if word == "-m" else word for word in words[:place]], words[place + 1 :]


def unsuggested(words: Sequence[str]) -> Collection[str]:
    """The settings that are not suggested for a misspelt one: beside a script, those that it replaces.

    words: of the launcher, as split() gives them.
    """
    names = {word.partition("=")[0] for word in words}
    return set(OUR_SETTINGS) - set(SHARED) if names & {"--script", "--module"} else ()


def training_of(
    script: BaseModel,
    config: BaseModel,
    values: Mapping[str, Any],
    arguments: Sequence[str],
    cwd: Path,
    backend: Backend,
) -> Training:
    """The training that a command line means: the user's script if it names one, else ours.  Raises SettingsError.

    script, config: what was built of TRAINS; values: what the user gave, by name; arguments: the words after --.
    """
    if not backend.shares_folders:
        _check_home_paths(values)
    options = cast(ScriptOptions, script)
    if not options.is_given:
        _check_without_script(values, arguments)
        return Classifier(cast(TrainConfig, config))

    _check_with_script(options, values, arguments)
    folders = {name: cwd / getattr(config, name) for name in SHARED if values.get(name)}
    return find_script(options, arguments or options.args, folders, cwd, is_sent=not backend.runs_here)


def _check_home_paths(values: Mapping[str, Any]) -> None:
    """Raises SettingsError for a path in this user's home folder, where others are meant."""
    for name, field in TrainConfig.model_fields.items():
        if holds_paths(field) and str(values.get(name) or "").startswith("~"):
            raise SettingsError(
                f"{flag(name)} {one_line(values[name])}: ~ is your home folder on this machine, which the nodes do not "
                "have; bring data with --data, and give whole paths for folders of theirs."
            )


def _check_without_script(values: Mapping[str, Any], arguments: Sequence[str]) -> None:
    if arguments:
        raise SettingsError(f"{END} is followed by a script's arguments, and there is none; give --script FILE.")
    given = [name for name in ScriptOptions.model_fields if values.get(name)]
    if given:
        raise SettingsError(f"{flag(given[0])} is for a script of your own; give --script FILE as well.")


def _check_with_script(options: ScriptOptions, values: Mapping[str, Any], arguments: Sequence[str]) -> None:
    if options.script is not None and options.module is not None:
        raise SettingsError("--script and --module both say what to run; give one of them.")
    if arguments and options.args:
        raise SettingsError(f"--args and the words after {END} are both the script's arguments; give one of them.")
    ours = [name for name in values if name in OUR_SETTINGS and name not in SHARED]
    if ours:
        name, value = flag(ours[0]), values[ours[0]]
        raise SettingsError(
            f"{name} is a setting of our trainer, which --script replaces; if the script has one of that name, write "
            f"it after {END}: {END} {name} {value}"
        )


def find_script(
    options: ScriptOptions, arguments: Sequence[str], folders: Mapping[str, Path], cwd: Path, *, is_sent: bool
) -> Script:
    """The script as a training.  Raises SettingsError where it cannot be run or sent.

    folders: run_dir, data_dir; is_sent: it runs on machines that do not have this one's files.
    """
    if options.script is not None and (cwd / options.script).is_file():
        _check_python(cwd / options.script, one_line(options.script, 300))
    script = Script(
        arguments=(),
        processes_by=options.processes,
        max_silence_s=options.max_silence_s,
        max_output_mb=options.max_output_mb,
        variables=tuple(f"{name}={value}" for name, value in read_variables("--variables", options.variables).items()),
        expected_s=options.expected_hours and options.expected_hours * 3600,
        run_dir=folders.get("run_dir"),
        data_dir=folders.get("data_dir"),
    )
    if not is_sent:
        return replace(script, arguments=(*_here(options, cwd), *arguments))
    from launch.core.source.find import find

    source = find(options.script, options.module, options.source_dir, cwd)
    first = (source.word,) if options.script else ("-m", str(options.module))
    return replace(
        script,
        arguments=(*first, *arguments),
        cwd=source.cwd,
        requirements=source.requirements,
        source=source,
        digest=source.digest,
    )


def _here(options: ScriptOptions, cwd: Path) -> tuple[str, ...]:
    """The script's words where it runs in the folder in which its user stands."""
    if options.script is None:
        return "-m", str(options.module)
    from launch.core.source.find import existing  # --help does not need it

    existing(cwd / options.script, options.script)
    return (str(options.script),)


def _check_python(path: Path, shown: str) -> None:
    """Raises SettingsError for a file that Python would not run, or, as a notebook, take for one large constant."""
    if path.suffix == ".ipynb":
        raise SettingsError(
            f"--script {shown} is a notebook; name a Python file, such as `jupyter nbconvert --to script` makes."
        )
    try:
        first = path.read_bytes().partition(b"\n")[0]
    except OSError as error:
        raise SettingsError(f"--script {shown} cannot be read ({error.strerror}).") from None
    is_python = path.suffix == ".py" or (first.startswith(b"#!") and b"python" in first)
    if not is_python or b"\0" in first:
        raise SettingsError(
            f"--script {shown} is no Python file, which is called *.py or begins with #!/usr/bin/env python; for a "
            "shell script name the Python file that it runs, with its arguments after --, and give the variables that "
            "it sets as --variables NAME=VALUE."
        )


# The default of the built-in trainer.
OUR_EPOCHS = str(TrainConfig.model_fields["epochs"].default)


def training_from(words: Sequence[str]) -> Training:
    """The training whose `words` these are.  Raises SettingsError if another version wrote them."""
    entry, rest = tuple(words[:2]), list(words[2:])
    if entry == SCRIPT:
        return script_of(parse(rest))
    if entry != ENTRY:
        raise SettingsError(f"job.json names no training that is known: {one_line(' '.join(words))}")
    (config,) = flags.parse(rest, [TrainConfig], prog="job.json", about="", sections={})
    return Classifier(cast(TrainConfig, config))


def epochs_in(words: Sequence[str]) -> str:
    """The number of epochs that a command names, or that our trainer takes where it names none; ? if it is unknown."""
    usual = OUR_EPOCHS if tuple(words[:2]) == ENTRY else "?"
    rest = [*words, "?"]
    return str(rest[rest.index("--epochs") + 1]) if "--epochs" in words else usual
