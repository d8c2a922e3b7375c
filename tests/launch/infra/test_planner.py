"""The requests of launch.infra, checked against AWS's own model of its services, and what they are made of."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from launch.aws.instances.facts import FAMILIES
from launch.aws.regions import absent_types
from launch.core.plan import Fact, Plan
from launch.infra import planner
from launch.infra.lookup import Facts, Stack, Vpc
from launch.infra.options import SetUpOptions
from launch.infra.planner import SetUp
from launch.infra.queue import QueueFacts, parameter_of
from launch.infra.template import KEPT, WITH_THEM, filled, filled_notify, filled_queue, left_out, read

NOW = datetime(2026, 11, 21, 14, 0, tzinfo=UTC)
STACK = Stack(
    "arn:aws:cloudformation:us-east-1:1:stack/aws-ddp-toolkit/1",
    "CREATE_COMPLETE",
    {"LogDays": "30", "OldVersionDays": "7", "Forgotten": "of an older template"},
    resources={name: name for name in (*KEPT, "NodeRole")},
)
NEW = Facts("us-east-1", "123456789012")
THERE = replace(NEW, stack=STACK)


def made(facts: Facts, **asked: Any) -> Plan[SetUp]:
    return planner.plan(SetUpOptions.model_validate(asked), facts, NOW)


def fact(plan: Plan[Any], name: str) -> Fact:
    (one,) = [fact for fact in plan.facts if fact.name == name]
    return one


def request(facts: Facts, **asked: Any) -> Mapping[str, Any]:
    return made(facts, **asked).payload.create.params


def values(facts: Facts, **asked: Any) -> dict[str, str]:
    return {p["ParameterKey"]: p.get("ParameterValue", "<as it was>") for p in request(facts, **asked)["Parameters"]}


VPC = replace(THERE, vpc=Vpc("10.0.0.0/16", ("rtb-1", "rtb-2")), adopted=("JobBucket",))


@pytest.mark.parametrize("plan", [
    made(NEW, monthly_usd=5, email="a@x.org"), made(VPC, vpc_id="vpc-1"),
    planner.down(replace(THERE, budget=5.0), keep_data=False),
])  # fmt: skip
def test_aws_knows_every_request(plan: Plan[Any]) -> None:
    session, validator = botocore.session.Session(), ParamValidator()
    requests = list(plan.requests)
    assert len(requests) >= 3
    for request in requests:
        shape = session.get_service_model(request.service).operation_model(request.operation).input_shape
        assert validator.validate(dict(request.params), shape).generate_report() == "", request.operation


def test_what_is_not_given_stays_as_it_is_and_what_was_changed_by_hand_is_changed_back() -> None:
    assert values(THERE, log_days=90) == {
        "AccountWide": "yes", "LogDays": "90", "OldVersionDays": "<as it was>",
    }  # fmt: skip
    assert request(THERE)["DeploymentMode"] == "REVERT_DRIFT"
    given = values(NEW, endpoint_subnets=None, vpc_id=None)  # as '' on the command line is read
    assert (given["SubnetIds"], given["VpcId"]) == ("", "")
    assert values(NEW) == {"AccountWide": "yes"}
    assert (request(NEW)["ChangeSetType"], request(NEW)["OnStackFailure"]) == ("CREATE", "DELETE")


def test_a_first_up_that_fails_deletes_nothing_that_was_there_before() -> None:
    """What an operation imports is in the stack since that operation, as is what it creates."""
    asked = request(replace(NEW, adopted=("JobBucket", "NodeLogs")))
    body = read(asked["TemplateBody"])
    policies = {name: body["Resources"][name]["DeletionPolicy"] for name in (*KEPT, *WITH_THEM)}
    assert asked["ImportExistingResources"] is True
    assert policies == {
        "JobBucket": "Retain",
        "JobBucketPolicy": "Retain",  # else the data would be open to launchers until the next
        "Repository": "RetainExceptOnCreate",
        "NodeLogs": "Retain",
    }


def test_flags_become_parameters() -> None:
    asked = {"old_version_days": 3, "sweep_minutes": 30,
             "vpc_id": "vpc-1", "endpoint_subnets": "subnet-1,subnet-2", "security_group": True}  # fmt: skip
    assert values(replace(NEW, vpc=Vpc("10.0.0.0/16", ("rtb-1", "rtb-2"))), **asked) == {
        "OldVersionDays": "3", "SweepMinutes": "30", "VpcId": "vpc-1",
        "SubnetIds": "subnet-1,subnet-2", "SecurityGroup": "yes", "AccountWide": "yes",
        **dict.fromkeys((*planner.OTHER_CIDRS, *planner.DNS_SERVERS), ""), "VpcCidr": "10.0.0.0/16",
        "RouteTableIds": "rtb-1,rtb-2",
    }  # fmt: skip


def test_the_budget_is_made_anew_by_its_own_api_in_every_region() -> None:
    """https://docs.aws.amazon.com/aws-cost-management/latest/APIReference/API_budgets_CreateBudget.html"""
    there = replace(NEW, region="eu-north-1", owner_region="eu-west-1")  # CloudFormation has no budgets there
    assert fact(made(there), "roles_region").value == "eu-west-1"
    assert fact(made(replace(there, budget=7.0)), "budget").value == {"usd_per_month": 7.0}
    remove, create = made(there, monthly_usd=1234567.89, email="a@x.org").payload.budget
    assert (remove.operation, remove.params["BudgetName"]) == ("DeleteBudget", create.params["Budget"]["BudgetName"])
    assert create.params["Budget"]["BudgetLimit"] == {"Amount": "1234567.89", "Unit": "USD"}
    alerts = create.params["NotificationsWithSubscribers"]
    assert {(row["Notification"]["NotificationType"], row["Notification"]["Threshold"]) for row in alerts} == {
        ("ACTUAL", 80), ("FORECASTED", 100),
    }  # fmt: skip
    assert {row["Subscribers"][0]["Address"] for row in alerts} == {"a@x.org"}
    assert [request.operation for request in made(NEW, monthly_usd=0).payload.budget] == ["DeleteBudget"]
    assert made(NEW).payload.budget == ()


def test_the_security_group_lets_requests_to_the_vpcs_own_dns_servers_out() -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/security-group-rules-reference.html, DNS server rules"""
    vpc = Vpc("10.0.0.0/16", (), dns=("10.0.0.2", "10.0.1.2", "10.0.2.2"))
    given = values(replace(NEW, vpc=vpc), vpc_id="vpc-1", security_group=True)
    assert [given[name] for name in planner.DNS_SERVERS] == ["10.0.0.2/32", "10.0.1.2/32"]
    template = read(request(NEW)["TemplateBody"])
    rules = [rule["Fn::If"] for rule in template["Resources"]["NodeGroup"]["Properties"]["SecurityGroupEgress"][1:]]
    assert [(condition, rule["IpProtocol"], rule["CidrIp"]["Ref"]) for condition, rule, _ in rules] == [
        ("HasDns", "udp", "DnsServer"), ("HasDns", "tcp", "DnsServer"),
        ("HasDns2", "udp", "DnsServer2"), ("HasDns2", "tcp", "DnsServer2"),
    ]  # fmt: skip


def test_endpoints_that_are_there_already_are_in_the_way() -> None:
    vpc = Vpc("10.0.0.0/16", (), private_services=("com.amazonaws.us-east-1.logs", "com.amazonaws.us-east-1.sqs"))
    (problem,) = made(replace(NEW, vpc=vpc), vpc_id="vpc-1", endpoint_subnets="subnet-1").problems
    assert "for com.amazonaws.us-east-1.logs, " in str(problem)
    assert "leave --endpoint-subnets out" in str(problem)
    assert made(replace(NEW, vpc=vpc), vpc_id="vpc-1").problems == ()


def test_endpoints_let_in_five_ranges_of_the_vpc_and_name_the_others() -> None:
    """Their names are private in the whole VPC: who is in another range than the first has no other way out."""
    many = tuple(f"10.{number}.0.0/16" for number in range(1, 6))
    vpc = replace(NEW, vpc=Vpc("10.0.0.0/16", (), other_cidrs=many))
    plan = made(vpc, vpc_id="vpc-1", endpoint_subnets="subnet-1")
    given = {row["ParameterKey"]: row.get("ParameterValue") for row in plan.payload.create.params["Parameters"]}
    assert [given[name] for name in ("VpcCidr", *planner.OTHER_CIDRS)] == ["10.0.0.0/16", *many[:4]]
    (warning,) = plan.warnings
    assert ("10.5.0.0/16" in warning, "10.4.0.0/16" in warning) == (True, False)
    rules = str(read(plan.payload.create.params["TemplateBody"])["Resources"])
    assert all(f"'CidrIp': {{'Ref': '{name}'}}" in rules for name in planner.OTHER_CIDRS)


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        *[
            (status, "run python -m launch.infra down --keep-data, then python -m launch.infra up again")
            for status in ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "DELETE_FAILED", "IMPORT_ROLLBACK_FAILED")
        ],
        ("UPDATE_ROLLBACK_FAILED", "aws cloudformation continue-update-rollback --stack-name aws-ddp-toolkit"),
    ],
)
def test_a_stack_that_takes_no_change_has_to_go_first(status: str, remedy: str) -> None:
    (problem,) = made(replace(NEW, stack=replace(STACK, status=status))).problems
    assert remedy in str(problem)


def test_down_deletes_only_what_is_the_stacks() -> None:
    calls = [request.operation for request in planner.down(THERE, keep_data=False).requests]
    assert calls == ["DeleteStack", "DeleteBucket", "DeleteRepository", "DeleteLogGroup"]
    assert [request.operation for request in planner.down(THERE, keep_data=True).requests] == ["DeleteStack"]
    assert list(planner.down(replace(NEW, adopted=KEPT), keep_data=False).requests) == []
    assert [request.operation for request in planner.down(replace(THERE, budget=5.0), keep_data=True).requests] == [
        "DeleteStack", "DeleteBudget",
    ]  # fmt: skip
    roleless = replace(THERE, budget=5.0, stack=replace(STACK, resources={"JobBucket": "b"}))
    assert [request.operation for request in planner.down(roleless, keep_data=True).requests] == ["DeleteStack"]


# ---- regions

REGIONS = botocore.session.Session().get_available_regions("ec2")
TYPES = {row["Type"] for row in read(filled("123456789012", "us-east-1"))["Resources"].values()}
BESIDE = (filled_queue("123456789012"), filled_notify("123456789012", "us-east-1"))
TYPES_BESIDE = {row["Type"] for text in BESIDE for row in read(text)["Resources"].values()}
OUTPUTS = read(filled("123456789012", "us-east-1"))["Outputs"]
SCHEMAS = files("cfnlint.data.schemas").joinpath("providers")  # AWS's lists of resource types


def in_schemas(region: str) -> set[str]:
    return set(json.loads(SCHEMAS.joinpath(f"{region}.json").read_text()))


def test_up_asks_for_no_type_that_the_region_lacks_and_names_what_it_leaves_out() -> None:
    for region in REGIONS:
        plan = made(replace(NEW, region=region))
        body = read(plan.payload.create.params["TemplateBody"])
        types = {row["Type"] for row in body["Resources"].values()}
        assert region == "me-south-1" or in_schemas(region) >= TYPES_BESIDE
        lacked = TYPES - in_schemas(region) if region != "me-south-1" else set()  # which has no list
        assert lacked == absent_types(region) == TYPES - types
        assert {thing.type for thing in plan.payload.holds} <= types
        assert set(body["Outputs"]) == set(OUTPUTS) - left_out(region).keys()
        shown = {fact.name: fact.value for fact in plan.facts}.get("left_out", {})
        assert set(shown.values()) == lacked


# ---- the queues' stack

QUOTAS = {family.kind: 8 * place for place, family in enumerate(FAMILIES, 1)}
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/aws-ddp-toolkit@sha256:1"
PUSHED = QueueFacts(image=IMAGE, vpc="vpc-1", subnets=("subnet-1", "subnet-2"), vcpus=QUOTAS)
DEMO = Stack("arn:aws:cloudformation:us-east-1:1:stack/aws-ddp-toolkit-queue/1", "CREATE_COMPLETE",
             {"QueueName": "demo", "QueueInstances": "8"})  # fmt: skip


def queued(queues: QueueFacts, **asked: Any) -> tuple[Plan[SetUp], dict[str, str]]:
    """The plan, and the parameters of the queues' stack."""
    plan = planner.plan(SetUpOptions.model_validate(asked), NEW, NOW, queues)
    create = next((one for one in plan.payload.queue if one.operation == "CreateChangeSet"), None)
    rows = create.params["Parameters"] if create else ()
    return plan, {row["ParameterKey"]: row.get("ParameterValue", "<as it was>") for row in rows}


def kinds(plan: Plan[SetUp]) -> set[str]:
    return {thing.type.removeprefix("AWS::Batch::") for thing in plan.payload.holds if "::Batch::" in thing.type}


def test_a_queue_is_made_on_request_and_costs_nothing() -> None:
    plan, slots = queued(QueueFacts(), queue="demo:8")

    assert (slots["QueueName"], slots["QueueInstances"]) == ("demo", "8")
    assert kinds(plan) == {"ServiceEnvironment", "SchedulingPolicy", "JobQueue"}
    assert {fact.name: fact.value for fact in plan.rates}["Queue"] == {"usd_per_month": 0}
    assert "python -m launch.image push --target launcher" in plan.warnings[-1]
    assert queued(QueueFacts())[0].payload.queue == ()


def test_with_the_launchers_image_the_queue_is_launch_ec2s_too_with_the_accounts_quotas() -> None:
    plan, slots = queued(PUSHED, queue="demo")

    assert kinds(plan) >= {"ComputeEnvironment", "JobDefinition", "ConsumableResource"}
    assert (slots["LauncherImage"], slots["VpcId"], slots["SubnetIds"]) == (IMAGE, "vpc-1", "subnet-1,subnet-2")
    assert [slots[parameter_of(family.kind)] for family in FAMILIES] == [str(one) for one in QUOTAS.values()]
    assert plan.warnings == ()
    assert plan.rates[0].name == "JobBucket"
    assert "has a route to the internet" in str(queued(replace(PUSHED, subnets=()), queue="demo")[0].problem)


def test_a_queue_stays_with_the_next_up_and_goes_on_request_if_no_job_is_in_it() -> None:
    there = replace(PUSHED, stack=DEMO)
    plan, slots = queued(there)
    assert (slots["QueueName"], slots["QueueInstances"]) == ("demo", "<as it was>")
    assert fact(plan, "queue").value == {"name": "demo", "instances": 8, "launcher": IMAGE}

    (delete,) = queued(there, no_queue=True)[0].payload.queue
    assert (delete.operation, delete.params) == ("DeleteStack", {"StackName": DEMO.id})
    busy = replace(there, jobs=("a", "b", "c", "d"))
    for asked in ({"no_queue": True}, {"queue": "other"}):
        assert "queue demo, and would end with it: a, b, c and 1 more" in str(queued(busy, **asked)[0].problem)


def test_aws_knows_the_requests_of_the_queues_stack() -> None:
    session, validator = botocore.session.Session(), ParamValidator()
    for plan, _ in (queued(PUSHED, queue="demo:8"), queued(replace(PUSHED, stack=DEMO), no_queue=True)):
        for one in plan.payload.queue:
            shape = session.get_service_model("cloudformation").operation_model(one.operation).input_shape
            assert not validator.validate(dict(one.params), shape).has_errors()


def test_what_the_regions_lack_is_what_botocore_knows_no_endpoint_of() -> None:
    lacking = {region for region in REGIONS if "AWS::CodeBuild::Project" in absent_types(region)}
    assert lacking == {*REGIONS} - {*botocore.session.Session().get_available_regions("codebuild")}
