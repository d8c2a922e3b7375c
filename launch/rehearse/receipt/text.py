"""A receipt as text, for the end of a rehearsal.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from textwrap import wrap

from launch.core.terminal import table
from launch.rehearse.backend import PHASES
from launch.rehearse.receipt.facts import CONTENTS, Receipt

WIDTH, NO_BREAK = 80, "\0"


def as_text(receipt: Receipt) -> str:
    """The receipt as text of at most 80 columns."""
    sections = {
        f"receipt of job {receipt.job}": [f"{name}: exit code {code}" for name, code in receipt.commands],
        "trouble": _wrapped(receipt.trouble),
        "faults": _faults(receipt),
        f"time: {receipt.total:.1f} s": [f"{name:<11}{receipt.seconds[name]:6.1f} s" for name in PHASES],
        f"nodes: {', '.join(receipt.machines)}": _nodes(receipt),
        f"requests: {receipt.request_summary}": _requests(receipt),
        f"resources: {receipt.resource_summary}": _resources(receipt),
        f"on AWS: about {receipt.usd:.4f} USD": [
            f"nodes and volumes for these seconds, on demand in {receipt.regions};",
            "the plan above has the expected price of the whole job",
        ],
        f"results in {receipt.folder}": _contents(receipt),
        "differences from AWS": [row for text in receipt.differences for row in _wrapped(text)],
    }
    blocks = [_block(title, lines) for title, lines in sections.items() if lines]
    return "\n\n".join([*blocks, f"receipt: {receipt.folder / 'receipt.html'}"])


def _block(title: str, lines: Sequence[str]) -> str:
    return "\n".join([title, *(f"  {line.rstrip()}" for line in lines)])


def _faults(receipt: Receipt) -> list[str]:
    texts = [f"{at:.1f} s  {text}" if at is not None else text for at, text in receipt.faults]
    return [row for text in texts for row in _wrapped(text)]


def _nodes(receipt: Receipt) -> list[str]:
    if not receipt.nodes:
        return []
    rows = [
        (
            node.name,
            "" if node.rank is None else str(node.rank),
            f"{node.began:.1f} s",
            f"{node.ended - node.began:.1f} s",
            node.how,
        )
        for node in receipt.nodes
    ]
    return [row[2:] for row in table(("node", "rank", "from", "for", "end"), rows).splitlines()]


def _requests(receipt: Receipt) -> list[str]:
    rows = []
    for who, by_launcher in (("launcher", True), ("nodes", False)):
        for kind, is_write in (("write", True), ("read", False)):
            names = [r.name for r in receipt.requests if (r.by_launcher, r.is_write) == (by_launcher, is_write)]
            rows += _counts(kind, who, names) if names else []
    errors = sum(request.status >= 500 for request in receipt.requests)
    return [*rows, f"errors on AWS's side: {errors}"] if errors else rows


def _counts(kind: str, who: str, names: Sequence[str]) -> list[str]:
    """Lines with the count of each name, never wrapped between a name and its count."""
    counted = ", ".join(f"{name}{NO_BREAK}{count}" for name, count in sorted(Counter(names).items()))
    text = f"{len(names)} {kind}{'s' if len(names) > 1 else ''} by the {who}: {counted}"
    return [row.replace(NO_BREAK, " ") for row in _wrapped(text)]


def _resources(receipt: Receipt) -> list[str]:
    if not receipt.made:
        return []
    rows = []
    for kind, count in sorted(receipt.made.items()):
        left = f", {receipt.left[kind]} LEFT" if kind in receipt.left else ""
        rows.append(f"{count} x {kind}{left}")
    return [*rows, "not counted: the job folder and the logs, which stay on AWS as well"]


def _contents(receipt: Receipt) -> list[str]:
    folders = {path.partition("/")[0] for path in receipt.files if "/" in path}
    there = {"receipt.html", *receipt.files, *folders}
    return [f"{name + '/' * (name in folders):<16}{text}" for name, text in CONTENTS.items() if name in there]


def _wrapped(text: str) -> list[str]:
    return wrap(text, WIDTH - 2, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
