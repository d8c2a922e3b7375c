"""How a run ended, as data: outcome.json, which every run writes into its folder.  Torch-free.

The trainer writes it without a cost; a launcher that costs money rewrites it with one.  Programs read this file
instead of log lines.
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

# Records an exit code and a reason; only the first call has an effect.
Record = Callable[[int, str], None]


def no_record(exit_code: int, reason: str) -> None:
    """A Record that does nothing, for ranks other than rank 0, which records for all."""


# interrupted: saved, and resumes when it is started again; stopped: a user stopped it.
State = Literal["done", "failed", "interrupted", "stopped"]

LARGEST = 1e12  # seconds or USD
STOPPED_CODES = (129, 130, 143)  # 128 + SIGHUP, SIGINT, SIGTERM


@dataclass(frozen=True)
class Outcome:
    """The content of outcome.json."""

    state: State
    exit_code: int  # of the command, see trainer.contract.Exit
    reason: str = ""  # one sentence; empty if the run is done
    seconds: float | None = None  # wall time from start to end
    usd: float | None = None  # cost; None if free or unknown
    job: str = ""  # name of the job, if it has one
    ended: str = ""  # UTC, ISO 8601

    def __post_init__(self) -> None:
        """Remove secrets from the reason, which may quote the training's output, and put it on one line."""
        object.__setattr__(self, "reason", " ".join(without_secrets(self.reason).split()))

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    def write(self, folder: Path) -> None:
        """Write outcome.json into `folder`, created if missing.  Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / OUTCOME, self.as_json())


def state_of(exit_code: int) -> State:
    """The state for an exit code."""
    if exit_code == Exit.DONE:
        return "done"
    if exit_code == Exit.INTERRUPTED:
        return "interrupted"
    return "stopped" if exit_code in STOPPED_CODES else "failed"


def parse(text: str | bytes) -> Outcome | None:
    """The outcome in the text of an outcome.json, or None if it is damaged."""
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
    """Whether the values have the types of an Outcome's fields: a user's script may write its own outcome.json."""
    amounts = all(_is_amount(kept.get(name)) for name in ("seconds", "usd"))
    texts = all(isinstance(kept.get(name, ""), str) for name in ("reason", "job", "ended"))
    return amounts and texts and isinstance(kept.get("exit_code"), int)


def read(folder: Path) -> Outcome | None:
    """The outcome in `folder`, or None if it is missing or damaged."""
    try:
        return parse((folder / OUTCOME).read_bytes())
    except OSError:
        return None


def _is_amount(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and abs(value) < LARGEST)  # False for NaN


@contextmanager
def recorded(find_folder: Callable[[], Path | None]) -> Iterator[Record]:
    """Record the outcome of the run inside the block, however the block ends.  Errors in writing it are ignored.

    find_folder: called at the end for the folder to write to; None: write nothing.  Yields a Record for callers that
    know the reason better than the exception does, or that end the process.
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
