"""The job file, which means the same on every backend, and the user's own defaults, which are written alike.

A backend's own settings may stand in a section of its name, which counts more than what stands outside.  What only
other backends know is a note in the plan.  From weak to strong: the backend's defaults, the user's, the file, flags.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from launch.core import user_file
from launch.core.backend import BACKENDS, Backend, find
from launch.core.options import split
from launch.core.training.options import OUR_SETTINGS, SHARED, TRAINS, ScriptOptions
from trainer.errors import SettingsError, did_you_mean, one_line
from trainer.settings import flags
from trainer.settings.argparser import flag, home_path, setting
from trainer.settings.yaml_file import read_mapping

Models = Sequence[type[BaseModel]]
# Settings that are no defaults: two jobs with one name or folder would be one job, a sweep waits for its runs, and
# what starts a job or lets one pass is said for each.
OF_ONE_JOB = ("script", "module", "args", "source_dir", "job_name", "run_dir", "checkpoint_dir", "wait", "detach",
              "new", "anyway", "yes", "dry_run", "rehearse", "inject", "outcome")  # fmt: skip

OF_EVERY_COMMAND = ("config", "help", "help_all", "version")  # flags that are no settings


@dataclass(frozen=True)
class Settings:
    """What a command line, its file and the user's defaults set, by name."""

    given: Mapping[str, Any]  # by the command line and its file
    usual: Mapping[str, Any]  # the user's defaults
    defaults: Mapping[str, Any]  # the backend's
    files: Mapping[str, str]  # by name of a setting, the file that it is from, if it is from one
    notes: tuple[str, ...] = ()  # on what this backend does not use

    def values(self, defaults: Mapping[str, Any] = flags.NONE) -> dict[str, Any]:
        """All of them, for flags.build().  defaults: in place of the backend's."""
        return flags.over({**self.defaults, **defaults, **self.usual}, self.given)

    def build(self, models: Models, defaults: Mapping[str, Any] = flags.NONE) -> list[BaseModel]:
        """Instances of `models`, as flags.build().  Raises SettingsError, with the file of a wrong value."""
        try:
            return flags.build(self.values(defaults), models)
        except SettingsError as error:
            first = str(error).partition(" ")[0].rstrip(":")
            file = next((file for name, file in self.files.items() if flag(name) == first), None)
            raise SettingsError(f"in {file}: {error}") if file else error from error


def settings(words: Mapping[str, Any], models: Models, backend: Backend) -> Settings:
    """The settings of a job on `backend`.  words: the flags, as flags.given() reads them.  Raises SettingsError."""
    values = dict(words)
    file = values.pop("config", None)
    content: dict[str, Any] = {}
    if file is not None:
        content = read(home_path(file), read_mapping(home_path(file)), models, backend)
    known = _names(models)
    asked = {**content, **values}
    given = dict(backend.adopt(asked))
    unused = [name for name in given if name not in known]
    notes = (f"{file} sets {', '.join(unused)}, which {backend.name} does not use.",) if unused else ()
    defaults = {**backend.defaults, **_of_data(asked)}
    given = {name: value for name, value in given.items() if name in known}
    usual = _fitting(user_defaults(models, backend), given)
    files = dict.fromkeys(usual, str(user_file.path())) | dict.fromkeys(set(content) - set(values), str(file))
    return Settings(given, usual, defaults, files, notes)


def check_flags(words: Sequence[str], models: Models, backend: Backend) -> None:
    """Raise SettingsError for a flag that only other backends have, which a job file may hold for them."""
    known = {*_names(models), *OF_EVERY_COMMAND}
    for word in words:
        name = setting(word.partition("=")[0].removeprefix("--").removeprefix("no-"))
        if not word.startswith("--") or name in known:
            continue
        others = [one for one in BACKENDS if name in _options(one).model_fields]
        if others:
            commands = " and ".join(f"launch.{one}" for one in others)
            raise SettingsError(
                f"{word.partition('=')[0]} is a flag of {commands}, and launch.{backend.name} has none; "
                "a job file may hold it for all of them: infra/jobs/README.md."
            )


def user_defaults(models: Models, backend: Backend) -> dict[str, Any]:
    """What the user's own file sets of `models`.  Raises SettingsError for what belongs to one job."""
    path, content = user_file.path(), user_file.read()
    for name in OF_ONE_JOB:
        if name in content:
            raise SettingsError(f"{path} holds defaults for every job, and {name} is for one; leave it out there.")
    values = backend.adopt(read(path, content, models, backend))
    return {name: value for name, value in values.items() if name in _names(models)}


def _names(models: Iterable[type[BaseModel]]) -> set[str]:
    return {name for model in models for name in model.model_fields}


def read(path: Path, content: Mapping[str, Any], models: Models, backend: Backend) -> dict[str, Any]:
    """The settings in a file, by name, its section for `backend` over the rest.  Raises SettingsError for unknown ones.

    Those that only other backends have stay among them.
    """
    common = [model for model in (*models, *TRAINS) if model is not backend.options]
    values = {name: value for name, value in content.items() if name not in BACKENDS}
    known = _names([*models, *TRAINS])
    _check_names(values, known if known.issuperset(values) else known | _names(map(_options, BACKENDS)), path)
    for name in BACKENDS:
        section = {setting(key): value for key, value in _section(content.get(name), f"{name} in {path}").items()}
        if section:
            _check_names(section, _names([*common, _options(name)]), f"{path}, {name}")
        if name == backend.name:
            values |= section
    return values


def _options(name: str) -> type[BaseModel]:
    return find(name).options


def _section(content: Any, name: str) -> Mapping[str, Any]:
    if content is not None and not isinstance(content, dict):
        raise SettingsError(f"{name} must hold `name: value` lines.")
    return content or {}


def _check_names(given: Iterable[str], known: Iterable[str], place: object) -> None:
    for name in given:
        if name not in known:
            shown = one_line(name)
            raise SettingsError(f"unknown setting {shown!r} in {place}{did_you_mean(shown, known) or '.'}")


def _of_data(given: Mapping[str, Any]) -> dict[str, Any]:
    """The default data set of a job whose data are given: a folder of images."""
    words = split(given.get("data") or ())
    holds_images = any("=" not in word or word.startswith("train=") for word in words)
    return {"dataset": "imagefolder"} if holds_images and not _has_script(given) else {}


def _has_script(given: Mapping[str, Any]) -> bool:
    return bool(given.get("script") or given.get("module"))


def _fitting(usual: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Of the user's defaults, those for this kind of training."""
    others = set(OUR_SETTINGS) - set(SHARED) if _has_script(given) else set(ScriptOptions.model_fields)
    return {name: value for name, value in usual.items() if name not in others}
