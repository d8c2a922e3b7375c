"""A machine with stand-ins for docker, podman and buildah, and an account with an empty repository: moto's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launch.core.aws import Aws
from launch.image import __main__ as command
from launch.image.source import read_source
from launch.rehearse.nodes.ec2.node import write_program
from tests.conftest import ROOT
from tests.launch.faults import Request

REPOSITORY = "aws-ddp-toolkit"
HOST = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
URI = f"{HOST}/{REPOSITORY}"
AWSS = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
PASSWORD = "123456789012-auth-token"  # moto's
TAG = read_source(ROOT, "trainer", None).tag

STAND_IN = """#!/bin/sh
if [ "$1" = login ]; then read -r told; fi
echo "${{0##*/}} $*|$told" >> {log}
if [ "$1" = "{refuses}" ]; then echo "denied: not today" >&2; exit 1; fi
"""


@dataclass
class Machine:
    """log: what the stand-ins noted; requests: what AWS was asked for; happens: at each sleep, in turn."""

    folder: Path
    log: Path
    requests: list[Request] = field(default_factory=list)
    out: str = ""
    err: str = ""
    capture: Any = None
    happens: Iterator[Callable[[], None]] = field(default_factory=lambda: iter(()))

    def has(self, *programs: str, refuses: str = "") -> None:
        """These, and no other builders."""
        for file in self.folder.iterdir():
            file.unlink()
        for name in programs:
            write_program(self.folder / name, STAND_IN.format(log=self.log, refuses=refuses))

    def type(self, *words: str) -> int:
        """The exit code of `python -m launch.image WORDS`."""
        code = command.main(list(words))
        self.out, self.err = self.capture.readouterr()
        return code

    def wait(self, _seconds: float) -> None:
        """What the command sleeps through."""
        next(self.happens, lambda: None)()

    @property
    def ran(self) -> list[str]:
        """What was run, with what it was told behind a bar."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    @property
    def asked(self) -> list[str]:
        return [str(call) for call in self.requests]


def put(target: str = "trainer", content: str = "layers", tag: str = TAG) -> str:
    """The digest of an image that the repository has from now on."""
    tag = tag if target == "trainer" else read_source(ROOT, "sagemaker", None).tag
    manifest = {
        "schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {"mediaType": "application/vnd.docker.container.image.v1+json", "size": 1, "digest": content},
        "layers": [{"digest": content}],  # of which moto makes the digest
    }  # fmt: skip
    image = {"repositoryName": REPOSITORY, "imageTag": tag, "imageManifest": json.dumps(manifest)}
    answer = Aws("us-east-1").call("ecr", "PutImage", image)
    digest: str = answer["image"]["imageId"]["imageDigest"]
    return digest


def digests() -> dict[str, str]:
    """{tag: digest} of the repository."""
    rows = Aws("us-east-1").call("ecr", "DescribeImages", {"repositoryName": REPOSITORY})["imageDetails"]
    return {tag: row["imageDigest"] for row in rows for tag in row.get("imageTags", ())}
