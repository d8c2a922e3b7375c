"""Whether AWS lets the caller remove the job of another launcher, asked before anything says that the job has ended."""

from contextlib import suppress
from typing import Any

from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.refusals import DENIED
from launch.core.session import hint
from launch.ec2.fleet import Fleet
from launch.ec2.stop import deletion
from trainer.errors import one_line


def check_may_remove(aws: Aws, job: str, own: Fleet) -> None:
    """Raises AwsError where AWS would refuse to remove what is left of a job, as it is another's.

    Every launcher may write its job.json.  Were the end noted there, its own launcher would take the job down for who
    was refused.  https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_TerminateInstances.html (DryRun)
    """
    owners = sorted({*(node.owner for node in own.living), *(thing.owner for thing in own.resources)} - {""})
    request = _first_request(own)
    if not owners or request is None or (me := caller(aws)) in ("", *owners):
        return
    operation, params = request
    try:
        aws.call("ec2", operation, {**params, "DryRun": True})
    except AwsError as error:  # DryRunOperation, where it would be allowed; whatever else there is shows in a moment
        if error.aws_code in DENIED:
            raise AwsError(
                f"{job} belongs to {one_line(', '.join(owners), 200)}, and AWS lets you remove nothing of it: {error}"
                f"{hint(me, owners)}",
                error.aws_code,
            ) from error


def caller(aws: Aws) -> str:
    """The caller's aws:userid; empty if AWS does not say, which keeps nobody from stopping a job."""
    with suppress(AwsError):
        return str(aws.call("sts", "GetCallerIdentity")["UserId"])
    return ""


def _first_request(own: Fleet) -> tuple[str, dict[str, Any]] | None:
    """The request to EC2 that would remove the first of a job's things; None if there is none."""
    if own.living:
        return "TerminateInstances", {"InstanceIds": [node.id for node in own.living]}
    requests = (deletion(thing) for thing in own.resources if thing.owner)
    return next(((operation, params) for service, operation, params in requests if service == "ec2"), None)
