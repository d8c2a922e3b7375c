"""Options of launch.doctor beside the job's; the flags, and their help, follow from them."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from launch.core.backend import all_with
from launch.core.options import Options

# Those that say what their jobs need of the account; the first is the usual one.
EXAMINED = tuple(all_with(lambda backend: bool(backend.examination)))
if TYPE_CHECKING:
    Examined = str
else:
    Examined = Literal[EXAMINED]  # --help names them, and no other is accepted
# What is quicker to type -> the flag that it stands for.
SHORT = {"--for": "--backend", "--job": "--config", "--json": "--format=json"}


class DoctorOptions(Options):
    """What is examined, and how it is shown."""

    backend: Examined = Field(EXAMINED[0], description="where the job would run; --for is short for it")
    format: Literal["table", "json"] = Field("table", description="output format; --json is short for --format json")


def spelt_out(argv: list[str]) -> list[str]:
    """The command line with every short form written out: --for ec2 or --for=ec2 becomes --backend=ec2."""
    words = []
    for word in argv:
        name, equals, value = word.partition("=")
        words.append(SHORT.get(name, name) + equals + value)
    return words


def backend_in(argv: list[str]) -> str:
    """The backend that a spelt-out command line names, right or wrong; the usual one where it names none."""
    backend = EXAMINED[0]
    for place, word in enumerate(argv):
        if word == "--backend" and place + 1 < len(argv):
            backend = argv[place + 1]
        elif word.startswith("--backend="):
            backend = word.partition("=")[2]
    return backend
