"""Findings as a table, or as JSON.  Pure."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from launch.core.examination.findings import Finding, State
from launch.core.tables import table

STATES: tuple[State, ...] = ("missing", "warning", "unknown", "ok")


def as_text(findings: Sequence[Finding], title: str) -> str:
    """A row per finding, and below it what fixes those that are not ok."""
    rows = [(finding.check, finding.verdict.state, finding.verdict.text) for finding in findings]
    return "\n".join(
        [title, "", table(("check", "state", "what was found"), rows), *_remedies(findings), "", summary(findings)]
    )


def _remedies(findings: Sequence[Finding]) -> list[str]:
    rows = [
        (finding.check, finding.verdict.remedy)
        for state in STATES
        for finding in findings
        if finding.verdict.state == state and finding.verdict.remedy
    ]
    unique = list(dict.fromkeys(rows))
    return ["", "to fix it:", table(("check", "do this"), unique)] if unique else []


def summary(findings: Sequence[Finding]) -> str:
    """1 missing, 2 warnings, 3 unknown, 20 ok."""
    counts = Counter(finding.verdict.state for finding in findings)
    plural = "s" if counts["warning"] != 1 else ""
    return ", ".join(f"{counts[state]} {state}{plural if state == 'warning' else ''}" for state in STATES)


def as_data(findings: Sequence[Finding]) -> list[dict[str, str]]:
    """The findings for a program."""
    return [
        {"check": finding.check, "state": finding.verdict.state, "text": finding.verdict.text,
         "remedy": finding.verdict.remedy}
        for finding in findings
    ]  # fmt: skip


def as_json(reports: Sequence[Mapping[str, object]]) -> str:
    """One report, or a list of one per region."""
    return json.dumps(reports[0] if len(reports) == 1 else reports, indent=2)
