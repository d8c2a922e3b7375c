"""The faults of --inject."""

import pytest

from launch.rehearse.faults import Fault, check, parse
from trainer.errors import SettingsError


def test_every_form_is_parsed_and_formatted() -> None:
    forms = {
        "node-dies@epoch:1": Fault("node-dies", number=1),
        "spot-notice@epoch:12": Fault("spot-notice", number=12),
        "disk-full@epoch:2": Fault("disk-full", number=2),
        "no-capacity:zone-a": Fault("no-capacity", where="zone-a"),
        "no-capacity:us-gov-west-1": Fault("no-capacity", where="us-gov-west-1"),
        "slow-network:1gbit": Fault("slow-network", where="1gbit"),
        "launcher-killed@call:5": Fault("launcher-killed", number=5),
        "throttle": Fault("throttle"),
        "sick-node:2": Fault("sick-node", number=2),
    }

    assert parse(list(forms)) == tuple(forms.values())
    assert [str(fault) for fault in forms.values()] == list(forms)
    assert parse(["spot-notice", "sick-node"]) == (Fault("spot-notice", number=1), Fault("sick-node", number=1))


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


def test_a_fault_after_the_last_epoch_is_refused() -> None:
    check(parse(["node-dies@epoch:3", "throttle", "sick-node:9"]), epochs=4)

    with pytest.raises(SettingsError, match=r"--inject node-dies@epoch:4: .*--epochs"):
        check(parse(["node-dies@epoch:4"]), epochs=4)
