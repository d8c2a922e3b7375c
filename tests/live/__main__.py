"""`python -m tests.live`: see README.md, and `make acceptance`."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from tests.live.cases import CASES, Case
from tests.live.record import EMBEDDED, PAGE, Record
from tests.live.suite import Place, Suite

ASK = "ACCEPTANCE"  # aws: on a real account; embedded: here
LIMIT, DEFAULT_LIMIT_USD = "ACCEPTANCE_MAX_USD", 3.0
REGION, GPU, ONLY = "ACCEPTANCE_REGION", "ACCEPTANCE_GPU", "ACCEPTANCE_CASES"


class Refused(Exception):
    """Why nothing is run."""


class Asked(BaseException):
    """A signal asks the suite to end."""


@dataclass(frozen=True)
class Wanted:
    """What the environment asks for."""

    place: str
    region: str
    cases: tuple[Case, ...]
    most_usd: float


def wanted(env: Mapping[str, str]) -> Wanted:
    """Raises Refused without the opt-in, or for more than the limit."""
    place = env.get(ASK, "")
    if place not in ("aws", "embedded"):
        raise Refused(f"this spends money on a real account: set {ASK}=aws, or {ASK}=embedded to rehearse it here.")
    region = env.get(REGION, "")
    if place == "aws" and not region:
        raise Refused(f"name the region: {REGION}=us-east-1")
    names = [name.strip() for name in env.get(ONLY, "").split(",") if name.strip()]
    if unknown := set(names) - {case.name for case in CASES}:
        known = ", ".join(case.name for case in CASES)
        raise Refused(f"{ONLY}: no case {', '.join(sorted(unknown))}; there are {known}.")
    is_gpu = bool(env.get(GPU)) and place == "aws"
    there = tuple(case for case in CASES if (is_gpu or not case.is_gpu) and (place == "aws" or not case.only_aws))
    cases = tuple(case for case in there if not names or case.name in names)
    most = sum(case.most_usd for case in cases)
    limit = _limit(env.get(LIMIT, ""))
    if most > limit:
        raise Refused(
            f"these cases may cost {most:.2f} USD, and the limit is {limit:.2f} ({LIMIT}); name fewer: {ONLY}."
        )
    return Wanted(place, region, cases, most)


def _limit(text: str) -> float:
    try:
        limit = float(text or DEFAULT_LIMIT_USD)
    except ValueError:
        raise Refused(f"{LIMIT}={text}: must be USD, such as 2.") from None
    if not 0 < limit <= DEFAULT_LIMIT_USD:
        raise Refused(f"{LIMIT}={text}: from 0 to {DEFAULT_LIMIT_USD:g} USD; the suite spends no more.")
    return limit


def main(env: Mapping[str, str]) -> int:
    """Runs the cases, and cleans up whatever happens.  0: every claim held, and nothing is left."""
    try:
        ask = wanted(env)
    except Refused as why:
        print(f"refused: {why}", file=sys.stderr)
        return 2
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, _on_signal)
    with _place(ask) as place:
        now = datetime.now(UTC)
        folder = Path.cwd() / "runs" / f"acceptance-{now:%Y%m%d-%H%M%S}"
        record = Record(place.name, f"{now:%Y-%m-%d %H:%M} UTC", ask.most_usd)
        record.write(folder)
        suite = Suite(place, folder, f"{now:%m%d%H%M%S}", record)
        print(
            f"acceptance in {place.name}: {len(ask.cases)} cases, at most {ask.most_usd:.2f} USD; {folder}", flush=True
        )
        _run(suite, ask.cases)
        _end(suite, folder)
        if place.name == "embedded" and env.get("ACCEPTANCE_KEEP") and record.held:
            _keep(record)
    return 0 if record.held else 1


def _place(ask: Wanted) -> AbstractContextManager[Place]:
    if ask.place == "embedded":
        from tests.live.embedded import opened  # needs moto

        return opened()
    from tests.live.aws import RealPlace

    return nullcontext(RealPlace(ask.region))


def _run(suite: Suite, cases: Sequence[Case]) -> None:
    """Every case, or until a signal."""
    try:
        for case in cases:
            with suite.trying(case.name):
                case.run(suite)
    except (Asked, KeyboardInterrupt) as why:
        suite.record.ended = f"{type(why).__name__} {why}".strip()
        print(f"ended by {why}; cleaning up", flush=True)


def _end(suite: Suite, folder: Path) -> None:
    """Removes what is left, deaf to signals, and says how it went."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    with suite.trying("clean up"):
        suite.clean()
        if suite.made_stack and suite.set_up():
            next(case for case in CASES if case.name == "infra down").run(suite)
        suite.record.left = [*suite.left(), *(suite.set_up() if suite.made_stack else ())]
        suite.claim("nothing is left behind", not suite.record.left, ", ".join(suite.record.left))
    suite.record.write(folder)
    print(f"{'held' if suite.record.held else 'FAILED'}: {folder / PAGE}", flush=True)


def _keep(record: Record) -> None:
    """Makes this rehearsal what runs on AWS are compared with."""
    import json

    EMBEDDED.write_text(json.dumps(record.answers, indent=1) + "\n")


def _on_signal(signum: int, _frame: FrameType | None) -> None:
    raise Asked(signal.Signals(signum).name)


if __name__ == "__main__":
    sys.exit(main(os.environ))
