"""Remedies for CreateTrainingJob's refusals.  Pure."""

import re

from launch.aws.lookup import SET_UP
from launch.aws.upload import FOLDER
from launch.core.errors import AwsError

# A pattern for AWS's message -> what to do.
_REFUSALS = {
    r"Could not assume role (?P<name>\S+?)\.? ": "SageMaker cannot assume role {name}: its trust policy must name "
    "sagemaker.amazonaws.com (infra/iam/sagemaker-trust.json), and a new role takes a minute; or give another --role.",
    r"service limit '(?P<name>Longest run[^']+)' is (?P<limit>\d+)": "the account's quota {name!r} is {limit} seconds; "
    "lower --max-hours, or ask for more under Service Quotas, Amazon SageMaker.",
    r"service limit '(?P<name>[^']*instances [^']+)' is (?P<limit>\d+)": "the account's quota {name!r} is {limit}, for "
    "all instance types together; ask for more under Service Quotas, Amazon SageMaker, or give fewer --nodes.",
    r"service limit '(?P<name>[^']+)' is (?P<limit>\d+)": "the account's quota {name!r} is {limit}; ask for more under "
    "Service Quotas, Amazon SageMaker, or give fewer --nodes or another --instance-type.",
    r"Cannot find (the requested image|repository): ?(?P<name>\S*)": "SageMaker finds no image {name}; push it: "
    "python -m launch.image push --target sagemaker, or check --image.",
    r"Access denied for repository: (?P<name>\S+)": "the job's role may not pull {name}: infra/iam/sagemaker.json "
    "allows the toolkit's own repository and AWS's PyTorch images; add it there, or give another --image.",
    # Of what has just been sent: AWS says the same where the role may not list it.
    rf"No S3 objects found under S3 URL \"(?P<name>s3://[^/\"]+/{FOLDER}/\d[^\"]+)\"": "the job's role may "
    "not list {name}, which has the script's source: the account's stack may be older than this version; update it "
    f"with {SET_UP}, or let a role of your own list and read {FOLDER}/ there.",
    r"No S3 objects found under S3 URL \"(?P<name>[^\"]+)\"": "there is nothing under {name}; check --data.",
    r"(?P<name>ml\.\S+) .*not (supported|available)": "{name} is not available in this region; give another "
    "--instance-type or --region.",
}


def with_remedy(error: AwsError) -> AwsError:
    """`error` of CreateTrainingJob, with a remedy if there is one."""
    for pattern, remedy in _REFUSALS.items():
        match = re.search(pattern, str(error))
        if match is not None:
            return type(error)(remedy.format(**match.groupdict()), error.aws_code, error.operation)
    return error
