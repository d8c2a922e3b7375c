"""Errors of AWS's, in the words and the form of each service.  Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape

OF_XML = ("ec2", "s3", "iam", "sts", "cloudformation")


@dataclass(frozen=True)
class Refusal:
    """An error to answer with."""

    status: int
    code: str
    message: str

    def body(self, service: str) -> tuple[list[tuple[str, str]], bytes]:
        """Headers and body, in the service's protocol."""
        if service not in OF_XML:
            words = json.dumps({"__type": self.code, "message": self.message})
            return [("Content-Type", "application/json"), ("x-amzn-errortype", self.code)], words.encode()
        text = f"<Code>{self.code}</Code><Message>{escape(self.message, quote=False)}</Message>"
        whole = {
            "ec2": f"<Response><Errors><Error>{text}</Error></Errors><RequestID>r</RequestID></Response>",
            "s3": f"<Error>{text}<RequestId>r</RequestId></Error>",
        }.get(service, f"<ErrorResponse><Error>{text}</Error><RequestId>r</RequestId></ErrorResponse>")
        return [("Content-Type", "text/xml")], whole.encode()
