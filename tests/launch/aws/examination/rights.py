"""Rights that an examination simulates, beside what the policies in infra/iam grant."""

from collections.abc import Iterator, Sequence

from launch.aws.examination.case import Right
from launch.aws.names import bucket_of
from launch.rehearse.aws.iam.policies import Need, allows, policy

NAMES = {"ACCOUNT": "1", "REGION": "us-east-1", "BUCKET": bucket_of("1", "us-east-1"), "JOB": "doctor",
         "NODE_ROLE": "aws-ddp-toolkit-node", "SCHEDULER_ROLE": "aws-ddp-toolkit-scheduler",
         "JOB_ROLE": "aws-ddp-toolkit-sagemaker"}  # fmt: skip


def ungranted(file: str, rights: Sequence[Right]) -> list[str]:
    """What a file of infra/iam does not allow of `rights`."""
    return [str(need) for right in rights for need in _needs(right) if not allows([policy(file)], need)]


def _needs(right: Right) -> Iterator[Need]:
    context = {"aws:PrincipalAccount": "1"}
    context |= {key: value.format_map(NAMES) for key, value in right.context.items()}
    for action in right.actions:
        yield from (Need(action, resource.format_map(NAMES), context) for resource in right.resources)
