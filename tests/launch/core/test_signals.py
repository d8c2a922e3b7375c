"""How a launcher is asked to leave."""

import os
import signal
from collections.abc import Iterator

import pytest

from launch.core.signals import Hangup, hangups, hangups_ignored, unless_gone


@pytest.fixture(autouse=True)
def handlers_stay() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    assert {number: signal.getsignal(number) for number in before} == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_kill_or_a_closed_terminal_ends_the_block(number: signal.Signals) -> None:
    with pytest.raises(Hangup, match=number.name), hangups():
        os.kill(os.getpid(), number)


def test_what_nohup_switched_off_stays_off() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with hangups():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_taking_down_is_not_disturbed_by_a_second_signal() -> None:
    with hangups(), hangups_ignored():
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_closed_pipe_does_not_keep_from_going_on() -> None:
    def broken(text: str) -> None:
        raise BrokenPipeError

    unless_gone(broken)("nobody hears this")
