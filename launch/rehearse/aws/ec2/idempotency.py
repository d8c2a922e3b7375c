"""Client tokens, as EC2 has them and moto has not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError

from launch.rehearse.aws.ec2.rules import Rules


def once(rules: Rules, response: Any, act: Callable[[], ActionResult]) -> ActionResult:
    """The answer to the first request with this client token, with what has become of it since."""
    token = response._get_param("ClientToken") or ""
    key, asked = (response.region, response._get_action(), token), json.dumps(response.params, default=str)
    if token and key in rules.answered:
        before, made = rules.answered[key]
        if before != asked:
            raise EC2ClientError(
                "IdempotentParameterMismatch", "The request uses the same client token as a previous, but different one"
            )
        return ActionResult(made)
    result = act()
    if token:
        rules.answered[key] = (asked, result.result)
    return result
