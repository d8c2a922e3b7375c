"""infra/cloudformation/account.yaml as it is sent: it says what infra/iam says, and what launchers look for."""

import fnmatch
import hashlib
import json
import re
from datetime import timedelta
from typing import Any

import pytest

from launch.aws.names import ROLES_TAG, ROLES_VERSION
from launch.aws.upload import FOLDER, KEPT_DAYS
from launch.data.on_ec2.facts import prefix_of
from launch.ec2 import requests
from launch.ec2.options import Ec2Options
from launch.image import codebuild
from launch.image.source import PREFIX
from launch.infra.template import KEPT, POLICIES, WITH_THEM, filled, rates, read, resources, without_words
from launch.sagemaker.training_jobs import LONGEST_LIFE
from tests.conftest import ROOT
from tests.launch.ec2 import known

TEXT = filled("123456789012", "eu-west-1")
TEMPLATE: dict[str, Any] = read(TEXT)
THINGS: dict[str, Any] = TEMPLATE["Resources"]


def policy(name: str) -> Any:
    """infra/iam/NAME.json as it is sent, without the names of its statements."""
    text = (ROOT / f"infra/iam/{name}.json").read_text().replace("@ACCOUNT@", "123456789012")
    return json.loads(text, object_hook=lambda part: {key: part[key] for key in part if key != "Sid"})


def ids(**parameters: str) -> set[str]:
    return {thing.id for thing in resources(TEMPLATE, parameters)}


@pytest.mark.parametrize("role", ["image-builder", "node", "publisher", "sagemaker", "scheduler", "sweeper"])
def test_each_role_has_the_statements_of_its_file_and_no_others(role: str) -> None:
    (found,) = [
        row["Properties"] for row in THINGS.values() if row["Properties"].get("RoleName") == f"aws-ddp-toolkit-{role}"
    ]
    trust = {"sweeper": "scheduler", "publisher": "node"}.get(role, role)  # who starts it is the same

    assert found["AssumeRolePolicyDocument"] == policy(f"{trust}-trust")
    assert found["Policies"] == [{"PolicyName": role, "PolicyDocument": policy(role)}]
    assert "ManagedPolicyArns" not in found  # AWS's own grant more; Session Manager's, all parameters


def test_services_take_the_schedules_roles_on_for_this_account_only() -> None:
    (statement,) = THINGS["SchedulerRole"]["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Condition"] == {"StringEquals": {"aws:SourceAccount": "123456789012"}}


@pytest.mark.parametrize("name", ["launcher", "reader", "builder", "data"])
def test_the_policy_of_a_person_is_its_file(name: str) -> None:
    properties = THINGS[f"{name.title()}Policy"]["Properties"]
    assert properties["PolicyDocument"] == policy(name)
    assert TEMPLATE["Outputs"][f"{name.title()}Policy"]["Value"]["Fn::Sub"].endswith(
        f":policy/{properties['ManagedPolicyName']}"
    )


def test_what_roles_and_time_limits_rest_on_has_a_version() -> None:
    """A change of these files that jobs of this version need adds one to ROLES_VERSION: plans warn of older stacks.

    One that they do not need is only written down here.
    """
    files = [*(f"iam/{name}.json" for name in ("node", "scheduler", "scheduler-trust", "sweeper")),
             "cloudformation/sweep.py"]  # fmt: skip
    text = "".join((ROOT / "infra" / file).read_text() for file in files)
    text += json.dumps(THINGS["Sweeper"]["Properties"]["Content"]["parameters"])
    tags = {tag["Key"]: tag["Value"] for tag in THINGS["SchedulerRole"]["Properties"]["Tags"]}
    assert tags[ROLES_TAG] == str(ROLES_VERSION)
    assert (ROLES_VERSION, hashlib.sha256(text.encode()).hexdigest()[:12]) == (4, "1958a5e40227")


def test_what_holds_data_outlives_the_stack_and_can_be_adopted() -> None:
    kept = [name for name, row in THINGS.items() if row.get("DeletionPolicy", "Delete") != "Delete"]
    assert sorted(kept) == sorted([*KEPT, *WITH_THEM])
    # Plain Retain would leave them, too, where the first `up` fails.
    assert {THINGS[name]["DeletionPolicy"] for name in kept} == {"RetainExceptOnCreate"}
    assert THINGS["JobBucketPolicy"]["Properties"]["Bucket"] == THINGS["JobBucket"]["Properties"]["BucketName"]
    for thing in resources(TEMPLATE, {}):
        if thing.id in KEPT:
            assert isinstance(thing.name, str)
            assert not thing.name.startswith("{")  # a function, which CloudFormation does not adopt
            assert THINGS[thing.id]["UpdateReplacePolicy"] == "Retain"


def test_the_bucket_is_private_encrypted_versioned_and_over_tls_only() -> None:
    bucket = THINGS["JobBucket"]["Properties"]
    deny, *more = THINGS["JobBucketPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    rules = {rule["Id"]: rule for rule in bucket["LifecycleConfiguration"]["Rules"]}

    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
    (encrypted,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert encrypted["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    assert (deny["Effect"], deny["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    assert {statement["Effect"] for statement in more} == {"Deny"}
    assert rules["old-versions"]["NoncurrentVersionExpiration"] == {"NoncurrentDays": {"Ref": "OldVersionDays"}}
    assert rules["incomplete-uploads"]["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 3}


@pytest.mark.parametrize("region", ["eu-west-1", "ap-southeast-5"])  # no region has a longer name
def test_aws_takes_the_template_for_its_length(region: str) -> None:
    """https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html"""
    assert len(filled("123456789012", region).encode()) <= 51_200


def test_aws_takes_each_policy_for_its_length() -> None:
    """https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html, which does not count white space."""
    for name in sorted(path.stem for path in (ROOT / "infra/iam").glob("*.json")):
        alone = {"administrator", "administrator-stack", "builder", "data", "launcher", "launcher-queue",
                 "launcher-sagemaker", "reader"}  # fmt: skip
        limit = 6_144 if name in alone else 2_048 if name.endswith("-trust") else 10_240  # all that is in one role
        text = json.dumps(policy(name)) if name in POLICIES else (ROOT / f"infra/iam/{name}.json").read_text()
        assert len("".join(text.split())) <= limit


def test_aws_takes_what_is_put_into_a_user_for_its_length() -> None:
    """2,048 characters for all of them together: the page above."""
    page = (ROOT / "infra/account.md").read_text()
    files = re.findall(r"put-user-policy .*file://(\S+\.json)", page)
    assert files
    assert sum(len("".join((ROOT / file).read_text().split())) for file in files) <= 2_048


# ---- what is there under which conditions

ALWAYS = {"JobBucket", "JobBucketPolicy", "Repository", "NodeLogs", "Sweeper", "SweeperSchedule"}
ACCOUNTS = {"NodeRole", "NodeProfile", "SageMakerRole", "SchedulerRole", "SweeperRole", "LauncherPolicy"}


def test_what_is_the_accounts_is_made_once() -> None:
    assert ids() >= ALWAYS | ACCOUNTS
    again = ids(AccountWide="no")
    assert again >= ALWAYS
    assert not again & ACCOUNTS


@pytest.mark.parametrize(
    ("asked", "made"),
    [
        ({"VpcId": "vpc-1", "RouteTableIds": "rtb-1"}, {"WayToS3"}),
        ({"VpcId": "vpc-1", "SecurityGroup": "yes"}, {"NodeGroup", "NodeGroupIn", "NodeGroupOut"}),
        ({"VpcId": "vpc-1", "SubnetIds": "subnet-1,subnet-2"},
         {"EndpointGroup", "EcrApiEndpoint", "EcrImagesEndpoint", "LogsEndpoint", "SsmEndpoint",
          "SsmMessagesEndpoint"}),
        ({"SubnetIds": "subnet-1", "RouteTableIds": "rtb-1", "SecurityGroup": "yes"}, set[str]()),
    ],
)  # fmt: skip
def test_the_network_has_only_what_is_requested(asked: dict[str, str], made: set[str]) -> None:
    assert ids(**asked) - ids() == made


def test_each_rate_has_figures() -> None:
    shown = rates({"JobBucket": "AWS::S3::Bucket", "NodeRole": "AWS::IAM::Role"}, 2, 5, 60.0)

    assert [(rate.name, rate.value) for rate in shown] == [
        ("JobBucket", {"usd_per_gb_month": 0.023}),
        ("Sweeper", {"usd_per_month": 1.57, "runs_per_month": 730}),
        ("endpoints", {"usd_per_month": 73.0, "usd_per_gb": 0.01}),
        ("everything_else", {"usd_per_month": 0}),
    ]
    assert rates({}, 0, 0, 15.0)[0].value == {"usd_per_month": 6.28, "runs_per_month": 2920}


# ---- the container


def test_codebuild_builds_as_launch_image_says() -> None:
    project, role = THINGS["ImageBuilder"]["Properties"], THINGS["ImageBuilderRole"]["Properties"]["RoleName"]

    assert project["Name"] == codebuild.PROJECT
    assert THINGS["ImageLogs"]["Properties"]["LogGroupName"] == codebuild.LOG_GROUP
    assert project["TimeoutInMinutes"] == codebuild.LIMIT_MINUTES
    assert project["Environment"]["ComputeType"] == "BUILD_GENERAL1_SMALL"  # whose price codebuild.py has
    assert project["Environment"]["PrivilegedMode"] is True
    assert project["ServiceRole"]["Fn::If"][2]["Fn::Sub"].endswith(f":role/{role}")
    assert "Triggers" not in project
    assert (ROOT / project["Source"]["BuildSpec"]).is_file()


def test_what_codebuild_built_from_and_how_data_were_published_goes_after_some_days() -> None:
    rules = THINGS["JobBucket"]["Properties"]["LifecycleConfiguration"]["Rules"]
    # And nothing else in the bucket does.
    gone = {rule["Prefix"]: rule["ExpirationInDays"] for rule in rules if "ExpirationInDays" in rule}
    assert gone == {PREFIX: 7, prefix_of("photos").replace("photos/", ""): 7, f"{FOLDER}/": KEPT_DAYS}


def test_no_source_expires_under_a_job_that_may_start_again() -> None:
    """It is sent in a month at the earliest, and used by jobs that begin at the month's end at the latest."""
    ec2 = Ec2Options.model_fields
    (longest, waits) = (
        next(bound.le for bound in ec2[name].metadata if hasattr(bound, "le"))
        for name in ("max_hours", "wait_for_capacity")
    )
    for life in (timedelta(hours=longest + waits), LONGEST_LIFE):
        assert timedelta(days=31) + life < timedelta(days=KEPT_DAYS)


def expired(images: list[set[str]]) -> list[set[str]]:
    """Of images with these tags, oldest first, those that ECR would remove: an image that a rule matches is touched by
    no later rule.  https://docs.aws.amazon.com/AmazonECR/latest/userguide/LifecyclePolicies.html
    """
    text = THINGS["Repository"]["Properties"]["LifecyclePolicy"]["LifecyclePolicyText"]
    rules = sorted(json.loads(text)["rules"], key=lambda rule: rule["rulePriority"])
    left, gone = list(images), list[set[str]]()
    for selection in (rule["selection"] for rule in rules if rule["selection"]["tagStatus"] == "tagged"):
        (pattern,) = selection["tagPatternList"]
        all_matched = [tags for tags in images if fnmatch.filter(tags, pattern)]
        gone += [tags for tags in all_matched[: -selection["countNumber"]] if tags in left]
        left = [tags for tags in left if tags not in all_matched]
    return gone


def test_the_newest_images_of_each_kind_stay_and_whatever_a_moving_tag_names() -> None:
    images = [{f"{kind}-{number:016x}"} for number in range(12) for kind in ("trainer", "sagemaker", "jupyter")]
    images[0].add("latest")  # it went back to the oldest of all
    images[-2].add("sagemaker")

    assert expired(images) == [images[3], images[1], images[4], images[2], images[5]]


# ---- the sweeper


def test_the_document_runs_the_script_with_the_sweepers_role() -> None:
    document = THINGS["Sweeper"]["Properties"]
    (step,) = document["Content"]["mainSteps"]

    script = (ROOT / "infra/cloudformation/sweep.py").read_text()
    assert step["inputs"]["Script"] == without_words(script)  # what the tests of the sweeper run
    assert (step["action"], step["inputs"]["Handler"]) == ("aws:executeScript", "sweep")
    assert document["Content"]["assumeRole"]["Fn::Sub"].endswith(":role/aws-ddp-toolkit-sweeper")
    assert f":document/{document['Name']}" in json.dumps(policy("sweeper"))
    assert not document["Name"].startswith(("aws", "amazon", "amzn"))  # AWS refuses those


def test_a_time_limit_starts_the_same_document_without_its_grace() -> None:
    """https://docs.aws.amazon.com/systems-manager/latest/userguide/automation-action-executeScript.html: a script gets
    its InputPayload as `events`, with the document's parameters in braces.
    """
    document = THINGS["Sweeper"]["Properties"]
    _, request = requests.time_limit(known.plan().payload.cluster, exists=False)
    asked = json.loads(request.params["Target"]["Input"])

    assert asked["DocumentName"] == document["Name"]
    ((name, values),) = asked["Parameters"].items()
    assert set(values) <= set(document["Content"]["parameters"][name]["allowedValues"])
    (step,) = document["Content"]["mainSteps"]
    assert step["inputs"]["InputPayload"] == {"grace_minutes": f"{{{{ {name} }}}}"}
