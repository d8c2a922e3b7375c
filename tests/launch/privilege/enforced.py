"""moto with IAM, for a user or a role with policies of infra/iam only.

moto finds the caller and its policies.  Because moto evaluates only their actions, needs.py and policies.py decide
what a call needs and whether that is granted, on moto's resources and tags.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from moto import settings
from moto.ec2.models import ec2_backends
from moto.iam.access_control import IAMPolicy, IAMRequestBase
from moto.iam.models import iam_backends
from moto.sagemaker.models import sagemaker_backends

from tests.launch.ec2.account import Account
from tests.launch.faults import Request, watched
from tests.launch.privilege.needs import AccountView, needs
from tests.launch.privilege.policies import FOLDER, Need, allows
from tests.launch.sagemaker.account import SageMakerAccount


@dataclass
class Watch:
    """calls: all calls; granted, refused: their needs; typed: the command lines that made them."""

    calls: list[Request] = field(default_factory=list)
    granted: list[Need] = field(default_factory=list)
    refused: list[Need] = field(default_factory=list)
    typed: list[tuple[str, ...]] = field(default_factory=list)


@contextmanager
def enforced(account: Account | SageMakerAccount, name: str = "launcher") -> Iterator[Watch]:
    """Inside the block, new clients belong to a user with infra/iam/NAME.json only, and older ones are refused."""
    watch, current, view = Watch(), threading.local(), view_of(account)

    def note(call: Request, _protocol: str) -> None:
        current.call = call
        watch.calls.append(call)

    def decide(request: Any, _resource: str) -> None:
        policies = [IAMPolicy(policy)._policy_json for policy in request._access_key.collect_policies()]
        for need in needs(current.call, view):
            if not allows(policies, need):
                watch.refused.append(need)
                request._action = need.action  # for moto's message
                request._raise_access_denied()
            watch.granted.append(need)

    iam = iam_backends[account.id]["aws"]
    iam.create_user("us-east-1", name)
    iam.put_user_policy(name, name, json.dumps(json.loads((FOLDER / f"{name}.json").read_text())))
    key = iam.create_access_key(name)
    with ExitStack() as stack:
        keys = {"AWS_ACCESS_KEY_ID": key.access_key_id, "AWS_SECRET_ACCESS_KEY": key.secret_access_key}
        stack.enter_context(mock.patch.dict("os.environ", keys))
        stack.enter_context(watched(note))
        stack.enter_context(mock.patch.object(IAMRequestBase, "check_action_permitted", decide))
        # moto computes wrong signatures for requests with a query, such as ListSchedules.
        stack.enter_context(mock.patch.object(IAMRequestBase, "check_signature", return_value=None))
        stack.enter_context(mock.patch.object(settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0))
        yield watch


def view_of(account: Account | SageMakerAccount) -> AccountView:
    """This account as IAM sees it."""
    iam = iam_backends[account.id]["aws"]

    def tags_of(name: str) -> Mapping[str, str]:
        for backend in ec2_backends[account.id].values():
            if name in backend.tags:
                return dict(backend.tags[name])
        groups = account.rules.placement_groups if isinstance(account, Account) else {}
        jobs: Mapping[str, Any] = sagemaker_backends[account.id][account.region].training_jobs
        found = groups.get(name) or jobs.get(name)
        return {tag["Key"]: tag["Value"] for tag in (found.tags if found else ())}

    def roles_of(profile: str) -> list[str]:
        return [role.arn for role in iam.get_instance_profile(profile).roles]

    def owner_of(image: str) -> str:
        found = ec2_backends[account.id][account.region].amis[image]
        return str(found.owner_alias or found.owner_id)

    return AccountView(account.id, account.region, tags_of, roles_of, owner_of)
