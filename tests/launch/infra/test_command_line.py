"""python -m launch.infra against moto: what each verb prints, changes, refuses and leaves."""

import json
import shlex
from datetime import UTC, datetime
from typing import Any

import pytest
from moto.cloudformation.models import cloudformation_backends

from launch.aws.client import Aws
from launch.infra.options import PlanOptions, UpOptions, up_command
from launch.rehearse.aws.batch.jobs import ServiceJob
from launch.rehearse.aws.batch.moto_patches import make_queue
from launch.rehearse.aws.sagemaker.moto_patches import patched
from launch.rehearse.aws.sagemaker.rules import Rules
from tests.launch.faults import Faults, injected, refused
from tests.launch.infra.account import NewAccount
from trainer.settings import flags

ROLES = ["aws-ddp-toolkit-image-builder", "aws-ddp-toolkit-node", "aws-ddp-toolkit-sagemaker",
         "aws-ddp-toolkit-scheduler", "aws-ddp-toolkit-sweeper"]  # fmt: skip
READING = ("Describe", "Get", "List", "Head")


def written(account: NewAccount) -> list[str]:
    """The calls that change something."""
    return [call for call in account.calls if not call.partition(":")[2].startswith(READING)]


# ---- plan


def test_plan_says_what_would_be_made_or_changed_and_leaves_nothing(new: NewAccount) -> None:
    assert new.type("plan") == 0

    assert "  create  JobBucket         S3 Bucket\n" in new.out
    assert "JobBucket        0.023 USD per GB and month" in new.out
    assert (new.stacks, new.roles) == ([], [])
    assert written(new) == ["cloudformation:CreateChangeSet", "cloudformation:DeleteStack"]

    new.type("up")
    assert new.type("plan", "--log-days", "60") == 0
    assert "  change  NodeLogs   Logs LogGroup" in new.out
    assert new.out.endswith("apply it: python -m launch.infra up --log-days 60\n")
    assert new.type("plan") == 0
    assert "no changes" in new.out
    assert new.calls.count("cloudformation:DeleteStack") == 1
    assert len(new.stacks) == 1


@pytest.mark.parametrize(
    "words",
    [
        "--region us-west-2 --queue demo:8",
        "--vpc-id vpc-1 --security-group true --monthly-usd 50.0 --email me@example.org",
        "--endpoint-subnets subnet-1,subnet-2",
        "--endpoint-subnets ''",
        "--vpc-id ''",
        "--no-queue true",
    ],
)
def test_the_command_that_applies_a_plan_has_its_flags(words: str) -> None:
    (planned,) = flags.parse(shlex.split(words), [PlanOptions], prog="", about="", sections={})

    assert isinstance(planned, PlanOptions)
    (applied,) = flags.parse(shlex.split(up_command(planned))[4:], [UpOptions], prog="", about="", sections={})

    assert applied.model_fields_set == planned.model_fields_set
    assert applied.model_dump(exclude={"yes", "dry_run"}) == planned.model_dump()


def test_plan_without_an_account_says_what_the_stack_would_hold(
    new: NewAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    new.make_aws = Aws  # with no clients yet
    assert new.type("plan") == 0

    assert "  JobBucket         S3 Bucket" in new.out
    assert "problem: no AWS credentials" in new.out
    assert new.calls == ["sts:GetCallerIdentity"]


# ---- up


def test_up_shows_the_changes_makes_them_and_says_the_outputs(new: NewAccount) -> None:
    assert new.type("up") == 0

    shown, made = new.out.index("  create  JobBucket"), new.out.index("CREATE_COMPLETE")
    assert shown < made < new.out.index(f"  Bucket          {new.bucket}")
    assert set(ROLES) <= set(new.roles)
    assert new.aws().call("ecr", "DescribeRepositories")["repositories"][0]["repositoryName"] == "aws-ddp-toolkit"
    document = new.aws().call("ssm", "GetDocument", {"Name": "ddp-toolkit-sweeper"})
    assert "def sweep(" in document["Content"]


def test_up_with_a_flag_changes_that_and_keeps_the_rest(new: NewAccount) -> None:
    new.type("up", "--log-days", "60", "--old-version-days", "3")
    assert new.type("up", "--log-days", "90") == 0

    assert [group["retentionInDays"] for group in new.aws().call("logs", "DescribeLogGroups")["logGroups"]] == [90, 90]
    (stack,) = new.stacks
    assert stack.resource_map.resolved_parameters["OldVersionDays"] == 3

    new.requests.clear()
    assert new.type("up") == 0
    assert "no changes" in new.out
    assert "cloudformation:ExecuteChangeSet" not in new.calls
    assert f"  Bucket          {new.bucket}" in new.out


def test_up_asks_before_it_deletes_something_and_leaves_nothing_if_not_meant(new: NewAccount) -> None:
    (vpc,) = new.aws().call("ec2", "DescribeVpcs")["Vpcs"]
    new.type("up", "--vpc-id", vpc["VpcId"], "--security-group")
    assert new.questions == []
    new.answer = "no"
    assert new.type("up", "--no-security-group") == 2

    assert new.questions == ["this deletes or replaces NodeGroup, NodeGroupIn"]  # moto knows no rules out
    assert new.calls[-1] == "cloudformation:DeleteChangeSet"
    assert new.type("up", "--no-security-group", "--yes") == 0


@pytest.mark.parametrize("verb", ["plan", "up"])
def test_what_aws_refuses_leaves_nothing_and_names_the_policy(verb: str, new: NewAccount) -> None:
    with injected(Faults()) as faults:
        faults.on("DescribeChangeSet", refused("AccessDenied", 403))
        assert new.type(verb) == 4

    assert "cloudformation:DescribeChangeSet" in new.err
    assert "infra/iam/administrator.json" in new.err
    assert new.stacks == []


def test_dry_run_prints_every_request_and_makes_none(new: NewAccount) -> None:
    assert new.type("up", "--dry-run=json", "--monthly-usd", "500", "--email", "a@example.org") == 0

    plan = json.loads(new.out)
    assert [step["call"] for step in plan["steps"]] == [
        "cloudformation:CreateChangeSet",
        "cloudformation:ExecuteChangeSet",
        "budgets:DeleteBudget",
        "budgets:CreateBudget",
        "iam:CreateServiceLinkedRole",
    ]
    assert plan["facts"]["budget"] == {"usd_per_month": 500, "email": "a@example.org"}
    assert plan["rates"]["Sweeper"] == {"usd_per_month": 1.57, "runs_per_month": 730}
    assert plan["rates"]["JobBucket"] == {"usd_per_gb_month": 0.023}
    assert written(new) == []


def test_what_holds_data_already_is_adopted_with_it(new: NewAccount) -> None:
    aws = new.aws()
    aws.call("s3", "CreateBucket", {"Bucket": new.bucket})
    aws.call("s3", "PutObject", {"Bucket": new.bucket, "Key": "jobs/j/job.json", "Body": b"{}"})
    assert new.type("up") == 0

    assert "  adopt   JobBucket" in new.out
    assert "run python -m launch.infra up again to apply the template's encryption" in new.out
    (asked,) = [call.params for call in new.requests if call.operation == "CreateChangeSet"]
    assert asked["ImportExistingResources"] is True
    assert {call.params["ExpectedBucketOwner"] for call in new.requests if call.operation == "HeadBucket"} == {new.id}
    assert aws.call("s3", "GetObject", {"Bucket": new.bucket, "Key": "jobs/j/job.json"})["Body"].read() == b"{}"
    new.type("up")
    asked = [call.params for call in new.requests if call.operation == "CreateChangeSet"][-1]
    assert asked["DeploymentMode"] == "REVERT_DRIFT"


def test_what_cannot_be_adopted_is_an_error_with_remedies(new: NewAccount) -> None:
    with injected(Faults()) as faults:
        faults.on("HeadBucket", refused("403", 403, "Forbidden"))
        assert new.type("up") == 4
    for words in (new.bucket, "infra/iam/administrator.json", "another --region"):
        assert words in new.err

    how = {"repositoryName": "aws-ddp-toolkit", "encryptionConfiguration": {"encryptionType": "KMS"}}
    new.aws().call("ecr", "CreateRepository", how)
    new.requests.clear()
    assert new.type("up") == 4
    assert new.err.endswith("aws ecr delete-repository --force --repository-name aws-ddp-toolkit\n")
    assert written(new) == []


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--monthly-usd", "5", "--email", "nonsense"], "nonsense"),
        (["--monthly-usd", "5"], "--email"),
        (["--email", "a@example.org"], "--monthly-usd"),
        (["--log-days", "31"], "30 or 60"),
        (["--log-days", "3654"], "3653"),
        (["--region", "us-gov-west-1"], "us-gov-west-1"),
        (["--queue", "demo-ec2"], "demo-ec2"),
    ],
)
def test_what_cannot_work_is_refused_before_any_call(new: NewAccount, flags: list[str], named: str) -> None:
    for verb in ("plan", "up"):
        assert new.type(verb, *flags) == 2
        assert named in new.err
    assert new.calls == []


def test_roles_created_outside_the_stack_are_named_before_any_change(new: NewAccount) -> None:
    trust = {"Version": "2012-10-17", "Statement": []}
    params = {"RoleName": "aws-ddp-toolkit-node", "AssumeRolePolicyDocument": json.dumps(trust)}
    new.aws().call("iam", "CreateRole", params)
    new.requests.clear()
    assert new.type("up") == 4

    assert "role aws-ddp-toolkit-node; delete them in the IAM console" in new.err
    assert written(new) == []


def test_a_second_region_takes_the_roles_of_the_first_which_goes_last(new: NewAccount) -> None:
    new.type("up")
    assert new.type("up", "--region", "eu-west-1") == 0

    assert "SageMakerRole   arn:aws:iam::123456789012:role/aws-ddp-toolkit-sagemaker" in new.out
    assert "NodeRole" not in new.out
    assert new.type("down") == 4
    assert new.err.endswith("\n  python -m launch.infra down --region eu-west-1\n")
    assert new.type("down", "--region", "eu-west-1") == 0
    assert set(ROLES) <= set(new.roles)
    assert new.type("down") == 0


@pytest.mark.parametrize(
    ("flags", "missing"),
    [
        (["--security-group"], "--vpc-id"),
        (["--endpoint-subnets", "subnet-1"], "--vpc-id"),
    ],
)
def test_a_setting_that_needs_another_is_refused_without_it(new: NewAccount, flags: list[str], missing: str) -> None:
    assert new.type("up", *flags) == 2
    assert (flags[0] in new.err, missing in new.err, written(new)) == (True, True, [])


def test_a_vpc_gets_its_way_to_s3_a_group_and_endpoints(new: NewAccount) -> None:
    aws = new.aws()
    (vpc,) = aws.call("ec2", "DescribeVpcs")["Vpcs"]
    subnet = aws.call("ec2", "DescribeSubnets")["Subnets"][0]["SubnetId"]
    code = new.type("up", "--vpc-id", vpc["VpcId"], "--security-group", "--endpoint-subnets", subnet)

    assert (code, new.err) == (0, "")
    endpoints = {e["ServiceName"]: e for e in aws.call("ec2", "DescribeVpcEndpoints")["VpcEndpoints"]}
    tables = {table["RouteTableId"] for table in aws.call("ec2", "DescribeRouteTables")["RouteTables"]}
    assert set(endpoints["com.amazonaws.us-east-1.s3"]["RouteTableIds"]) == tables
    assert len(endpoints) == 6
    assert "36.50 USD per month for 5 in 1 subnet," in new.out
    (group,) = [word for word in new.out.split() if word.startswith("sg-")]
    (found,) = aws.call("ec2", "DescribeSecurityGroups", {"GroupIds": [group]})["SecurityGroups"]
    assert [rule["UserIdGroupPairs"][0]["GroupId"] for rule in found["IpPermissions"]] == [group]
    # Another stack's way to S3 in the same route table would be refused, so our own is not taken for one.
    assert new.type("up") == 0
    assert "no changes" in new.out


def test_a_failed_stack_is_an_error_and_the_next_up_says_what_to_do(
    new: NewAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which moto has not: that CloudFormation cannot make something, and takes the stack back."""

    def execute(self: Any, change_set_name: str, stack_name: str | None = None) -> None:
        (stack,) = new.stacks
        stack._add_stack_event("CREATE_IN_PROGRESS")
        stack._add_stack_event("CREATE_FAILED", resource_status_reason="no such thing (Service: Ecr, Status: 400)")
        stack.events[-1].resource_type = "AWS::ECR::Repository"
        stack._add_stack_event("ROLLBACK_COMPLETE")
        stack.status = "ROLLBACK_COMPLETE"

    backend = type(cloudformation_backends[new.id][new.region])
    with monkeypatch.context() as patched:
        patched.setattr(backend, "execute_change_set", execute)
        assert new.type("up") == 4

    assert "no such thing" in new.err
    assert new.type("up") == 4
    assert "run python -m launch.infra down --keep-data, then python -m launch.infra up again" in new.err


def test_up_follows_an_earlier_change_first(new: NewAccount) -> None:
    new.type("up")
    (stack,) = new.stacks
    stack.status = "UPDATE_IN_PROGRESS"
    new.happens = iter([lambda: setattr(stack, "status", "UPDATE_COMPLETE")])
    assert new.type("up") == 0

    assert "UPDATE_IN_PROGRESS" in new.out.splitlines()[0]
    assert "no changes" in new.out


def budgets(account: NewAccount) -> list[tuple[str, str]]:
    """(name, amount) of all."""
    rows = account.aws().pages("budgets", "DescribeBudgets", "Budgets", {"AccountId": account.id})
    return [(row["BudgetName"], row["BudgetLimit"]["Amount"]) for row in rows]


def test_the_budget_is_made_changed_and_removed_on_request(new: NewAccount) -> None:
    """In every region: CloudFormation has no AWS::Budgets::Budget in this one."""
    north = ("--region", "eu-north-1")
    new.type("up", *north)
    assert budgets(new) == []
    for amount in ("500", "600"):
        assert new.type("up", "--monthly-usd", amount, "--email", "a@example.org", *north) == 0
        assert budgets(new) == [("aws-ddp-toolkit", amount)]
    assert new.type("plan", *north) == 0
    assert "600.00 USD per month" in new.out
    assert new.type("up", "--monthly-usd", "0", *north) == 0
    assert budgets(new) == []

    new.type("up", "--monthly-usd", "5", "--email", "a@example.org", *north)
    one_usd = {"BudgetLimit": {"Amount": "1", "Unit": "USD"}, "BudgetType": "COST", "TimeUnit": "MONTHLY"}
    new.aws().call("budgets", "CreateBudget", {"AccountId": new.id, "Budget": {"BudgetName": "theirs", **one_usd}})
    assert new.type("down", *north) == 0
    assert budgets(new) == [("theirs", "1")]


def test_what_the_region_lacks_is_left_out_and_named(new: NewAccount) -> None:
    west = ("--region", "ca-west-1")
    for verb in ("plan", "up", "show"):
        assert new.type(verb, *west) == 0
        assert "ImageBuilder: CloudFormation has no AWS::CodeBuild::Project in ca-west-1" in new.out
    (sent,) = {call.params["TemplateBody"] for call in new.requests if call.operation == "CreateChangeSet"}
    assert "AWS::CodeBuild::Project" not in sent


# ---- queues


def test_queues_are_a_stack_of_their_own_that_goes_before_the_accounts(new: NewAccount) -> None:
    new.type("up")
    new.push_launcher()
    assert new.type("up", "--queue", "demo:8") == 0
    assert "  create  ControllerQueue" in new.out
    assert [stack.name for stack in new.stacks] == ["aws-ddp-toolkit", "aws-ddp-toolkit-queue"]
    roles = {"aws-ddp-toolkit-controller-us-east-1", "aws-ddp-toolkit-controller-execution-us-east-1"}
    assert roles <= set(new.roles)
    assert new.type("plan") == 0
    assert "apply it" not in new.out

    assert new.type("down", "--keep-data") == 0
    assert (new.stacks, roles & set(new.roles)) == ([], set())


def test_a_queue_with_jobs_in_line_is_neither_removed_nor_renamed(new: NewAccount) -> None:
    rules = Rules()
    with patched(rules):
        new.type("up", "--queue", "demo")
        queue = make_queue(rules, "aws-ddp-toolkit-demo", 0, new.region, new.id)  # no room
        request = {"jobName": "rates", "serviceJobType": "SAGEMAKER_TRAINING", "serviceRequestPayload": "{}"}
        rules.batch.jobs["1"] = ServiceJob("1", "arn", queue, request, datetime.now(UTC), status="RUNNABLE")
        new.requests.clear()
        for flags in (["--no-queue"], ["--queue", "other"]):
            assert new.type("up", *flags) == 4
            assert "would end with it: rates" in new.err
        assert written(new) == []
        rules.batch.jobs["1"].status = "SUCCEEDED"
        assert new.type("up", "--no-queue") == 0

    assert new.questions == ["this deletes the stack aws-ddp-toolkit-queue in us-east-1"]
    assert [stack.name for stack in new.stacks] == ["aws-ddp-toolkit"]


# ---- show


def test_show_says_how_to_make_a_stack_and_then_its_state_outputs_and_resources(new: NewAccount) -> None:
    assert new.type("show") == 4
    assert "python -m launch.infra up" in new.err
    new.type("up")
    assert new.type("show") == 0

    assert new.out.startswith("stack aws-ddp-toolkit in us-east-1: CREATE_COMPLETE\n")
    for line in (f"  Bucket          {new.bucket}", "  LogDays         30", "  NodeRole          aws-ddp-toolkit-node"):
        assert line + "\n" in new.out


# ---- down


def test_down_deletes_the_stack_and_what_it_left_empty_and_nothing_that_has_the_name(new: NewAccount) -> None:
    new.type("up")
    assert new.type("down") == 0

    assert new.out.endswith("deleted: stack aws-ddp-toolkit\n")
    assert (new.stacks, [role for role in new.roles if role in ROLES]) == ([], [])
    assert new.aws().call("s3", "ListBuckets")["Buckets"] == []
    assert new.aws().call("ecr", "DescribeRepositories")["repositories"] == []
    assert new.aws().call("logs", "DescribeLogGroups")["logGroups"] == []

    new.aws().call("s3", "CreateBucket", {"Bucket": new.bucket})
    assert new.type("down") == 0
    assert [bucket["Name"] for bucket in new.aws().call("s3", "ListBuckets")["Buckets"]] == [new.bucket]


def test_down_refuses_to_delete_data_and_the_commands_that_it_names_do(new: NewAccount) -> None:
    new.type("up")
    aws = new.aws()
    aws.call("s3", "PutBucketVersioning", {"Bucket": new.bucket, "VersioningConfiguration": {"Status": "Enabled"}})
    for body in (b"1234", b"5678"):
        aws.call("s3", "PutObject", {"Bucket": new.bucket, "Key": "jobs/j/model.pt", "Body": body})
    aws.call("s3", "DeleteObject", {"Bucket": new.bucket, "Key": "jobs/j/model.pt"})
    kind = "application/vnd.docker.distribution.manifest.v2+json"
    manifest = {"schemaVersion": 2, "mediaType": kind, "layers": [], "config": {"digest": "sha256:1"}}
    image = {"repositoryName": "aws-ddp-toolkit", "imageTag": "latest", "imageManifest": json.dumps(manifest)}
    aws.call("ecr", "PutImage", image)
    assert new.type("down") == 4

    assert f"bucket {new.bucket} holds objects and old versions: 3 (" in new.err
    assert "repository aws-ddp-toolkit holds images: 1 (" in new.err
    assert "aws ecr delete-repository --force --repository-name aws-ddp-toolkit --region us-east-1" in new.err
    assert len(new.stacks) == 1
    (line,) = [line for line in new.err.splitlines() if "python -c" in line]
    exec(line.partition("python -c '")[2].removesuffix("'"), {})
    aws.call("ecr", "DeleteRepository", {"repositoryName": "aws-ddp-toolkit", "force": True})
    assert new.type("down") == 0


def test_with_keep_data_the_rest_goes_and_the_next_up_takes_the_data_back(new: NewAccount) -> None:
    new.type("up")
    new.aws().call("s3", "PutObject", {"Bucket": new.bucket, "Key": "jobs/j/model.pt", "Body": b"1"})
    assert new.type("down", "--keep-data") == 0

    assert "kept, and adopted by the next up:" in new.out
    assert new.stacks == []
    assert new.type("up") == 0
    assert "  adopt   JobBucket" in new.out


def test_logs_stay_where_there_are_any(new: NewAccount) -> None:
    new.type("up")
    group = {"logGroupName": "/aws-ddp-toolkit/ec2"}
    new.aws().call("logs", "CreateLogStream", {**group, "logStreamName": "j/node-0"})
    assert new.type("down") == 0

    assert "aws logs delete-log-group --log-group-name /aws-ddp-toolkit/ec2 --region us-east-1" in new.out
    assert len(new.aws().call("logs", "DescribeLogGroups")["logGroups"]) == 1


def test_down_refuses_while_a_job_runs_in_any_region(new: NewAccount) -> None:
    new.type("up")
    tags = {"aws-ddp-toolkit:job": "j", "aws-ddp-toolkit:deadline": "2999-01-01T00:00:00Z"}
    rows = [{"Key": key, "Value": value} for key, value in tags.items()]
    specification = [{"ResourceType": "volume", "Tags": rows}]
    volume = {"AvailabilityZone": "eu-west-1a", "Size": 1, "TagSpecifications": specification}
    new.aws("eu-west-1").call("ec2", "CreateVolume", volume)
    assert new.type("down", "--keep-data") == 4

    assert "python -m launch.ec2 stop j --region eu-west-1" in new.err
    assert len(new.stacks) == 1


def test_down_refuses_if_it_cannot_see_whether_jobs_run(new: NewAccount) -> None:
    new.type("up")
    with injected(Faults()) as faults:
        faults.on("DescribeInstances", refused("UnauthorizedOperation", 403), nth=None)
        assert new.type("down") == 4

    assert "cannot tell whether jobs run in us-east-1" in new.err
    assert len(new.stacks) == 1


def test_down_refuses_while_a_policy_of_the_stack_is_attached_and_says_how_to_detach_it(new: NewAccount) -> None:
    new.type("up")
    aws, arn = new.aws(), f"arn:aws:iam::{new.id}:policy/aws-ddp-toolkit-launcher"
    aws.call("iam", "CreateUser", {"UserName": "ann"})
    aws.call("iam", "CreateGroup", {"GroupName": "team"})
    aws.call("iam", "AttachUserPolicy", {"UserName": "ann", "PolicyArn": arn})
    aws.call("iam", "AttachGroupPolicy", {"GroupName": "team", "PolicyArn": arn})
    assert new.type("down") == 4

    assert new.err.endswith(
        f"\n  aws iam detach-user-policy --user-name ann --policy-arn {arn}\n"
        f"  aws iam detach-group-policy --group-name team --policy-arn {arn}\n"
    )
    assert "cloudformation:DeleteStack" not in new.calls
    aws.call("iam", "DetachUserPolicy", {"UserName": "ann", "PolicyArn": arn})
    aws.call("iam", "DetachGroupPolicy", {"GroupName": "team", "PolicyArn": arn})
    assert new.type("down") == 0


def test_down_refuses_while_others_have_added_to_a_role_of_the_stack(new: NewAccount) -> None:
    new.type("up")
    aws, role = new.aws(), {"RoleName": "aws-ddp-toolkit-node"}
    allow = {"Effect": "Allow", "Action": "s3:ListAllMyBuckets", "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
    arn = aws.call("iam", "CreatePolicy", {"PolicyName": "more", "PolicyDocument": document})["Policy"]["Arn"]
    aws.call("iam", "AttachRolePolicy", {**role, "PolicyArn": arn})
    aws.call("iam", "PutRolePolicy", {**role, "PolicyName": "extra", "PolicyDocument": document})
    assert new.type("down") == 4

    assert f"  aws iam detach-role-policy --role-name aws-ddp-toolkit-node --policy-arn {arn}\n" in new.err
    assert "  aws iam delete-role-policy --role-name aws-ddp-toolkit-node --policy-name extra\n" in new.err
    assert "--policy-name node" not in new.err
    assert len(new.stacks) == 1


def test_down_shows_what_it_deletes_and_asks_first(new: NewAccount) -> None:
    new.type("up")
    new.requests.clear()
    assert new.type("down", "--dry-run=full") == 0
    for call in ("cloudformation:DeleteStack", "s3:DeleteBucket", "ecr:DeleteRepository", "logs:DeleteLogGroup"):
        assert call in new.out
    assert written(new) == []

    new.answer = "no"
    assert new.type("down") == 2
    assert "  delete           LauncherPolicy" in new.out
    assert "  delete if empty  JobBucket" in new.out
    assert len(new.questions) == len(new.stacks) == 1
    assert new.type("down", "--yes") == 0
    assert len(new.questions) == 1


def test_template_needs_an_account_and_a_region_that_there_are(new: NewAccount) -> None:
    for words in (("--account", "12"), ("--region", "cn-north-1")):
        assert new.type("template", *words) == 2
        assert words[1] in new.err
    assert new.calls == []
