"""moto's CodeBuild with patches: a build takes time, ends as a test wants, and is started once per token."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from moto.codebuild.models import CodeBuildBackend
from moto.codebuild.responses import CodeBuildResponse
from moto.core.responses import ActionResult
from moto.logs.models import logs_backends
from moto.s3.models import s3_backends
from moto.servicequotas.responses import ServiceQuotasResponse

from launch.aws.client import Aws
from launch.aws.refusals import BUILDS
from launch.core.clock import Clock
from tests.launch.image.machine import put

BUCKET = "aws-ddp-toolkit-123456789012-us-east-1"
PROJECT, LOG_GROUP = "aws-ddp-toolkit-images", "/aws-ddp-toolkit/images"
Event = Callable[[], None]


@dataclass
class Builds:
    """rows: moto's builds, by token; quota: how many may run at a time."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    quota: float = 1.0

    def set_up(self) -> None:
        """What launch.infra creates, as far as it matters here; the bucket may exist."""
        aws = Aws("us-east-1")
        aws.call("s3", "CreateBucket", {"Bucket": BUCKET})
        aws.call("logs", "CreateLogGroup", {"logGroupName": LOG_GROUP})
        project = {
            "name": PROJECT, "source": {"type": "S3", "location": f"{BUCKET}/aws-ddp-toolkit-builds/"},
            "artifacts": {"type": "NO_ARTIFACTS"}, "serviceRole": "arn:aws:iam::123456789012:role/r",
            "environment": {"type": "LINUX_CONTAINER", "image": "i", "computeType": "BUILD_GENERAL1_SMALL"},
        }  # fmt: skip
        aws.call("codebuild", "CreateProject", project)

    @property
    def row(self) -> dict[str, Any]:
        """The build."""
        (row,) = self.rows.values()
        return row

    @property
    def uploaded(self) -> dict[str, bytes]:
        """{key: content} of the bucket."""
        return {key: entry.value for key, entry in s3_backends["123456789012"]["aws"].buckets[BUCKET].keys.items()}

    # ---- events

    def vanish(self) -> Event:
        """AWS does not find it until it appears."""
        return lambda: self.row.update(away=self.row.pop("id"))

    def appear(self) -> Event:
        return lambda: self.row.update(id=self.row.pop("away"))

    def reach(self, phase: str) -> Event:
        return lambda: self.row.update(currentPhase=phase)

    def say(self, *lines: str) -> Event:
        """It writes these lines to its log."""

        def say() -> None:
            logs, stream = logs_backends["123456789012"]["us-east-1"], self.row["id"].partition(":")[2]
            logs.create_log_stream(LOG_GROUP, stream)
            now = int(Clock().now() * 1000)
            rows = [{"timestamp": now + number, "message": line} for number, line in enumerate(lines)]
            logs.put_log_events(LOG_GROUP, stream, rows)

        return say

    def end(self, status: str = "SUCCEEDED", phase: str = "BUILD", message: str = "") -> Event:
        """It ends; if it succeeds, it has pushed the image."""

        def end() -> None:
            if status == "SUCCEEDED":
                put(content=self.row["id"])
            contexts = [{"statusCode": "ERROR", "message": message}] if message else []
            self.row["phases"] += [{"phaseType": phase, "phaseStatus": status, "contexts": contexts}]
            self.row.update(currentPhase="COMPLETED", buildStatus=status)

        return end


@contextmanager
def patched() -> Iterator[Builds]:
    """moto with the patches inside the block."""
    builds, start_as_moto = Builds(), CodeBuildResponse.start_build

    def start(self: CodeBuildResponse) -> Any:
        token = self._get_param("idempotencyToken")
        if token not in builds.rows:
            start_as_moto(self)
            builds.rows[token] = self.codebuild_backend.build_metadata_history[PROJECT][-1]
        return ActionResult({"build": builds.rows[token]})

    def look(_self: CodeBuildBackend, ids: list[str]) -> list[dict[str, Any]]:
        return [row for row in builds.rows.values() if row.get("id") in ids]

    def list_quotas(_self: ServiceQuotasResponse) -> str:
        """https://docs.aws.amazon.com/servicequotas/2019-06-24/apireference/API_ListServiceQuotas.html"""
        return json.dumps({"Quotas": [{"QuotaName": BUILDS, "QuotaCode": "L-1", "Value": builds.quota}]})

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(ServiceQuotasResponse, "list_service_quotas", list_quotas, create=True))
        stack.enter_context(mock.patch.object(CodeBuildResponse, "start_build", start))
        stack.enter_context(mock.patch.object(CodeBuildBackend, "batch_get_builds", look))
        yield builds
