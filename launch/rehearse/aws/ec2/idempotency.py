"""Client tokens, as in EC2: moto does not know them.

https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html#api-error-codes-table-client
"""

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
        if any(node.state == "terminated" for node in getattr(answer, "instances", ())):
            raise EC2ClientError(
                "IdempotentInstanceTerminated",
                "The request uses the same client token as a previous one whose instance has been terminated",
            )
        return ActionResult(answer)
    result = act()
    if token:
        rules.answered[key] = (request, result.result)
    return result
