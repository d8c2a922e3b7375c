"""What the caller and the job's role may do, by IAM's own simulation.

https://docs.aws.amazon.com/IAM/latest/APIReference/API_SimulatePrincipalPolicy.html: it evaluates the policies of a
user or role, with its boundary and the organization's, and makes no request.  Policies of a bucket, key or repository
are not in it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from launch.core.instance.limits import SCHEDULE_GROUP
from launch.core.names import DATA_TAG, JOB_TAG, OWNER_TAG, TOOLKIT
from launch.core.refusals import granted_by
from launch.core.sent import FOLDER as SOURCES
from launch.doctor.case import NAME, Case
from launch.doctor.findings import Verdict, missing, ok, unknown
from launch.doctor.roles import role_of_jobs
from launch.ec2.names import LOG_GROUP, group_name


@dataclass(frozen=True)
class Right:
    """Actions on resources: each of the actions on each of the resources.  {ACCOUNT} and the like are filled in."""

    actions: Sequence[str]
    resources: Sequence[str]
    context: Mapping[str, str] = field(default_factory=dict)


EC2 = "arn:aws:ec2:{REGION}:{ACCOUNT}:"
ROLE = "arn:aws:iam::{ACCOUNT}:role/"
SCHEDULE = "arn:aws:scheduler:{REGION}:{ACCOUNT}:"
LOGS = "arn:aws:logs:{REGION}:{ACCOUNT}:log-group:"
SAGEMAKER = "arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/{JOB}"
FOLDER = "arn:aws:s3:::{BUCKET}/jobs/{JOB}/"
REPOSITORY = f"arn:aws:ecr:{{REGION}}:{{ACCOUNT}}:repository/{TOOLKIT}"
# The simulation may not know who asks under a role.
TAGGED, CARRIES = (
    {f"aws:{what}/{JOB_TAG}": NAME, f"aws:{what}/{OWNER_TAG}": "{USER_ID}", "aws:userid": "{USER_ID}"}
    for what in ("RequestTag", "ResourceTag")
)
SAFE = {**TAGGED, "ec2:MetadataHttpTokens": "required", "ec2:MetadataHttpPutResponseHopLimit": "1",
        "ec2:Encrypted": "true"}  # fmt: skip
OURS = {"s3:ResourceAccount": "{ACCOUNT}", "aws:PrincipalAccount": "{ACCOUNT}"}
SOURCE = f"arn:aws:s3:::{{BUCKET}}/{SOURCES}/x"

_JOB_FOLDER = [
    Right(["s3:GetObject", "s3:PutObject"], [f"{FOLDER}job.json"], OURS),
    Right(["s3:ListBucket"], ["arn:aws:s3:::{BUCKET}"], OURS),
]

# What a launcher does beyond look-ups, which show by themselves whether they are allowed.
LAUNCHER_ON_EC2 = [
    Right(["ec2:RunInstances"], [f"{EC2}instance/*", f"{EC2}volume/*", f"{EC2}network-interface/*"], SAFE),
    Right(["ec2:RunInstances"], [f"{EC2}subnet/*"]),
    Right(["ec2:RunInstances"], ["arn:aws:ec2:{REGION}::image/*"], {"ec2:Owner": "amazon"}),
    Right(["ec2:RunInstances"], ["arn:aws:ec2:{REGION}::snapshot/*"], {f"aws:ResourceTag/{DATA_TAG}": NAME}),
    Right(["ec2:CreateSecurityGroup"], [f"{EC2}security-group/*"], TAGGED),
    Right(["ec2:CreatePlacementGroup"], [f"{EC2}placement-group/*"], TAGGED),
    Right(["ec2:CreateTags"], [f"{EC2}instance/*"], {"ec2:CreateAction": "RunInstances", **TAGGED}),
    Right(["ec2:TerminateInstances"], [f"{EC2}instance/*"], CARRIES),
    Right(
        ["ec2:AuthorizeSecurityGroupIngress", "ec2:AuthorizeSecurityGroupEgress", "ec2:RevokeSecurityGroupEgress",
         "ec2:DeleteSecurityGroup"], [f"{EC2}security-group/*"], CARRIES,
    ),
    Right(["ec2:DeletePlacementGroup"], [f"{EC2}placement-group/*"], CARRIES),
    Right(["iam:PassRole"], [f"{ROLE}{{NODE_ROLE}}"], {"iam:PassedToService": "ec2.amazonaws.com"}),
    Right(["iam:PassRole"], [f"{ROLE}{{SCHEDULER_ROLE}}"], {"iam:PassedToService": "scheduler.amazonaws.com"}),
    Right(
        ["scheduler:CreateSchedule", "scheduler:UpdateSchedule", "scheduler:DeleteSchedule"],
        [f"{SCHEDULE}schedule/{SCHEDULE_GROUP}/{group_name(NAME)}"],
    ),
    Right(["logs:FilterLogEvents"], [f"{LOGS}{LOG_GROUP}"]),
    Right(["ec2:DescribeInstanceStatus", "pricing:GetProducts"], ["*"]),
    Right(["ec2:GetConsoleOutput"], [f"{EC2}instance/*"], CARRIES),  # explains a node that says nothing
    *_JOB_FOLDER,
]  # fmt: skip

LAUNCHER_ON_SAGEMAKER = [
    Right(["sagemaker:CreateTrainingJob"], [SAGEMAKER], TAGGED),
    Right(["sagemaker:AddTags"], [SAGEMAKER], {"sagemaker:TaggingAction": "CreateTrainingJob", **TAGGED}),
    Right(["sagemaker:StopTrainingJob", "sagemaker:UpdateTrainingJob"], [SAGEMAKER], CARRIES),
    Right(["iam:PassRole"], [f"{ROLE}{{JOB_ROLE}}"], {"iam:PassedToService": "sagemaker.amazonaws.com"}),
    Right(["logs:FilterLogEvents"], [f"{LOGS}/aws/sagemaker/TrainingJobs"]),
    *_JOB_FOLDER,
]

NODE = [
    Right(["ecr:GetAuthorizationToken"], ["*"]),
    Right(["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"], [REPOSITORY]),
    Right(["s3:GetObject"], [f"{FOLDER}cluster.json"], OURS),
    Right(["s3:PutObject"], [f"{FOLDER}run/x", f"{FOLDER}exits/x", f"{FOLDER}boot/x"], OURS),
    Right(["s3:ListBucket"], ["arn:aws:s3:::{BUCKET}"], {**OURS, "s3:prefix": "jobs/{JOB}/"}),
    Right(["logs:CreateLogStream", "logs:PutLogEvents"], [f"{LOGS}{LOG_GROUP}:log-stream:x"]),
]

TRAINING_JOB = [
    Right(["s3:GetObject", "s3:PutObject"], [f"{FOLDER}run/x"], OURS),
    Right(["logs:CreateLogStream", "logs:PutLogEvents"], [f"{LOGS}/aws/sagemaker/TrainingJobs:log-stream:x"]),
]

# What a job with a script of the user's own needs as well: its source is sent once, and every rank reads it.
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes-enforce.html
SENDS_SOURCE = [
    Right(["s3:PutObject"], [SOURCE], {**OURS, "s3:if-none-match": "*"}),
    Right(["s3:GetObject"], [SOURCE], OURS),
]
READS_SOURCE = [Right(["s3:GetObject"], [SOURCE], OURS)]
LISTS_SOURCES = [Right(["s3:ListBucket"], ["arn:aws:s3:::{BUCKET}"], {**OURS, "s3:prefix": f"{SOURCES}/x"})]


def use_of(key: str) -> Right:
    """What EC2 asks of whoever makes a volume with a key of the user's.

    https://docs.aws.amazon.com/ebs/latest/userguide/ebs-encryption-requirements.html
    """
    actions = ["kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext",
               "kms:ReEncryptFrom", "kms:ReEncryptTo"]  # fmt: skip
    return Right(actions, [key], {"kms:GrantIsForAWSResource": "true"})


def of_launcher(case: Case) -> Iterator[Verdict]:
    if case.identity.is_root:
        yield ok("the root user may do everything")
        return
    rights = LAUNCHER_ON_EC2 if case.backend == "ec2" else LAUNCHER_ON_SAGEMAKER
    yield _verdict(case, case.identity.principal, rights + _of_script(case, SENDS_SOURCE), partial(_attach, case))


def _of_script(case: Case, rights: list[Right]) -> list[Right]:
    """Those, if the job has a script of the user's own."""
    return rights if case.job.train.source is not None else []


def _attach(case: Case, policies: Sequence[str]) -> str:
    """How the caller gets policies of infra/iam."""
    names = [f"{TOOLKIT}-{policy}" for policy in policies]
    if "/aws-reserved/sso.amazonaws.com/" in case.identity.principal:  # a role that nobody but AWS may change
        return f"add the customer managed policies {' and '.join(names)} to the permission set, in IAM Identity Center"
    kind = "role" if ":role/" in case.identity.principal else "user"
    whom = f"--{kind}-name {case.identity.principal.rpartition('/')[2]}"
    attach = f"aws iam attach-{kind}-policy {whom} --policy-arn arn:aws:iam::{case.account}:policy/"
    return " && ".join(attach + name for name in names)


def of_node(case: Case) -> Iterator[Verdict]:
    name = case.ec2.options.instance_profile  # launch.infra gives both one name
    rights = NODE + _of_script(case, READS_SOURCE)
    yield _verdict(case, f"arn:aws:iam::{case.account}:role/{name}", rights, lambda _policies: _put(name, "node"))


def of_training_job(case: Case) -> Iterator[Verdict]:
    name = role_of_jobs(case)
    rights = TRAINING_JOB + _of_script(case, READS_SOURCE + LISTS_SOURCES)
    yield _verdict(case, f"arn:aws:iam::{case.account}:role/{name}", rights, lambda _policies: _put(name, "sagemaker"))


def _put(role: str, policy: str) -> str:
    document = f"--policy-name {policy} --policy-document file://infra/iam/{policy}.json"
    return f"python -m launch.infra up, or aws iam put-role-policy --role-name {role} {document}"


def _verdict(case: Case, principal: str, rights: Sequence[Right], mend: Callable[[Sequence[str]], str]) -> Verdict:
    """mend: the remedy, by the names of the policies in infra/iam that allow what is refused."""
    name, refused, doubtful = principal.rpartition("/")[2], dict[str, None](), dict[str, str]()
    for right in rights:
        for refusal in refusals(case, principal, right):
            if refusal.doubt:
                doubtful.setdefault(refusal.action, refusal.doubt)
            else:
                refused[refusal.action] = None
    if refused:
        policies = sorted({granted_by(action) for action in refused})
        names = [policy.rpartition("/")[2].removesuffix(".json") for policy in policies]
        return missing(f"{name} may not {', '.join(refused)}, which {' and '.join(policies)} allows", mend(names))
    if doubtful:
        doubts = "; ".join(dict.fromkeys(doubtful.values()))
        return unknown(f"whether {name} may {', '.join(doubtful)}: {doubts}", "the dry run below asks EC2 itself")
    actions = {action for right in rights for action in right.actions}
    return ok(f"{name}: {len(actions)} actions that the job needs are allowed")


@dataclass(frozen=True)
class Refusal:
    """An action that IAM would refuse.  doubt: why the request itself may fare otherwise, empty if it will not."""

    action: str
    doubt: str = ""


def refusals(case: Case, principal: str, right: Right) -> list[Refusal]:
    """The actions that IAM would refuse on one of the resources."""
    # The organization's policies are evaluated, too, and many of them test the region, also where it has no value.
    context = {**right.context, "aws:RequestedRegion": case.region}
    answer = case.aws.pages("iam", "SimulatePrincipalPolicy", "EvaluationResults", {
        "PolicySourceArn": principal,
        "ActionNames": list(right.actions),
        "ResourceArns": [_filled(resource, case) for resource in right.resources],
        "ContextEntries": [
            {"ContextKeyName": key, "ContextKeyValues": [_filled(value, case)], "ContextKeyType": _type(value)}
            for key, value in context.items()
        ],
    })  # fmt: skip
    found = {Refusal(row["EvalActionName"], _doubt(row)) for row in answer if row["EvalDecision"] != "allowed"}
    return sorted(found, key=lambda one: (one.action, one.doubt))


def _type(value: str) -> str:
    if value.isdigit():
        return "numeric"
    return "boolean" if value in ("true", "false") else "string"


def _doubt(row: Mapping[str, Any]) -> str:
    if row.get("OrganizationsDecisionDetail", {}).get("AllowedByOrganizations") is False:
        return "the organization's policies refuse it in the simulation"
    if lacking := row.get("MissingContextValues"):
        return f"policies test {', '.join(lacking)}, which the simulation does not know"
    return ""


def denied(case: Case, principal: str, right: Right) -> list[str]:
    """The actions that IAM would refuse, for whatever reason."""
    return sorted({refusal.action for refusal in refusals(case, principal, right)})


def _filled(text: str, case: Case) -> str:
    names = {"ACCOUNT": case.account, "REGION": case.region, "BUCKET": case.bucket, "JOB": NAME,
             "USER_ID": case.identity.user_id}  # fmt: skip
    if case.backend == "ec2":
        options = case.ec2.options
        names |= {"NODE_ROLE": options.instance_profile, "SCHEDULER_ROLE": options.scheduler_role}
    else:
        names["JOB_ROLE"] = role_of_jobs(case)
    return text.format_map(names)
