"""Who signs requests in a rehearsal: the launcher's user and the machines' role, with the policies of infra/iam."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from launch.aws.ecr import PLACE
from launch.aws.names import TOOLKIT
from launch.core.secrets import read_references
from launch.rehearse.aws.access import Access
from launch.rehearse.aws.iam.policies import Policy, policy
from launch.rehearse.stage.environment import CREDENTIALS
from launch.rehearse.stage.scene import RehearsedJob

# Of names of the user's own, which infra/iam knows nothing of: on AWS their owner adds these, see infra/account.md.
ON_OWN_NAMES = ["s3:*Object", "s3:ListBucket", "s3:AbortMultipartUpload", "ecr:*", "iam:GetRole", "iam:PassRole",
                "iam:GetInstanceProfile", "ssm:GetParameter", "secretsmanager:GetSecretValue"]  # fmt: skip


def admit(access: Access, account: str, job: RehearsedJob, role: str, key: str, token: str) -> None:
    """Lets the launcher, and machines that sign with `key`, do what infra/iam and the command line's names allow.

    role: of infra/iam, such as node; token: of the machines' session.
    """
    own: Policy = {"Statement": [{"Effect": "Allow", "Action": ON_OWN_NAMES, "Resource": sorted(set(_own_arns(job)))}]}
    # Who registers models has the policy for that, too.
    extras = policy("sagemaker-extras")["Statement"] if job.options.get("register") else []
    # And who publishes data sets that for data sets.
    extras = [*extras, *policy("data")["Statement"]] if job.is_published else extras
    # And who names a VPC on SageMaker that for this network.
    extras = (
        [*extras, *_in_vpc(job.options)["Statement"]] if role == "sagemaker" and job.options.get("subnet") else extras
    )
    launchers: Policy = {"Statement": [*own["Statement"], *extras]}
    access.add(CREDENTIALS["AWS_ACCESS_KEY_ID"], f"arn:aws:iam::{account}:user/launcher", "launcher", launchers)
    access.add(key, f"arn:aws:sts::{account}:assumed-role/aws-ddp-toolkit-{role}/{role}", role, own)
    access.tokens |= {CREDENTIALS["AWS_ACCESS_KEY_ID"]: CREDENTIALS["AWS_SESSION_TOKEN"], key: token}


def _in_vpc(options: Mapping[str, Any]) -> Policy:
    """infra/iam/launcher-vpc.json with the subnets and security groups that its owner puts in."""
    text = json.dumps(policy("launcher-vpc"))
    for placeholder, names in (("subnet-REPLACE", options["subnet"]), ("sg-REPLACE", options["security_group"])):
        text = text.replace(f'["{placeholder}"]', json.dumps(list(names)))
    filled: Policy = json.loads(text)
    return filled


def _own_arns(job: RehearsedJob) -> Iterator[str]:
    """The resources that the command line names."""
    options = job.options
    for bucket in (*_data_buckets(job), options.get("bucket") or ""):
        if bucket.startswith(f"{TOOLKIT}-"):  # infra/iam says what may be read in it
            continue
        yield from (f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*")
    image = options.get("image") or ""
    place = PLACE.fullmatch(image)
    repository = place["name"] if place else image.partition("@")[0].partition(":")[0]
    yield f"arn:aws:ecr:*:*:repository/{repository}"
    for name in ("instance_profile", "scheduler_role", "role"):
        word = str(options.get(name)).rpartition("/")[2]
        yield from (f"arn:aws:iam::*:role/{word}", f"arn:aws:iam::*:instance-profile/{word}")
    for reference in read_references(options.get("secret") or ()).values():
        service, _, name = reference.partition(":")
        kind = "parameter" if service == "ssm" else "secret:"
        yield f"arn:aws:{service}:*:*:{kind}{name}*"


def _data_buckets(job: RehearsedJob) -> list[str]:
    """The buckets that the command line reads data from."""
    uris = [job.options.get("data_s3") or "", job.train.data_url or "", *(job.options.get("data") or ())]
    return [uri.partition("s3://")[2].partition("/")[0] for uri in uris if "s3://" in uri]
