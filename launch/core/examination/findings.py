"""Findings: the results of a check, and what an error of AWS means for it.  Pure."""

import re
from dataclasses import dataclass
from typing import Literal

from launch.core.errors import AwsError, NoAnswer
from trainer.errors import TrainerError

State = Literal["ok", "warning", "missing", "unknown"]

# AWS's codes for something that does not exist.
_ABSENT = re.compile(r"NotFound|NoSuch|Malformed|Unknown$|^404$|InvalidCapacityReservation")


@dataclass(frozen=True)
class Verdict:
    """One thing that a check found.  text: what is there, or is not; remedy: the command that fixes it."""

    state: State
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class Finding:
    """A verdict, with the name of its check."""

    check: str
    verdict: Verdict


class NotExamined(TrainerError):
    """A check needs what an earlier one did not find."""


def ok(text: str) -> Verdict:
    return Verdict("ok", text)


def warning(text: str, remedy: str) -> Verdict:
    return Verdict("warning", text, remedy)


def missing(text: str, remedy: str) -> Verdict:
    return Verdict("missing", text, remedy)


def unknown(text: str, remedy: str = "") -> Verdict:
    return Verdict("unknown", text, remedy)


def of_error(error: TrainerError, remedy: str) -> Verdict:
    """The verdict on an error of a check: our own sentences say what is missing; AWS's refusals leave it unknown."""
    text = str(error).splitlines()[0]
    if isinstance(error, NotExamined):
        return unknown(text)
    if isinstance(error, NoAnswer):
        return unknown(text, "run the same command again")
    if isinstance(error, AwsError) and error.operation and not _ABSENT.search(error.aws_code):
        return unknown(text, split(text)[1])
    return missing(text, remedy)


def split(sentence: str) -> tuple[str, str]:
    """Splits a launcher's sentence into the problem and its remedy."""
    text, _, remedy = sentence.partition("; ")
    return text, remedy.rstrip(".")
