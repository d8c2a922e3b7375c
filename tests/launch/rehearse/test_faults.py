"""The faults of --inject."""

import pytest

from launch.rehearse.faults import Fault, check, parse
from trainer.errors import SettingsError


def test_every_form_is_parsed_and_formatted() -> None:
    words = ["node-dies@epoch:1", "spot-notice@epoch:12", "disk-full@epoch:2", "no-capacity:zone-a",
             "slow-network:1gbit", "launcher-killed@call:5", "throttle", "sick-node:2",
             "no-capacity:us-gov-west-1"]  # fmt: skip

    faults = parse(words)

    assert faults == (
        Fault("node-dies", number=1),
        Fault("spot-notice", number=12),
        Fault("disk-full", number=2),
        Fault("no-capacity", where="zone-a"),
        Fault("slow-network", where="1gbit"),
        Fault("launcher-killed", number=5),
        Fault("throttle"),
        Fault("sick-node", number=2),
        Fault("no-capacity", where="us-gov-west-1"),
    )
    assert [str(fault) for fault in faults] == words


def test_the_default_epoch_of_a_fault_is_the_first() -> None:
    assert parse(["spot-notice", "disk-full"]) == (Fault("spot-notice", number=1), Fault("disk-full", number=1))


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("node-die@epoch:1", "--inject node-die@epoch:1: unknown fault; did you mean 'node-dies'?"),
        ("node-dies", "--inject node-dies: must look like node-dies@epoch:N."),
        ("node-dies@epoch:0", "must look like node-dies@epoch:N."),
        ("launcher-killed@epoch:1", "must look like launcher-killed@call:N."),
        ("no-capacity:us-east-1a", "must look like no-capacity:zone-X."),
        ("slow-network:fast", "must look like slow-network:RATE."),
        ("sick-node@epoch:1", "must look like sick-node[:N]."),
        ("throttle@call:1", "must look like throttle."),
    ],
)
def test_a_wrong_fault_is_refused_with_its_form(word: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parse([word])

    assert sentence in str(refused.value)


def test_one_node_is_sick_by_default() -> None:
    assert parse(["sick-node"]) == (Fault("sick-node", number=1),)
    check(parse(["sick-node:9"]), epochs=1)  # it is no epoch


def test_a_fault_after_the_last_epoch_is_refused() -> None:
    check(parse(["node-dies@epoch:3", "throttle"]), epochs=4)

    with pytest.raises(SettingsError) as refused:
        check(parse(["node-dies@epoch:4"]), epochs=4)

    sentence = "--inject node-dies@epoch:4: the training ends with epoch 4; choose an earlier epoch, or more --epochs."
    assert str(refused.value) == sentence
