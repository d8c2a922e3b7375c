"""The account as IAM sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Tags = Mapping[str, str]
Params = Mapping[str, Any]


@dataclass(frozen=True)
class AccountView:
    """The account as IAM sees it.

    tags_of: tags of an EC2 resource by id, or of a training job by name; roles_of: ARNs of the roles in an instance
    profile; owner_of: the account of an AMI, or its alias.
    """

    account: str
    region: str
    tags_of: Callable[[str], Tags]
    roles_of: Callable[[str], list[str]]
    owner_of: Callable[[str], str] = lambda _image: "amazon"

    def arn(self, service: str, resource: str) -> str:
        return f"arn:aws:{service}:{self.region}:{self.account}:{resource}"
