"""What an acceptance run tried: acceptance.json, a page of it, and how AWS's answers differ from the embedded ones."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

EMBEDDED = Path(__file__).with_name("embedded.json")
RECORD, PAGE = "acceptance.json", "acceptance.md"

# Operation -> code -> fields of its answers.
Answers = dict[str, dict[str, list[str]]]


@dataclass(frozen=True)
class Claim:
    """A promise that was tried.  seen: what was found in its place, or as its proof."""

    text: str
    held: bool
    seen: str = ""


@dataclass
class Tried:
    """A case.  skipped: why, if so; commands: each with its exit code and seconds."""

    case: str
    skipped: str = ""
    claims: list[Claim] = field(default_factory=list)
    commands: list[tuple[str, int, float]] = field(default_factory=list)
    answers: Answers = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def held(self) -> bool:
        return all(claim.held for claim in self.claims)


@dataclass
class Record:
    """A run.  place: the region, or "embedded"; most_usd: what it may cost; ended: how, empty if to its end."""

    place: str
    started: str
    most_usd: float
    tried: list[Tried] = field(default_factory=list)
    ended: str = ""
    left: list[str] = field(default_factory=list)

    @property
    def held(self) -> bool:
        return not self.ended and not self.left and all(tried.held for tried in self.tried)

    def write(self, folder: Path) -> None:
        """Writes the record and its page, after every case: a run may be killed."""
        folder.mkdir(parents=True, exist_ok=True)
        content = {**asdict(self), "held": self.held, "differences": differences(self.answers, embedded())}
        (folder / RECORD).write_text(json.dumps(content, indent=1) + "\n")
        (folder / PAGE).write_text(self.page())

    @property
    def answers(self) -> Answers:
        """Of all cases."""
        return merged(tried.answers for tried in self.tried)

    def page(self) -> str:
        """For a reader, in Markdown."""
        lines = [f"# Acceptance: {self.place}, {self.started}", "", self._verdict(), ""]
        for tried in self.tried:
            lines += _section(tried)
        rows = differences(self.answers, embedded())
        lines += ["## Where the embedded AWS differs", ""]
        lines += [f"- {row}" for row in rows] or ["Nowhere: it gave every answer with the same code and fields."]
        return "\n".join([*lines, ""])

    def _verdict(self) -> str:
        claims = [claim for tried in self.tried for claim in tried.claims]
        held = sum(claim.held for claim in claims)
        text = f"{held} of {len(claims)} claims held in {len(self.tried)} cases; at most {self.most_usd:.2f} USD."
        text += f"  It ended early: {self.ended}." if self.ended else ""
        return text + (f"  Left behind: {', '.join(self.left)}." if self.left else "  Nothing was left behind.")


def _section(tried: Tried) -> list[str]:
    lines = [
        f"## {tried.case}",
        "",
        f"{tried.seconds:.0f} s." + (f"  Skipped: {tried.skipped}." if tried.skipped else ""),
    ]
    lines += [f"- {'held' if claim.held else '**FAILED**'}: {claim.text}" + (f" ({claim.seen})" if claim.seen else "")
              for claim in tried.claims]  # fmt: skip
    lines += [f"- `{words}`: exit code {code}, {seconds:.0f} s" for words, code, seconds in tried.commands]
    return [*lines, ""]


def merged(all_answers: Iterable[Answers]) -> Answers:
    together: dict[str, dict[str, set[str]]] = {}
    for answers in all_answers:
        for operation, codes in answers.items():
            for code, fields in codes.items():
                together.setdefault(operation, {}).setdefault(code, set()).update(fields)
    return {
        operation: {code: sorted(fields) for code, fields in sorted(codes.items())}
        for operation, codes in sorted(together.items())
    }


def read_answers(path: Path) -> Answers:
    """The answers that spy.py noted; a line that was cut off is left out."""
    found: list[Answers] = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            row: dict[str, Any] = json.loads(line)
        except ValueError:
            continue
        found.append({row["operation"]: {row["code"]: row["fields"]}})
    return merged(found)


def embedded() -> Answers:
    """What the embedded AWS gave when this suite was last rehearsed."""
    return json.loads(EMBEDDED.read_text()) if EMBEDDED.exists() else {}


def differences(here: Answers, there: Mapping[str, Mapping[str, list[str]]]) -> list[str]:
    """What an AWS answered that the embedded one never did: a list of what to mend in it."""
    rows = []
    for operation, codes in here.items():
        if operation not in there:
            rows.append(f"{operation}: never called on the embedded AWS")
            continue
        for code, fields in codes.items():
            if code not in there[operation]:
                rows.append(f"{operation}: answered {code}; the embedded AWS only {', '.join(there[operation])}")
            elif more := sorted(set(fields) - set(there[operation][code])):
                rows.append(f"{operation}: fields that the embedded AWS lacks: {', '.join(more)}")
    return rows
