"""launch.core.plan: a plan as a reader sees it, and as a program does."""

import json
from dataclasses import replace

import pytest

from launch.core.catalog import find
from launch.core.errors import AwsError, NotSetUp
from launch.core.plan import Choice, Fact, FromAnswer, Plan, Request, Try, as_json, as_text, dry_run
from launch.core.quote import Quote, expect
from trainer.__main__ import read_settings
from trainer.errors import TrainerError

TAGS = [{"ResourceType": kind, "Tags": [{"Key": "k", "Value": "v"}]} for kind in ("instance", "volume")]


def start(zone: str) -> Try:
    params = {"Count": 2, "Group": FromAnswer("group", "GroupId"), "TagSpecifications": TAGS, "UserData": "x" * 301}
    return Try(Request("ec2", "RunInstances", params, f"start in {zone}", name="nodes"), ("g5", zone), "g5")


PLAN = Plan(
    title="2 x g5 on EC2, job j",
    payload=None,
    facts=(
        Fact("account", "1"),
        Fact("time_limit_h", 12.0, "12 h, until noon", label="time limit"),
        Fact("quotas", {"G": 64}, ("g5: 16 of 64", "g6: 16 of 64"), label="quota"),
    ),
    steps=(
        Request("ec2", "CreateSecurityGroup", {"GroupName": "j", "Nested": {"a": [1, "b"]}}, "a group", name="group"),
        Choice((start("a"), start("b")), "start 2 nodes", ("type", "zone", "answer"), {}, {}, "nodes"),
    ),
    quotes=(
        Quote("g5", nodes=2, usd_per_hour=2.42, most_usd=29.04, most_s=12 * 3600, why_unknown="not known"),
        Quote("g6", nodes=2, market="spot", usd_per_hour=1.1, on_demand_usd_per_hour=2.0, notes=("it is new",)),
    ),
    not_counted="logs",
    warnings=("it is Tuesday",),
    problems=(AwsError("no quota"),),
    later=(("at the end:", (Request("ec2", "TerminateInstances", {"InstanceIds": "<all nodes>"}, "end them"),)),),
)


def test_a_plan_reads_from_top_to_bottom() -> None:
    assert as_text(PLAN).splitlines() == [
        "2 x g5 on EC2, job j",
        "",
        "  account     1",
        "  time limit  12 h, until noon",
        "  quota       g5: 16 of 64",
        "  quota       g6: 16 of 64",
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
        "  g5           2.42 USD per hour on demand, for all 2 nodes, disks included",
        "    expected   not known",
        "    at most    29.04 USD in 12 h; then the time limit ends it",
        "  g6           2.00 USD per hour on demand, for all 2 nodes, disks included",
        "    spot       1.10 USD per hour now; at most the price on demand",
        "    expected   not known",
        "               it is new",
        "  not counted  logs",
        "",
        "warning: it is Tuesday",
        "",
        "problem: no quota",
    ]


def test_a_plan_that_runs_a_command_shows_it_and_what_it_writes() -> None:
    local = Plan("job j", None, command=("sbatch", "a file"), files=(("job.sbatch", "#!/bin/sh\n\ntrue\n"),))

    assert as_text(local).splitlines() == [
        "job j", "", "  $ sbatch 'a file'", "", "job.sbatch:", "  #!/bin/sh", "", "  true",
    ]  # fmt: skip
    assert json.loads(as_json(local))["command"] == ["sbatch", "a file"]
    assert json.loads(as_json(local))["files"] == {"job.sbatch": "#!/bin/sh\n\ntrue\n"}


def test_a_program_sees_every_request_with_all_its_parameters() -> None:
    assert json.loads(as_json(PLAN)) == {
        "title": "2 x g5 on EC2, job j",
        "facts": {"account": "1", "time_limit_h": 12.0, "quotas": {"G": 64}},
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
        "quotes": [quote.as_json() for quote in PLAN.quotes],
        "not_counted": "logs",
        "warnings": ["it is Tuesday"],
        "problems": [{"exit_code": 4, "sentence": "no quota"}],
    }


def test_each_candidate_has_its_own_price() -> None:
    g5, g6 = json.loads(as_json(PLAN))["quotes"]

    assert (g5["instance"], g5["usd_per_hour"], g5["most_usd"], g5["most_s"]) == ("g5", 2.42, 29.04, 43_200)
    assert (g6["instance"], g6["market"], g6["usd_per_hour"], g6["most_usd"]) == ("g6", "spot", 1.1, None)


def test_an_expected_price_that_is_only_a_bound_is_marked_as_one() -> None:
    guess, _ = expect(read_settings([]), find("g5.2xlarge"), 1, on_ebs=False)
    known = Quote("g5.2xlarge", market="spot", usd_per_hour=0.5, on_demand_usd_per_hour=1.2, forecast=guess)
    unknown = replace(known, usd_per_hour=None)
    nothing = replace(unknown, on_demand_usd_per_hour=None)

    assert [quote.as_json()["expected_is_bound"] for quote in (known, unknown, nothing)] == [False, True, False]
    assert unknown.as_json()["expected_usd"] > known.as_json()["expected_usd"]


def test_every_request_that_may_be_made_is_counted() -> None:
    assert [request.why for request in PLAN.requests] == ["a group", "start in a", "start in b"]


def test_in_brief_a_plan_is_what_it_starts_and_costs_and_what_speaks_against_it() -> None:
    assert PLAN.brief.splitlines() == [
        "2 x g5 on EC2, job j",
        "",
        "price:",
        "  g5           2.42 USD per hour on demand, for all 2 nodes, disks included",
        "    expected   not known",
        "    at most    29.04 USD in 12 h; then the time limit ends it",
        "  g6           2.00 USD per hour on demand, for all 2 nodes, disks included",
        "    spot       1.10 USD per hour now; at most the price on demand",
        "    expected   not known",
        "               it is new",
        "  not counted  logs",
        "",
        "warning: it is Tuesday",
        "",
        "problem: no quota",
    ]


def test_rates_of_what_is_billed_by_use_are_lines_for_a_reader_and_figures_for_a_program() -> None:
    plan = Plan("stack", None, rates=(Fact("bucket", {"usd_per_gb_month": 0.023}, "0.023 USD per GB and month"),))
    assert plan.brief.endswith("price:\n  bucket  0.023 USD per GB and month")
    assert json.loads(as_json(plan))["rates"] == {"bucket": {"usd_per_gb_month": 0.023}}


@pytest.mark.parametrize(("problem", "code"), [((), 0), ((NotSetUp("no account"),), 0), ((AwsError("no quota"),), 4)])
def test_a_dry_run_fails_where_the_plan_cannot_be_performed_but_not_for_want_of_an_account(
    problem: tuple[TrainerError, ...], code: int
) -> None:
    shown = list[str]()
    assert dry_run(Plan("plan", None, problems=problem), "json", shown.append) == code
    assert json.loads(shown[0])["title"] == "plan"
