"""moto's account as IAM sees it: tags, the roles of profiles, and the owners of images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moto.ec2.models import ec2_backends
from moto.iam.exceptions import NotFoundException
from moto.iam.models import iam_backends
from moto.sagemaker.models import sagemaker_backends

from launch.rehearse.aws.iam.account import AccountView


def view_of(account: str, region: str, groups: Mapping[str, Any]) -> AccountView:
    """groups: placement groups by name, which moto does not have."""
    iam, ec2 = iam_backends[account]["aws"], ec2_backends[account][region]

    def tags_of(name: str) -> Mapping[str, str]:
        for there in ec2_backends[account].values():  # a snapshot is copied from another region
            if name in there.tags:
                return dict(there.tags[name])
        jobs: Mapping[str, Any] = sagemaker_backends[account][region].training_jobs
        found = groups.get(name) or jobs.get(name)
        return {tag["Key"]: tag["Value"] for tag in (found.tags if found else ())}

    def roles_of(profile: str) -> list[str]:
        try:
            return [role.arn for role in iam.get_instance_profile(profile).roles]
        except NotFoundException:  # EC2 refuses it afterwards
            return []

    def owner_of(image: str) -> str:
        found = ec2.amis.get(image)
        return str(found.owner_alias or found.owner_id) if found else ""

    return AccountView(account, region, tags_of, roles_of, owner_of)
