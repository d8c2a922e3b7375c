"""Accounts that lack one thing each: what makes them so, and how what the doctor says is compared."""

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from launch.aws.client import Aws
from tests.launch.doctor.account import Patient, only


@dataclass(frozen=True)
class Broken:
    """An account: what makes it so, and what its doctor shall say, in which of its checks."""

    what: str
    check: str
    state: str
    text: str
    remedy: str
    harm: Callable[[Patient], object] = lambda patient: None
    words: tuple[str, ...] = ()


def assert_named(patient: Patient, broken: Broken) -> None:
    """What lacks is found, with its remedy."""
    broken.harm(patient)
    with only(broken.check):
        found = patient.examine(*broken.words, code=4 if broken.state == "missing" else 0)[broken.check]

    assert found["state"] == broken.state, found
    assert broken.text in found["text"]
    assert broken.remedy in found["remedy"]
    assert_can_be_typed(found["remedy"])


def assert_can_be_typed(remedy: str) -> None:
    """A document is a file:// or JSON, which is how the AWS CLI takes it, and no placeholder is left."""
    assert not re.search(r"@[A-Z]+@", remedy)
    if "aws " not in remedy or "--" not in remedy:
        return
    words = shlex.split(remedy)
    for place, word in enumerate(words):
        if word.endswith("-document"):
            document = words[place + 1]
            assert document.startswith("file://") or json.loads(document)


def delete(service: str, operation: str, **params: Any) -> Callable[[Patient], None]:
    def harm(patient: Patient) -> None:
        Aws("us-east-1").call(service, operation, params)

    return harm
