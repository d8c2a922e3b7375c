"""What the runs of a sweep train: our trainer with their settings, or a script with their arguments."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from launch.core.training.base import Training
from launch.core.training.classifier import classifier_of
from launch.core.training.finding import find_script
from launch.core.training.options import OUR_SETTINGS, SHARED, ScriptOptions
from launch.core.training.script import Script
from launch.sweep.arguments import command_line, is_argument, named
from trainer.errors import SettingsError
from trainer.settings import flags
from trainer.settings.argparser import home_path

Values = Mapping[str, Any]

# On every command line: backends have defaults of their own for these, and a sweep means the same on each.
ALWAYS_GIVEN = {"model": "resnet18", "dataset": "digits", "batch_size": 128, "progress": False}


@dataclass(frozen=True)
class Trained:
    """train: what a run trains; given: its settings on the launcher's command line; arguments: those after --."""

    train: Training
    given: Values
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trainings:
    """cwd: where the launchers are started.  A script's source is read once for all of its runs."""

    cwd: Path
    _found: dict[tuple[ScriptOptions, bool, Any], Script] = field(default_factory=dict)

    def of(self, values: Values, *, is_sent: bool) -> Trained:
        """The training of a run with these values.  is_sent: on machines that do not have this one's files.

        Raises SettingsError for values that contradict each other, and for a script that cannot be run.
        """
        own = {
            name: value for name, value in values.items() if name in ScriptOptions.model_fields and value is not None
        }  # fmt: skip
        (built,) = flags.build(own, [ScriptOptions])
        options, arguments = cast(ScriptOptions, built), named(values)
        if not options.is_given:
            _check_without_script(own, arguments)
            return _ours(values)
        _check_with_script(options, values)
        words = command_line(options.args, arguments)
        shared = {name: values[name] for name in SHARED if values.get(name) is not None}
        script = self._script(options.model_copy(update={"args": ()}), shared, is_sent=is_sent)
        given = {name: value for name, value in own.items() if name != "args"}
        return Trained(replace(script, arguments=(*script.arguments, *words)), {**given, **shared}, words)

    def _script(self, options: ScriptOptions, shared: Values, *, is_sent: bool) -> Script:
        key = (options, is_sent, tuple(sorted((name, str(path)) for name, path in shared.items())))
        if key not in self._found:
            folders = {name: self.cwd / home_path(path) for name, path in shared.items()}
            self._found[key] = find_script(options, (), folders, self.cwd, is_sent=is_sent)
        return self._found[key]


def _ours(values: Values) -> Trained:
    given = {name: value for name, value in values.items() if name in OUR_SETTINGS}
    always = dict(ALWAYS_GIVEN)
    if given.get("global_batch_size") is not None:
        del always["batch_size"]
    given = {**always, **given}
    return Trained(classifier_of(given), given)


def _check_without_script(own: Values, arguments: Values) -> None:
    if given := [*own, *(f"args.{name}" for name in arguments)]:
        raise SettingsError(f"{given[0]} is for a script of your own; give `script: FILE` as well.")


def _check_with_script(options: ScriptOptions, values: Values) -> None:
    if options.script is not None and options.module is not None:
        raise SettingsError("script and module both say what to run; give one of them.")
    for name in values:
        if name in OUR_SETTINGS and name not in SHARED and not is_argument(name):
            raise SettingsError(
                f"{name} is a setting of our trainer, which the script replaces; if the script has one of that name, "
                f"write args.{name}."
            )
