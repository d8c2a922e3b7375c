"""launch.core.plan: a plan as a reader sees it, and as a program does."""

import json
from dataclasses import replace

import pytest

from launch.core.catalog import find
from launch.core.errors import AwsError, NotSetUp
from launch.core.plan import (
    Choice,
    Fact,
    FromAnswer,
    Need,
    Plan,
    Request,
    Try,
    as_data,
    as_json,
    as_text,
    dry_run,
    fact_of,
    needs_in,
    shortage,
)
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


def test_a_plan_that_runs_a_command_shows_it_and_what_it_writes() -> None:
    local = Plan("job j", None, command=("sbatch", "a file"), files=(("job.sbatch", "#!/bin/sh\n\ntrue\n"),))

    assert as_text(local).splitlines() == [
        "job j", "", "  $ sbatch 'a file'", "", "job.sbatch:", "  #!/bin/sh", "", "  true",
    ]  # fmt: skip
    assert json.loads(as_json(local))["command"] == ["sbatch", "a file"]
    assert json.loads(as_json(local))["files"] == {"job.sbatch": "#!/bin/sh\n\ntrue\n"}


def test_a_program_sees_every_request_with_all_its_parameters() -> None:
    made = json.loads(as_json(PLAN))
    group, nodes = made["steps"]

    assert (made["title"], made["not_counted"], made["warnings"]) == (PLAN.title, "logs", ["it is Tuesday"])
    assert made["facts"] == {"account": "1", "time_limit_h": 12.0, "quotas": {"G": 64}}
    assert made["problems"] == [{"exit_code": 4, "sentence": "no quota"}]
    assert group == {
        "call": "ec2:CreateSecurityGroup", "why": "a group",
        "params": {"GroupName": "j", "Nested": {"a": [1, "b"]}},
    }  # fmt: skip
    params = {"Count": 2, "Group": "<GroupId of group>", "TagSpecifications": TAGS, "UserData": "x" * 301}
    assert [one["params"] for one in nodes["first_that_succeeds"]] == [params, params]
    assert made["later"]["at the end:"][0]["params"] == {"InstanceIds": "<all nodes>"}
    g5, g6 = made["quotes"]
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


# ---- quotas, which jobs at the same time share

G = "Running On-Demand G and VT instances"


def needs_of(*vcpus: float, running: float = 0, limit: float = 96) -> list[list[Need]]:
    return [[Need(G, count, running, limit)] for count in vcpus]


@pytest.mark.parametrize(("needs", "at_once", "fitting"), [
    (needs_of(48, 48), 2, None),
    (needs_of(48, 48, 48), 3, 2),
    (needs_of(8, 48, 96), 2, 1),  # those that take most
    (needs_of(48, 48, running=8), 2, 1),
    (needs_of(192), 1, None),  # its own plan says so
    ([[Need(G, 48, 96, 192, held=48)]] * 2 + needs_of(48, 48, running=96, limit=192), 4, None),  # once
    ([[Need(G, 48, 96, 144, held=48)]] * 2 + needs_of(48, 48, running=96, limit=144), 4, 3),
    ([[Need("a", 1, 0, 1), Need("b", 1, 0, 9)], [Need("a", 1, 0, 1)]], 2, 1),
    ([[], []], 2, None),
])  # fmt: skip
def test_so_many_jobs_at_a_time_fit_a_quota(needs: list[list[Need]], at_once: int, fitting: int | None) -> None:
    found = shortage(needs, at_once)

    assert (found[1] if found else None) == fitting


def test_a_plan_carries_them_to_programs() -> None:
    plan = Plan("job", None, facts=(fact_of([Need(G, 48, 0, 96)]),))

    assert needs_in(json.loads(json.dumps(as_data(plan)))) == (Need(G, 48, 0, 96),)
    assert needs_in({"facts": {}}) == ()
