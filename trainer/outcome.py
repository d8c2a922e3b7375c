"""How a run ended, as data: outcome.json, which every run leaves in its folder.  Torch-free.

The trainer writes it without a price; a launcher that bills writes it anew with one.  Programs read it; nobody
has to read log lines.
"""

import json
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from trainer.contract import OUTCOME, Exit
from trainer.files import write_atomically

# interrupted: saved, and goes on when it is started again; stopped: somebody asked for its end.
State = Literal["done", "failed", "interrupted", "stopped"]

STOPPED_CODES = (129, 130, 143)  # 128 + SIGHUP, SIGINT, SIGTERM


@dataclass(frozen=True)
class Outcome:
    """exit_code: of the command, see trainer.contract.Exit; reason: one sentence, empty for a run that is done.

    seconds: of wall time, from its start to its end; usd: what it cost, None where nobody bills or it is not known.
    job: its name, where it has one; ended: UTC, ISO 8601.
    """

    state: State
    exit_code: int
    reason: str = ""
    seconds: float | None = None
    usd: float | None = None
    job: str = ""
    ended: str = ""

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
    except ValueError:
        return None
    if not isinstance(content, dict) or content.get("state") not in get_args(State):
        return None
    known = {field.name for field in fields(Outcome)}
    kept = {name: value for name, value in content.items() if name in known}
    for name in ("seconds", "usd"):
        if not _is_amount(kept.get(name)):
            return None
    if not isinstance(kept.get("exit_code"), int):
        return None
    return Outcome(**kept)


def read(folder: Path) -> Outcome | None:
    """The outcome in `folder`; None where there is none, or it is damaged."""
    try:
        return parse((folder / OUTCOME).read_bytes())
    except OSError:
        return None


def _is_amount(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and math.isfinite(value))
