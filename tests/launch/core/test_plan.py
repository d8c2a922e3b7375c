"""launch.core.plan: a plan as a reader sees it, and as a program does."""

import json

from launch.core.errors import AwsError
from launch.core.plan import Choice, FromAnswer, Plan, Request, Try, as_json, as_text

TAGS = [{"ResourceType": kind, "Tags": [{"Key": "k", "Value": "v"}]} for kind in ("instance", "volume")]


def start(zone: str) -> Try:
    params = {"Count": 2, "Group": FromAnswer("group", "GroupId"), "TagSpecifications": TAGS, "UserData": "x" * 301}
    return Try(Request("ec2", "RunInstances", params, f"start in {zone}", name="nodes"), ("g5", zone), "g5")


PLAN = Plan(
    title="2 x g5 on EC2, job j",
    facts=(("account", "1"), ("time limit", "12 h")),
    steps=(
        Request("ec2", "CreateSecurityGroup", {"GroupName": "j", "Nested": {"a": [1, "b"]}}, "a group", name="group"),
        Choice((start("a"), start("b")), "start 2 nodes", ("type", "zone", "answer"), {}, {}, "nodes"),
    ),
    price=(("g5", "2.42 USD per hour"),),
    warnings=("it is Tuesday",),
    problems=(AwsError("no quota"),),
    later=(("at the end:", (Request("ec2", "TerminateInstances", {"InstanceIds": "<all nodes>"}, "end them"),)),),
)


def test_a_plan_reads_from_top_to_bottom() -> None:
    assert as_text(PLAN).splitlines() == [
        "2 x g5 on EC2, job j",
        "",
        "  account     1",
        "  time limit  12 h",
        "",
        "requests, in this order:",
        "  1. ec2:CreateSecurityGroup  a group",
        "       GroupName: j",
        "       Nested: {a: [1, b]}",
        "  2. ec2:RunInstances  start 2 nodes",
        "       1. g5, a",
        "       2. g5, b",
        "     the first of them:",
        "       Count: 2",
        "       Group: <GroupId of group>",
        "       TagSpecifications: on instance, volume",
        "       UserData: (301 characters; --dry-run=json shows them)",
        "",
        "at the end:",
        "     ec2:TerminateInstances  end them",
        "       InstanceIds: <all nodes>",
        "",
        "price:",
        "  g5  2.42 USD per hour",
        "",
        "warning: it is Tuesday",
        "",
        "problem: no quota",
    ]


def test_a_plan_without_more_to_say_ends_with_its_price() -> None:
    bare = Plan("nothing", (), (), (("g5", "0.00 USD"),))

    assert as_text(bare).splitlines() == [
        "nothing", "", "", "requests: none", "", "price:", "  g5  0.00 USD",
    ]  # fmt: skip


def test_a_program_sees_every_request_with_all_its_parameters() -> None:
    assert json.loads(as_json(PLAN)) == {
        "title": "2 x g5 on EC2, job j",
        "facts": {"account": "1", "time limit": "12 h"},
        "steps": [
            {
                "call": "ec2:CreateSecurityGroup",
                "why": "a group",
                "params": {"GroupName": "j", "Nested": {"a": [1, "b"]}},
            },
            {
                "first_that_succeeds": [
                    {
                        "call": "ec2:RunInstances",
                        "why": f"start in {zone}",
                        "params": {
                            "Count": 2,
                            "Group": "<GroupId of group>",
                            "TagSpecifications": TAGS,
                            "UserData": "x" * 301,
                        },
                    }
                    for zone in "ab"
                ],
                "why": "start 2 nodes",
            },
        ],
        "later": {
            "at the end:": [
                {"call": "ec2:TerminateInstances", "why": "end them", "params": {"InstanceIds": "<all nodes>"}}
            ]
        },
        "price": {"g5": "2.42 USD per hour"},
        "warnings": ["it is Tuesday"],
        "problems": ["no quota"],
    }


def test_every_request_that_may_be_made_is_counted() -> None:
    assert [request.why for request in PLAN.requests] == ["a group", "start in a", "start in b"]


def test_in_brief_a_plan_is_what_it_starts_and_costs_and_what_speaks_against_it() -> None:
    assert PLAN.brief.splitlines() == [
        "2 x g5 on EC2, job j",
        "",
        "price:",
        "  g5  2.42 USD per hour",
        "",
        "warning: it is Tuesday",
        "",
        "problem: no quota",
    ]
