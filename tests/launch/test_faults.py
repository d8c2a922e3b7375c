"""tests.launch.faults and tests.launch.ec2.account: that each fault and each stand-in does what it says."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from launch.aws.client import Aws
from launch.aws.refusals import ATTEMPTS
from launch.core.errors import AwsError, NoAnswer
from tests.launch.ec2.account import Account
from tests.launch.faults import (
    EVERY,
    Died,
    Faults,
    Request,
    died_after,
    died_before,
    injected,
    lost,
    refused,
    refused_after,
    throttled,
    unreachable,
)

VOLUME = {"AvailabilityZone": "us-east-1a", "Size": 10, "VolumeType": "gp3", "ClientToken": "t"}


def create_volume(aws: Aws) -> str:
    return str(aws.call("ec2", "CreateVolume", VOLUME)["VolumeId"])


def volumes(account: Account) -> int:
    return sum(thing.startswith("volume") for thing in account.left())


def test_without_a_fault_a_call_takes_effect_once(account: Account, aws: Aws, faults: Faults) -> None:
    create_volume(aws)

    assert volumes(account) == 1
    assert [str(call) for call in faults.calls] == ["ec2:CreateVolume"]
    assert faults.calls[0].params == VOLUME
    assert account.requests == faults.calls


@pytest.mark.parametrize(
    ("fault", "error", "attempts", "effect"),
    [
        (refused(), AwsError, 6, 0),
        (refused("VolumeLimitExceeded", 400), AwsError, 1, 0),
        (refused_after(), AwsError, 6, 1),
        (refused_after("VolumeLimitExceeded", 400), AwsError, 1, 1),
        (lost(), NoAnswer, 6, 1),
        (throttled(), AwsError, 6, 0),
        (unreachable(), AwsError, 6, 0),
        (died_before(), Died, 1, 0),
        (died_after(), Died, 1, 1),
    ],
)
def test_a_fault_is_what_the_launcher_sees(account, aws, faults, fault, error, attempts, effect) -> None:  # type: ignore[no-untyped-def]
    faults.on("CreateVolume", fault)

    with pytest.raises(error):
        create_volume(aws)

    assert len(faults.slept) == attempts - 1
    assert len(faults.calls) == 1
    assert volumes(account) == effect


@pytest.mark.parametrize(("fault", "pauses"), [(lost(attempts=1), 1), (throttled(attempts=3), 3)])
def test_botocore_gets_through_when_the_fault_is_over(account, aws, faults, fault, pauses) -> None:  # type: ignore[no-untyped-def]
    faults.on("CreateVolume", fault)

    create_volume(aws)

    assert len(faults.slept) == pauses
    assert volumes(account) == 1


def test_faults_are_counted_over_all_calls_or_those_of_one_operation(aws: Aws, faults: Faults) -> None:
    faults.at(2, refused()).on("GetCallerIdentity", refused(), nth=3)
    seen = []
    for _ in range(4):
        try:
            aws.call("sts", "GetCallerIdentity")
            seen.append("answered")
        except AwsError:
            seen.append("refused")

    assert seen == ["answered", "refused", "refused", "answered"]
    assert faults.count("GetCallerIdentity") == 4


def test_an_aws_that_is_well_again_counts_from_one(aws: Aws, faults: Faults) -> None:
    faults.on("GetCallerIdentity", refused(), nth=None)
    with pytest.raises(AwsError):
        aws.call("sts", "GetCallerIdentity")
    faults.clear()

    aws.call("sts", "GetCallerIdentity")

    assert faults.count("GetCallerIdentity") == 1


@pytest.mark.parametrize(
    ("service", "operation", "params"),
    [
        ("ec2", "DescribeVolumes", {}),
        ("sts", "GetCallerIdentity", {}),
        ("ssm", "GetParameter", {"Name": "x"}),
        ("s3", "GetObject", {"Bucket": "bucket", "Key": "k"}),
        ("scheduler", "ListSchedules", {}),
        ("logs", "DescribeLogGroups", {}),
        ("iam", "GetRole", {"RoleName": "r"}),
        ("ecr", "DescribeImages", {"repositoryName": "repository"}),
        ("service-quotas", "GetServiceQuota", {"ServiceCode": "ec2", "QuotaCode": "q"}),
    ],
)
def test_every_services_errors_are_understood(aws: Aws, faults: Faults, service, operation, params) -> None:  # type: ignore[no-untyped-def]
    faults.on(operation, refused("SomethingOdd", 400, "as injected"))

    with pytest.raises(AwsError, match="as injected") as caught:
        aws.call(service, operation, params)

    assert (caught.value.aws_code, caught.value.operation) == ("SomethingOdd", operation)


def test_the_sweep_knows_every_kind_of_fault() -> None:
    assert sorted(EVERY) == [
        "answer lost", "answer lost once", "died after", "died before", "error after", "error before",
    ]  # fmt: skip


def test_of_calls_that_threads_make_at_once_one_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults().on("CopyObject", died_before())
    threads = 8
    at_once = threading.Barrier(threads)

    class Slow(list[Request]):
        def append(self, call: Request) -> None:
            super().append(call)
            with suppress(threading.BrokenBarrierError):
                at_once.wait(0.2)  # until all have noted theirs, where nothing keeps them apart

    monkeypatch.setattr(faults, "calls", Slow())

    def copy(number: int) -> bool:
        faults.begin(Request("s3", "CopyObject", {"Key": str(number)}), "rest-xml")
        try:
            faults.send("https://s3", lambda: (200, {}, ""))
        except Died:
            return True
        return False

    with ThreadPoolExecutor(threads) as pool:
        assert sum(pool.map(copy, range(threads))) == 1


def test_what_failed_in_one_account_does_not_keep_shared_clients_from_trying_again_in_the_next() -> None:
    aws = Aws("us-east-1")

    def tries(faults: Faults) -> int:
        """How often botocore makes a call whose answer is lost each time: fewer once a client's quota is used up."""
        before = len(faults.slept)
        with suppress(NoAnswer):
            create_volume(aws)
        return len(faults.slept) - before + 1

    def in_a_new_account(calls: int) -> list[int]:
        with Account.opened(), injected(Faults()) as faults:
            faults.on("CreateVolume", lost(), nth=None)
            return [tries(faults) for _ in range(calls)]

    assert in_a_new_account(12)[-1] == 1
    assert in_a_new_account(1) == [ATTEMPTS]
