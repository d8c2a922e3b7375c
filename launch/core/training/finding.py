"""Looks at a script of the user's own: where it is, and what is sent with it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from launch.core.training.options import ScriptOptions
from launch.core.training.script import Script
from launch.core.variables import read_variables
from trainer.errors import SettingsError, one_line
from trainer.files import read_regular


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
        told_s=options.expected_hours and options.expected_hours * 3600,
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
    if not (cwd / options.script).is_file():
        raise SettingsError(f"--script {one_line(options.script)}: no such file; give the path of a Python file.")
    return (str(options.script),)


def _check_python(path: Path, shown: str) -> None:
    """Raises SettingsError for a file that Python would not run, or, as a notebook, take for one large constant."""
    if path.suffix == ".ipynb":
        raise SettingsError(
            f"--script {shown} is a notebook; name a Python file, such as `jupyter nbconvert --to script` makes."
        )
    try:
        first = read_regular(path).partition(b"\n")[0]
    except OSError as error:
        raise SettingsError(f"--script {shown} cannot be read ({error.strerror}).") from None
    is_python = path.suffix == ".py" or (first.startswith(b"#!") and b"python" in first)
    if not is_python or b"\0" in first:
        raise SettingsError(
            f"--script {shown} is no Python file, which is called *.py or begins with #!/usr/bin/env python; for a "
            "shell script name the Python file that it runs, with its arguments after --, and give the variables that "
            "it sets as --variables NAME=VALUE."
        )
