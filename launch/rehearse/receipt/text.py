"""A receipt as text, for the end of a rehearsal.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from launch.core.tables import table
from launch.rehearse.receipt.facts import Receipt, Requests
from launch.rehearse.stage.scene import PHASES

WIDTH, NO_BREAK = 80, "\0"


def as_text(receipt: Receipt) -> str:
    """The receipt for a reader with 80 columns."""
    kept = {
        "receipt.html": "this, as a page with a replay",
        "curves.png": "loss and accuracy",
        "model.pt": "the weights",
        "metrics.jsonl": "each epoch",
        "checkpoints/": "to go on from",
        "logs/": "what the ranks said",
        "requests.jsonl": "every request",
        "job/": "plan, cluster, exit records, boot logs",
    }
    there = {*receipt.files, *(f"{path.partition('/')[0]}/" for path in receipt.files), "receipt.html"}
    sections = {
        f"receipt of job {receipt.job}": [f"{name}: exit code {code}" for name, code in receipt.commands],
        "trouble": _wrapped(receipt.trouble),
        "faults": [row for at, what in receipt.faults for row in _fault(at, what)],
        f"time: {receipt.total:.1f} s": [f"{name:<11}{receipt.seconds[name]:6.1f} s" for name in PHASES],
        f"nodes: {_types(receipt)}": _nodes(receipt) if receipt.nodes else [],
        f"requests: {receipt.asked()}": _requests(receipt),
        f"resources: {receipt.resources()}": [
            f"{count} x {kind}" + (f", {receipt.left[kind]} LEFT" if kind in receipt.left else "")
            for kind, count in sorted(receipt.made.items())
        ]
        + ["not counted: the job folder and the logs, which stay on AWS, too"] * bool(receipt.made),
        f"on AWS: about {receipt.usd:.4f} USD": ["nodes and volumes for these seconds, on demand in us-east-1"],
        f"kept in {receipt.kept}": [f"{name:<16}{what}" for name, what in kept.items() if name in there],
        "what differs from AWS": [row for text in receipt.differences for row in _wrapped(text)],
    }
    blocks = [
        "\n".join([title, *(f"  {line.rstrip()}" for line in lines)]) for title, lines in sections.items() if lines
    ]
    return "\n\n".join([*blocks, f"receipt: {receipt.kept / 'receipt.html'}"])


def _requests(receipt: Receipt) -> list[str]:
    rows = [
        row
        for who, by_launcher in (("launcher", True), ("nodes", False))
        for what, wrote in (("wrote", True), ("read", False))
        for row in _counts(f"{who} {what}", receipt.of_requests(by_launcher=by_launcher, wrote=wrote))
    ]
    refused = sum(count for one in receipt.requests for status, count in one.errors.items() if status >= 500)
    return [*rows, *([f"{refused} of them got an error of AWS's own"] if refused else [])]


def _counts(who: str, asked: Sequence[Requests]) -> list[str]:
    """Wrapped; without a break within a name and its count."""
    words = ", ".join(f"{one.name} {one.count}".replace(" ", NO_BREAK) for one in asked)
    total = sum(one.count for one in asked)
    return [row.replace(NO_BREAK, " ") for row in _wrapped(f"{who} {total}: {words}")] if asked else []


def _fault(at: float | None, what: str) -> list[str]:
    return _wrapped(f"{at:.1f} s  {what}" if at is not None else what)


def _types(receipt: Receipt) -> str:
    """What they all are; they may be of several types, and in several zones."""
    return ", ".join(sorted({f"{node.type} in {node.zone}" for node in receipt.nodes}))


def _nodes(receipt: Receipt) -> list[str]:
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


def _wrapped(text: str) -> list[str]:
    return wrap(text, WIDTH - 2, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
