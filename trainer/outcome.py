"""How a run ended, as data: outcome.json, which every run leaves in its folder.  Torch-free.

The trainer writes it without a price; a launcher that bills writes it anew with one.  Programs read it,
not log lines.
"""

import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from trainer.contract import OUTCOME, Exit
from trainer.errors import TrainerError
from trainer.files import write_atomically
from trainer.settings.hidden import without_secrets

# Records an exit code and a sentence; the first call counts, later ones change nothing.
Record = Callable[[int, str], None]


def no_record(exit_code: int, reason: str) -> None:
    """A Record for ranks other than the first, which writes for all of them."""


# interrupted: saved, and goes on when it is started again; stopped: somebody asked for its end.
State = Literal["done", "failed", "interrupted", "stopped"]

LARGEST = 1e12  # seconds or USD
STOPPED_CODES = (129, 130, 143)  # 128 + SIGHUP, SIGINT, SIGTERM


@dataclass(frozen=True)
class Outcome:
    """exit_code: of the command, see trainer.contract.Exit; reason: one sentence, empty for a run that is done.

    seconds: of wall time, from its start to its end; usd: what it cost, None where it costs nothing or is not known.
    job: its name, where it has one; ended: UTC, ISO 8601.
    """

    state: State
    exit_code: int
    reason: str = ""
    seconds: float | None = None
    usd: float | None = None
    job: str = ""
    ended: str = ""

    def __post_init__(self) -> None:
        """More people read an outcome than the output of a training, whose own words a reason may be.

        On one line: further ones would look like a launcher's own words.
        """
        object.__setattr__(self, "reason", " ".join(without_secrets(self.reason).split()))

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    def write(self, folder: Path) -> None:
        """Writes outcome.json into `folder`, which is made if it is not there.  Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / OUTCOME, self.as_json())


def state_of(exit_code: int) -> State:
    """The state that an exit code stands for."""
    if exit_code == Exit.DONE:
        return "done"
    if exit_code == Exit.INTERRUPTED:
        return "interrupted"
    return "stopped" if exit_code in STOPPED_CODES else "failed"


def parse(text: str | bytes) -> Outcome | None:
    """The outcome in the text of an outcome.json; None where it is damaged, so that readers fall back on the rest."""
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or content.get("state") not in get_args(State):
        return None
    known = {field.name for field in fields(Outcome)}
    kept = {name: value for name, value in content.items() if name in known}
    return Outcome(**kept) if _fits(kept) else None


def _fits(kept: Mapping[str, Any]) -> bool:
    """Whether the fields of an Outcome are of its types: a script may leave an outcome.json of its own."""
    amounts = all(_is_amount(kept.get(name)) for name in ("seconds", "usd"))
    texts = all(isinstance(kept.get(name, ""), str) for name in ("reason", "job", "ended"))
    return amounts and texts and isinstance(kept.get("exit_code"), int)


def read(folder: Path) -> Outcome | None:
    """The outcome in `folder`; None where there is none, or it is damaged."""
    try:
        return parse((folder / OUTCOME).read_bytes())
    except OSError:
        return None


def _is_amount(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and abs(value) < LARGEST)  # which NaN is not


@contextmanager
def recorded(find_folder: Callable[[], Path | None]) -> Iterator[Record]:
    """Leaves the outcome of the run inside the block in a folder, however the block ends.

    Nothing that goes wrong here hides how the run ended.  find_folder: asked when it has; None: leave none.
    Yields a function for a caller that knows better than the exception why the run ends, or that ends the process.
    """
    began, recorded_already = time.monotonic(), False

    def record(exit_code: int, reason: str) -> None:
        nonlocal recorded_already
        if recorded_already:
            return
        folder = find_folder()
        if folder is None:
            return
        recorded_already = True
        seconds, ended = round(time.monotonic() - began, 3), datetime.now(UTC).isoformat(timespec="seconds")
        with suppress(OSError):
            Outcome(state_of(exit_code), int(exit_code), reason, seconds, ended=ended).write(folder)

    try:
        yield record
    except TrainerError as error:
        record(error.code, str(error))
        raise
    except KeyboardInterrupt:
        record(128 + signal.SIGINT, "stopped by Ctrl-C")
        raise
    except Exception as bug:
        record(Exit.BUG, f"{type(bug).__name__}: {bug}")
        raise
    record(Exit.DONE, "")
