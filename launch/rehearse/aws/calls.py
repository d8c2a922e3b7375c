"""A call to AWS, and AWS's errors in each service's format.  Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any


@dataclass(frozen=True)
class Call:
    """One call to AWS.  params: in the form of boto3's arguments."""

    service: str
    operation: str
    params: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.service}:{self.operation}"


@dataclass(frozen=True)
class SignedCall:
    """A call with its signer.  key: the access key that it is signed with."""

    call: Call
    key: str
    account: str
    region: str


XML_SERVICES = ("ec2", "s3", "iam", "sts", "cloudformation")


@dataclass(frozen=True)
class Refusal:
    """An error to answer with."""

    status: int
    code: str
    message: str

    def body(self, service: str) -> tuple[list[tuple[str, str]], bytes]:
        """Headers and body, in the service's protocol."""
        if service not in XML_SERVICES:
            words = json.dumps({"__type": self.code, "message": self.message})
            return [("Content-Type", "application/json"), ("x-amzn-errortype", self.code)], words.encode()
        text = f"<Code>{self.code}</Code><Message>{escape(self.message, quote=False)}</Message>"
        whole = {
            "ec2": f"<Response><Errors><Error>{text}</Error></Errors><RequestID>r</RequestID></Response>",
            "s3": f"<Error>{text}<RequestId>r</RequestId></Error>",
        }.get(service, f"<ErrorResponse><Error>{text}</Error><RequestId>r</RequestId></ErrorResponse>")
        return [("Content-Type", "text/xml")], whole.encode()


Check = Callable[[SignedCall], Refusal | None]
