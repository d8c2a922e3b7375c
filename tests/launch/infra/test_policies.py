"""infra/iam/administrator.json, administrator-stack.json and sweeper.json: what the commands ask for is granted, and
what else is granted has a reason.
"""

import json
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import pytest

from launch.aws.refusals import PERMISSIONS
from launch.infra.template import filled, filled_notify, filled_queue, read
from tests.conftest import ROOT
from tests.launch.faults import Request
from tests.launch.infra.account import NewAccount
from tests.launch.sagemaker.test_policies import POLICIES, grants, listed

ACCOUNT = "123456789012"
VIA = "aws:CalledVia"

# What CloudFormation does in the caller's name, by the types in the template: AWS's own list, with its date in it.
# moto makes the resources without asking IAM, so only AWS can show that this is all.
HANDLERS: dict[str, set[str]] = {
    kind: set(actions)
    for kind, actions in json.loads((ROOT / "tests/launch/infra/handlers.json").read_text())["types"].items()
}
# What it does beside that, by why: also for types of which AWS publishes none.
BESIDE = {
    **dict.fromkeys(
        ("codebuild:BatchGetProjects", "codebuild:CreateProject", "codebuild:DeleteProject", "codebuild:UpdateProject"),
        "AWS::CodeBuild::Project, which is not in the list: as remembered on 2026-11-21",
    ),
    "ec2:DescribeSecurityGroupRules": "AWS::EC2::SecurityGroupIngress, and Egress",
    "route53:AssociateVPCWithHostedZone": "EC2 asks for it where an endpoint has private names: "
    "https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html",
}

# What the handlers can do and need not for our template: settings that ours has not or never takes away, data that no
# stack of ours may delete, keys of one's own, and managed policies for others.
NOT_OURS = (
    "s3tables:*", "vpc-lattice:*", "vpce:*", "kms:*", "firehose:*", "logs:*KmsKey", "iam:Attach*",
    "iam:*PermissionsBoundary", "logs:CreateLogDelivery", "logs:DeleteDataProtectionPolicy", "logs:DeleteIndexPolicy",
    "logs:DeleteResourcePolicy", "logs:DeleteRetentionPolicy", "logs:PutBearerTokenAuthentication",
    "logs:PutDataProtectionPolicy", "logs:PutIndexPolicy", "logs:PutLogGroupDeletionProtection",
    "logs:PutResourcePolicy", "ecr:DeleteLifecyclePolicy", "ecr:DeleteRepositoryPolicy", "ecr:SetRepositoryPolicy",
    "s3:*Metadata*", "s3:*AnalyticsConfiguration", "s3:*MetricsConfiguration", "s3:*BucketReplication",
    "s3:*BucketWebsite", "s3:*Cors", "s3:DeleteBucketEncryption", "s3:DeleteBucketLifecycle", "s3:DeleteBucketTagging",
    "s3:DeleteObject", "s3:GetObject", "s3:PutAccelerateConfiguration", "s3:PutBucketAbac", "s3:Put*Acl",
    "s3:PutBucketCORS", "s3:PutBucketLogging", "s3:PutBucketNotification", "s3:Put*ObjectLockConfiguration",
    "s3:PutIntelligentTieringConfiguration", "s3:PutInventoryConfiguration", "s3:PutReplicationConfiguration",
    "s3:REST.PUT.OBJECT", "eks:*", "ec2:DescribeLaunchTemplateVersions", "batch:SetCapacityTags",
    "lambda:*CodeSigningConfig", "lambda:DeleteFunctionConcurrency", "lambda:Put*", "lambda:PublishVersion",
    "lambda:AssociateRuntimeAlias", "lambda:GetLayerVersion", "lambda:PassCapacityProvider",
    "elasticfilesystem:*", "s3files:*", "s3:GetObjectVersion", "sns:PutDataProtectionPolicy", "iam:GetRole",
)  # fmt: skip

# Grants that no call here needs, and why they are there.
ARGUED = {
    "cloudformation:ContinueUpdateRollback": "the plan names the command",
    "cloudformation:DescribeEvents": "what AWS found wrong before it began; moto looks for nothing",
    "cloudformation:DescribeStackDriftDetectionStatus": "show --drift; moto has no drift",
    "cloudformation:DescribeStackResourceDrifts": "show --drift",
    "cloudformation:DetectStackDrift": "show --drift",
    "cloudformation:DetectStackResourceDrift": "AWS asks for it as well, for each resource",
    "ec2:DescribeDhcpOptions": "up --vpc-id, of a VPC with DNS servers of its own",
    "cloudformation:TagResource": "CreateChangeSet with tags",
    "sagemaker:DescribeTrainingJob": "down: which jobs run; there are none here",
    "batch:DescribeServiceJob": "the same, through a queue",
    "batch:DescribeJobs": "the same",
    "batch:ListJobs": "the same",
    "batch:ListServiceJobs": "the same",
    "sagemaker:ListTags": "the same",
    "billing:GetBillingViewData": "CreateBudget, by what AWS's schema of AWS::Budgets::Budget needs",
}


# Two, for AWS takes 6,144 characters: what an administrator does, and most of what CloudFormation does in that name.
FILES = ("administrator.json", "administrator-stack.json")


def statements() -> list[Any]:
    """All that an administrator is granted."""
    return [statement for file in FILES for statement in POLICIES[file]["Statement"]]


def granted() -> set[str]:
    """The actions of all that."""
    return {action for statement in statements() for action in listed(statement["Action"])}


@cache
def every_call() -> tuple[Request, ...]:
    """What plan, up, show and down ask of AWS, with and without data, a network and another region."""
    with NewAccount.opened() as new:
        aws = new.aws()
        (vpc,) = aws.call("ec2", "DescribeVpcs")["Vpcs"]
        new.requests.clear()
        assert new.type("plan") == 0
        assert new.type("up", "--vpc-id", vpc["VpcId"]) == 0
        assert new.type("plan", "--log-days", "60") == 0
        assert new.type("up", "--log-days", "60") == 0
        assert new.type("show") == 0
        assert new.type("down", "--keep-data") == 0
        assert new.type("up", "--monthly-usd", "5", "--email", "a@example.org") == 0
        assert new.type("down") == 0
        assert new.type("up") == 0
        new.push_launcher()
        assert new.type("up", "--queue", "demo", "--notify", "a@example.org") == 0
        return tuple(new.requests)


# IAM's names where they are not the operations'.
NAMES = {**PERMISSIONS, "s3:ListObjectVersions": "s3:ListBucketVersions"}


def action_of(call: Request) -> str:
    return NAMES.get(str(call), str(call))


def resource_of(call: Request) -> str:
    """The ARN that IAM looks at."""
    asked = call.params
    where = f"us-east-1:{ACCOUNT}"
    if call.service == "cloudformation":
        name = asked["StackName"]
        return str(name) if str(name).startswith("arn:") else f"arn:aws:cloudformation:{where}:stack/{name}/1"
    named = {
        "Bucket": "arn:aws:s3:::{}",
        "RoleName": f"arn:aws:iam::{ACCOUNT}:role/{{}}",
        "InstanceProfileName": f"arn:aws:iam::{ACCOUNT}:instance-profile/{{}}",
        "PolicyArn": "{}",
        "BudgetName": f"arn:aws:budgets::{ACCOUNT}:budget/{{}}",
        "logGroupName": f"arn:aws:logs:{where}:log-group:{{}}",
        "repositoryName": f"arn:aws:ecr:{where}:repository/{{}}",
        "AWSServiceName": f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/{{}}/AWSServiceRoleForEC2Spot",
    }
    asked = {**asked, **asked.get("Budget", {})}
    if "repositoryNames" in asked:
        return f"arn:aws:ecr:{where}:repository/{asked['repositoryNames'][0]}"
    return next((pattern.format(asked[key]) for key, pattern in named.items() if key in asked), "*")


def test_the_administrators_policy_grants_all_that_the_commands_ask_for() -> None:
    refused = set()
    for call in every_call():
        context = {"iam:AWSServiceName": call.params["AWSServiceName"]} if "AWSServiceName" in call.params else {}
        if not unconditional(action_of(call), resource_of(call), **context):
            refused.add((action_of(call), resource_of(call)))
    assert refused == set()
    assert len({action_of(call) for call in every_call()}) > 25


def unconditional(action: str, resource: str, **context: str) -> bool:
    """Whether the policy allows it to who asks, and not only to CloudFormation in the name of who asks."""
    direct = [s for s in statements() if VIA not in str(s.get("Condition", ""))]
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(POLICIES, "administrator.json", {"Statement": direct})
        return grants("administrator.json", action, resource, **context)


def test_every_grant_is_used_by_a_call_or_by_cloudformation_or_argued() -> None:
    used = {action_of(call) for call in every_call()} | set().union(*HANDLERS.values()) | BESIDE.keys()
    assert granted() - used == set(ARGUED)


def test_what_the_handlers_of_cloudformation_need_is_granted_but_what_is_not_ours() -> None:
    needed = set().union(*HANDLERS.values()) | BESIDE.keys()
    assert [one for one in needed - granted() if not any(fnmatchcase(one, pattern) for pattern in NOT_OURS)] == []


def test_what_cloudformation_needs_is_known_for_each_type_in_the_template() -> None:
    templates = (filled(ACCOUNT, "us-east-1"), filled_queue(ACCOUNT), filled_notify(ACCOUNT, "us-east-1"))
    types = {row["Type"] for text in templates for row in read(text)["Resources"].values()}
    assert types - HANDLERS.keys() == {"AWS::CodeBuild::Project"}


def test_what_makes_or_changes_things_goes_through_cloudformation_only() -> None:
    """But for its own stack, what is left empty, what is in the way of deleting it, spot machines and the budget."""
    direct = {
        action
        for statement in statements()
        if VIA not in str(statement.get("Condition", ""))
        for action in listed(statement["Action"])
        if not action.partition(":")[2].startswith(("Describe", "Get", "List"))
    }
    assert {action for action in direct if not action.startswith("cloudformation:")} == {
        "ecr:DeleteRepository", "logs:DeleteLogGroup", "s3:DeleteBucket", "iam:CreateServiceLinkedRole",
        "iam:DeleteRolePolicy", "iam:DetachGroupPolicy", "iam:DetachRolePolicy", "iam:DetachUserPolicy",
        "budgets:ModifyBudget", "budgets:ViewBudget",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("action", "resource"),
    [
        ("cloudformation:DeleteStack", f"arn:aws:cloudformation:us-east-1:{ACCOUNT}:stack/somebody-elses/1"),
        ("s3:DeleteBucket", "arn:aws:s3:::somebody-elses"),
        ("iam:CreateRole", f"arn:aws:iam::{ACCOUNT}:role/aws-ddp-toolkit-node"),
        ("ec2:CreateSecurityGroup", f"arn:aws:ec2:us-east-1:{ACCOUNT}:security-group/sg-1"),
        ("s3:DeleteObject", f"arn:aws:s3:::aws-ddp-toolkit-{ACCOUNT}-us-east-1/jobs/j/job.json"),
        ("iam:DetachUserPolicy", f"arn:aws:iam::{ACCOUNT}:user/ann"),  # but for the stack's own policies
        ("budgets:ModifyBudget", f"arn:aws:budgets::{ACCOUNT}:budget/somebody-elses"),
        ("ecr:BatchDeleteImage", f"arn:aws:ecr:us-east-1:{ACCOUNT}:repository/aws-ddp-toolkit"),
        ("iam:CreateServiceLinkedRole", f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/other.amazonaws.com/R"),
    ],
)
def test_the_administrator_may_not_do_it_by_hand(action: str, resource: str) -> None:
    assert not unconditional(action, resource)


# ---- the sweeper


NODE = f"arn:aws:ec2:us-east-1:{ACCOUNT}:instance/i-1"
VOLUME = f"arn:aws:ec2:us-east-1:{ACCOUNT}:volume/vol-1"
TAGS: dict[str, Any] = {
    "aws:ResourceTag/aws-ddp-toolkit:job": "j", "aws:ResourceTag/aws-ddp-toolkit:started": "2026-11-21T13:00:00Z",
    "aws:ResourceTag/aws-ddp-toolkit:bucket": "b", "aws:ResourceTag/Name": "aws-ddp-toolkit-j",
}  # fmt: skip


@pytest.mark.parametrize(("action", "thing"), [("TerminateInstances", NODE), ("DeleteVolume", VOLUME)])
def test_the_sweeper_ends_only_what_carries_all_of_our_tags(action: str, thing: str) -> None:
    both = {**TAGS, "aws:ResourceTag/aws-ddp-toolkit:deadline": "2026-11-21T14:00:00Z"}
    assert grants("sweeper.json", f"ec2:{action}", thing, **both)
    assert not grants("sweeper.json", f"ec2:{action}", thing, **TAGS)
    assert not grants("sweeper.json", f"ec2:{action}", thing, **{**both, "aws:ResourceTag/Name": "prod-database"})
    assert not grants("sweeper.json", f"ec2:{action}", thing)


def test_the_sweeper_may_do_what_it_does_and_nothing_else() -> None:
    granted = {action for statement in POLICIES["sweeper.json"]["Statement"] for action in listed(statement["Action"])}
    assert granted == {
        "ec2:DescribeInstances", "ec2:DescribeVolumes", "ec2:TerminateInstances", "ec2:DeleteVolume", "iam:PassRole",
        "ssm:StartAutomationExecution",
    }  # fmt: skip
