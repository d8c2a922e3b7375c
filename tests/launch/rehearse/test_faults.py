"""What --inject understands."""

import pytest

from launch.rehearse.faults import Fault, parse
from trainer.errors import SettingsError


def test_every_form_is_understood_and_written_back() -> None:
    words = ["node-dies@epoch:1", "spot-notice@epoch:12", "no-capacity:zone-a", "launcher-killed@call:5", "throttle"]

    faults = parse(words)

    assert faults == (
        Fault("node-dies", number=1),
        Fault("spot-notice", number=12),
        Fault("no-capacity", where="zone-a"),
        Fault("launcher-killed", number=5),
        Fault("throttle"),
    )
    assert [str(fault) for fault in faults] == words


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("node-die@epoch:1", "--inject node-die@epoch:1: unknown fault; did you mean 'node-dies'?"),
        ("node-dies", "--inject node-dies: must look like node-dies@epoch:N."),
        ("node-dies@epoch:0", "must look like node-dies@epoch:N."),
        ("launcher-killed@epoch:1", "must look like launcher-killed@call:N."),
        ("no-capacity:us-east-1a", "must look like no-capacity:zone-X."),
        ("throttle@call:1", "must look like throttle."),
    ],
)
def test_a_wrong_one_is_refused_with_its_form(word: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parse([word])

    assert sentence in str(refused.value)
