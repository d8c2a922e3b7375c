"""Client tokens, as in EC2: moto does not know them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError

from launch.rehearse.aws.ec2.rules import Rules


def once(rules: Rules, response: Any, act: Callable[[], ActionResult]) -> ActionResult:
    """The answer to the first request with this client token; its resources are shown as they are now."""
    token = response._get_param("ClientToken") or ""
    key, request = (response.region, response._get_action(), token), json.dumps(response.params, default=str)
    if token and key in rules.answered:
        earlier_request, answer = rules.answered[key]
        if earlier_request != request:
            raise EC2ClientError(
                "IdempotentParameterMismatch", "The request uses the same client token as a previous, but different one"
            )
        return ActionResult(answer)
    result = act()
    if token:
        rules.answered[key] = (request, result.result)
    return result
