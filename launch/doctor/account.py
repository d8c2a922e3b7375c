"""What launch.infra sets up once, as far as a job needs it: stack, bucket, schedules, budget; and what jobs left."""

from collections.abc import Iterator

from launch.core.errors import AwsError
from launch.core.instance.limits import SCHEDULE_GROUP
from launch.core.lookup import SET_UP, check_bucket
from launch.core.names import STACK_TAG, TOOLKIT, tag_values
from launch.core.price import usd
from launch.doctor import permissions
from launch.doctor.case import Case
from launch.doctor.findings import Verdict, missing, ok, warning
from launch.ec2 import leaks
from launch.ec2.finding import find
from launch.ec2.lookup import log_group_exists
from launch.ec2.names import LOG_GROUP
from launch.sagemaker import training_jobs

SWEEPER = f"{TOOLKIT}-sweeper"
GRANTED_TO_SPOT = ("Decrypt", "Encrypt", "GenerateDataKey", "GenerateDataKeyWithoutPlaintext", "CreateGrant",
                   "DescribeKey", "ReEncryptFrom", "ReEncryptTo")  # fmt: skip
# States of a stack that is whole: https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/view-stack-events.html
WHOLE = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", "IMPORT_COMPLETE")


def stack(case: Case) -> Iterator[Verdict]:
    try:
        (row,) = case.aws.call("cloudformation", "DescribeStacks", {"StackName": TOOLKIT})["Stacks"]
    except AwsError as error:
        if error.aws_code != "ValidationError":  # CloudFormation's code for a stack that does not exist
            raise
        where = home(case)
        text = f"the account's is in {where}" if where else "all of it can also be made by hand"
        mend = f"--region {where}, or {_set_up(case)}" if where else _set_up(case)
        yield warning(f"no stack {TOOLKIT} in {case.region}; {text}", mend)
        return
    state = row["StackStatus"]
    if state in WHOLE or state.startswith("UPDATE_ROLLBACK_COMPLETE"):
        yield ok(f"{TOOLKIT}: {state}")
    else:
        yield warning(f"{TOOLKIT} is {state}", _set_up(case))


def home(case: Case) -> str:
    """The region whose stack made the roles; empty if none did."""
    try:
        role = case.aws.call("iam", "GetRole", {"RoleName": f"{TOOLKIT}-node"})["Role"]
    except AwsError:
        return ""
    return tag_values(role).get(STACK_TAG, "")


def _set_up(case: Case) -> str:
    return f"{SET_UP} --region {case.region}"


def bucket(case: Case) -> Iterator[Verdict]:
    check_bucket(case.aws, case.bucket, case.account)
    yield ok(case.bucket)


def log_group(case: Case) -> Iterator[Verdict]:
    yield ok(LOG_GROUP if log_group_exists(case.aws) else f"{LOG_GROUP}: the first job creates it")


def schedule_group(case: Case) -> Iterator[Verdict]:
    create = f"aws scheduler create-schedule-group --name {SCHEDULE_GROUP} --region {case.region}"
    try:
        state = case.aws.call("scheduler", "GetScheduleGroup", {"Name": SCHEDULE_GROUP})["State"]
    except AwsError as error:
        if error.aws_code != "ResourceNotFoundException":
            raise
        yield warning(f"no group {SCHEDULE_GROUP} for time limits; the first job creates it", create)
        return
    if state == "ACTIVE":
        yield ok(SCHEDULE_GROUP)
    else:
        yield missing(f"the group {SCHEDULE_GROUP} is {state}, so no time limit can be set", f"wait, then {create}")


def sweeper(case: Case) -> Iterator[Verdict]:
    try:
        state = case.aws.call("scheduler", "GetSchedule", {"Name": SWEEPER})["State"]
    except AwsError as error:
        if error.aws_code != "ResourceNotFoundException":
            raise
        yield warning(f"no schedule {SWEEPER}: nothing ends a node if its own timers fail", _set_up(case))
        return
    if state == "ENABLED":
        yield ok(SWEEPER)
    else:
        yield warning(f"{SWEEPER} is {state}", _set_up(case))


def budget(case: Case) -> Iterator[Verdict]:
    # Budgets are global: https://docs.aws.amazon.com/general/latest/gr/billing.html
    rows = case.aws.pages("budgets", "DescribeBudgets", "Budgets", {"AccountId": case.account})
    if rows:
        yield ok(f"{len(rows)} in the account")
    else:
        yield warning("nobody is told what the account spends", f"{SET_UP} --monthly-usd 500 --email YOU@EXAMPLE.ORG")


def left_on_ec2(case: Case) -> Iterator[Verdict]:
    found = leaks.judge(find(case.aws), case.region, case.now)
    leaking = [one for one in found if one.is_leak]
    if leaking:
        cost = usd(sum(one.usd_per_hour for one in leaking))
        jobs = ", ".join(one.job for one in leaking[:3])
        delete = f"python -m launch.ec2 leaks --delete --region {case.region}"
        yield warning(f"resources of {len(leaking)} jobs are left ({jobs}): {cost} per hour", delete)
    else:
        yield ok(f"none; jobs within their time limit: {len(found)}")


def left_on_sagemaker(case: Case) -> Iterator[Verdict]:
    names = [job.name for job in training_jobs.costing(case.aws, case.now)]
    if names:
        stop = f"python -m launch.sagemaker status --region {case.region}"
        yield warning(f"{len(names)} training jobs are billed now: {', '.join(names[:3])}", stop)
    else:
        yield ok("none")


def keys(case: Case) -> Iterator[Verdict]:
    """The key of the bucket, where it is the user's own: nodes need leave to use it."""
    query = {"Bucket": case.bucket, "ExpectedBucketOwner": case.account}
    try:
        answer = case.aws.call("s3", "GetBucketEncryption", query)
    except AwsError as error:
        if error.aws_code != "ServerSideEncryptionConfigurationNotFoundError":
            raise
        answer = {}
    rules = answer.get("ServerSideEncryptionConfiguration", {}).get("Rules", ())
    key = next((_own_key(rule) for rule in rules if _own_key(rule)), "")
    if key:
        yield from use_of_key(case, key, "objects of the bucket")
    else:
        yield ok("the bucket's objects have AWS's own key")


def _own_key(rule: dict[str, dict[str, str]]) -> str:
    default = rule.get("ApplyServerSideEncryptionByDefault", {})
    return default.get("KMSMasterKeyID", "") if default.get("SSEAlgorithm", "").startswith("aws:kms") else ""


def use_of_key(case: Case, key: str, what: str) -> Iterator[Verdict]:
    """Whether a key of the user's can be used for `what`: of this account, enabled, allowed.  key: id, ARN or alias."""
    remedy = "infra/account.md: what the key's policy must allow; or AWS's own key"
    owner = key.split(":")[4] if key.startswith("arn:") else case.account
    if owner != case.account:  # which lets nobody else describe it
        yield missing(f"{what}: key {key} belongs to account {owner}", remedy)
        return
    described = case.aws.call("kms", "DescribeKey", {"KeyId": key})["KeyMetadata"]
    if described.get("KeyManager") == "AWS":
        yield ok(f"{what}: AWS's own key")
    elif described.get("KeyState") != "Enabled":
        yield missing(f"{what}: key {key} is {described.get('KeyState')}", f"aws kms enable-key --key-id {key}")
    elif denied := permissions.denied(case, case.identity.principal, permissions.use_of(described["Arn"])):
        text = f"{what}: unless the policy of your key {key} allows it, these credentials may not {', '.join(denied)}"
        yield warning(text, remedy)
    else:
        yield ok(f"{what}: a key of your own, {key}, which these credentials may use")


def spots_use_of_key(case: Case, key: str, what: str) -> Iterator[Verdict]:
    """Spot nodes whose volumes have a key of the user's end at once unless spot's own role has a grant on it.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/service-linked-roles-spot-instance-requests.html
    """
    if not case.ec2.options.spot or key.startswith("alias/aws/"):
        return
    described = case.aws.call("kms", "DescribeKey", {"KeyId": key})["KeyMetadata"]
    if described.get("KeyManager") == "AWS":
        return
    role = f"arn:aws:iam::{case.account}:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
    grants = case.aws.pages("kms", "ListGrants", "Grants", {"KeyId": described["Arn"]})
    if any(grant.get("GranteePrincipal") == role for grant in grants):
        yield ok(f"{what}: spot's role has a grant on the key")
        return
    operations = " ".join(GRANTED_TO_SPOT)
    make = f"aws kms create-grant --region {case.region} --key-id {described['Arn']} --grantee-principal {role}"
    text = f"{what}: AWSServiceRoleForEC2Spot has no grant on your key {key}; unless its policy allows it, nodes end"
    yield warning(f"{text} at once", f"{make} --operations {operations}")
