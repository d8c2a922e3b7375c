"""A training that is read back from the words of its command, as they stand in a job.json."""

from collections.abc import Sequence
from typing import cast

from launch.core.training.base import Training
from launch.core.training.classifier import ENTRY, Classifier
from launch.core.training.script import ENTRY as SCRIPT
from launch.core.training.script import script_of
from trainer.config import TrainConfig
from trainer.errors import SettingsError, one_line
from trainer.script.config import parse
from trainer.settings import flags

# No launcher writes them: they would end this program, or read a file of its user's.
NO_SETTINGS = ("--help", "--version", "--config")

# How many our trainer takes where nobody says.
OUR_EPOCHS = str(TrainConfig.model_fields["epochs"].default)


def training_from(words: Sequence[str]) -> Training:
    """The training whose `words` these are.  Raises SettingsError if another version wrote them, or somebody else."""
    entry, rest = tuple(words[:2]), list(words[2:])
    settings = [str(word) for word in (rest[: rest.index("--")] if "--" in rest else rest)]
    if any(word.partition("=")[0] in NO_SETTINGS or word.startswith("-h") for word in settings):
        raise SettingsError("job.json holds a command that no launcher writes.")
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
