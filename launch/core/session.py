"""One session of a role for all of a process's connections to AWS.

Where a profile assumes a role and gives the session no name, botocore makes one up, from the time, for each connection
anew.  aws:userid ends with that name, and a job's owner is known by it: a launcher would be another person with each of
its connections, and could not replace the lost nodes of its own job.
https://boto3.amazonaws.com/v1/documentation/api/latest/guide/credentials.html#assume-role-provider
"""

import json
import os
import re
from collections.abc import Collection
from typing import Any

# botocore's names of the ways that assume a role.
ASSUMED = {"assume-role", "assume-role-with-web-identity"}

HOW_TO_NAME = "role_session_name = NAME in the profile in ~/.aws/config (or AWS_ROLE_SESSION_NAME, for a web identity)"

_known: dict[str, Any] = {}  # credentials, by all that decides which role is assumed, and by whom


class OneSession:
    """In place of botocore's own resolver of credentials, which still finds them."""

    def __init__(self, session: Any) -> None:
        """session: botocore's."""
        self._session, self._resolver = session, session.get_component("credential_provider")

    def load_credentials(self) -> Any:
        """Those of a role are the same object for all connections, which renews itself under the same name."""
        settings = sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_"))
        key = json.dumps(
            [self._session.get_config_variable("profile"), settings, self._session.full_config], default=str
        )
        # Not one connection after the other: a look into all regions has one for each, and a program that a profile
        # names for its credentials may take seconds.  To assume a role is left to who asks the credentials for keys.
        found = _known.get(key) or self._resolver.load_credentials()
        return _known.setdefault(key, found) if getattr(found, "method", "") in ASSUMED else found


def forget_failed() -> None:
    """Forgets those that have given no keys: they go on asking in the region that was the first, or is misspelt."""
    for key, found in list(_known.items()):
        if getattr(found, "_frozen_credentials", found) is None:
            _known.pop(key, None)


def unnamed(owner: str) -> list[str]:
    """A warning where this aws:userid is not that of the next command, or of the next machine.

    Of an instance with a role it is the role's with the instance's id:
    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_variables.html#principaltable
    """
    if re.fullmatch(r"[A-Z0-9]+:i-[0-9a-f]+", owner):
        return [
            "to IAM you are this EC2 instance: from another one, or once it is gone, you may not stop what this "
            f"command starts; launch with a profile that assumes a role under a name that stays: {HOW_TO_NAME}."
        ]
    if not re.fullmatch(r"[A-Z0-9]+:botocore-session-\d+", owner):
        return []
    return [
        "AWS's SDK makes up a name for your session of a role, and another in the next command, whom IAM does not let "
        f"stop what this one starts; give it one that stays: {HOW_TO_NAME}."
    ]


def hint(me: str, owners: Collection[str]) -> str:
    """What helps whom AWS refuses what another session of the same role owns, if that is his."""
    role = me.partition(":")[0]
    if not any(owner.startswith(f"{role}:") for owner in owners):
        return ""
    return f"  If that is you in another session of this role, take its name, which is behind the colon: {HOW_TO_NAME}."
