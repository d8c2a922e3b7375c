"""tests/launch/quick_moto.py changes how long moto takes, and nothing else."""

from typing import Any
from unittest import mock

import pytest
import xmltodict
from moto.core.serialize import ResponseSerializer

from tests.launch.ec2.account import Account
from tests.launch.ec2.world import Stage
from tests.launch.quick_moto import emit

MOTOS = ResponseSerializer.get_value


@pytest.mark.parametrize(
    ("service", "operation"),
    [
        ("ec2", "DescribeInstances"),
        ("ec2", "DescribeVolumes"),
        ("ec2", "DescribeImages"),
        ("ec2", "DescribeNetworkInterfaces"),
        ("ec2", "DescribeSecurityGroups"),
        ("scheduler", "ListSchedules"),
        ("s3", "ListBuckets"),
    ],
)
def test_quick_answers_are_motos_own(service: str, operation: str) -> None:
    with Account.opened() as account:
        stage = Stage(account)
        stage.where = {"detach": True}
        stage.launch()
        assert ResponseSerializer.get_value is not MOTOS
        quick = account.aws().call(service, operation, {})
        with mock.patch.object(ResponseSerializer, "get_value", MOTOS):
            slow = account.aws().call(service, operation, {})
    quick.pop("ResponseMetadata"), slow.pop("ResponseMetadata")
    assert quick == slow
    assert any(quick.values())


@pytest.mark.parametrize("is_short", [False, True])
@pytest.mark.parametrize(
    "document",
    [
        {"a": None},
        {"a": ""},
        {"a": []},
        {"a": {}},
        {"a": {"b": [], "c": [{}]}},
        {"a": {"b": [1, 2.5, True, None, "x"], "c": False}},
        {"a": {"@xmlns": 'https://x.y/?a=1&b="2"', "@nil": None, "b": {"#text": "1 < 2 & 3", "@n": 3}}},
        {"a": {"#text": "", "b": ("x", "y\n\t")}},
        {"a": {"b": {"c": {"d": "caf\u00e9 \U0001f600"}}, "e": b"bytes"}},
    ],
)
def test_quick_xml_is_that_of_xmltodict(document: dict[str, Any], is_short: bool) -> None:
    with mock.patch.object(xmltodict, "_emit", emit):
        quick = xmltodict.unparse(document, short_empty_elements=is_short)
    assert quick == xmltodict.unparse(document, short_empty_elements=is_short)


@pytest.mark.parametrize("document", [{"a": [1, 2]}, {"a b": 1}, {"a": {"@x y": 1}}, {"a": {"<b>": 1}}])
def test_what_xmltodict_refuses_is_refused(document: dict[str, Any]) -> None:
    with mock.patch.object(xmltodict, "_emit", emit), pytest.raises(ValueError, match=r"multiple roots|not allowed"):
        xmltodict.unparse(document)
