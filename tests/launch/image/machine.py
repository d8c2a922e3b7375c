"""A machine with stand-ins for docker, podman and buildah, and an account with an empty repository, by moto."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from launch.aws.client import Aws
from launch.core.clock import Clock
from launch.image.__main__ import main
from launch.image.commands import Runtime
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
if [ "$1" = login ]; then read -r password; fi
echo "${{0##*/}} $*|$password" >> {log}
if [ "$1" = "{refuses}" ]; then echo "denied: not today" >&2; exit 1; fi
"""


@dataclass
class Machine:
    """log: what the stand-ins recorded; requests: calls to AWS; happens: events, one at each sleep."""

    folder: Path
    log: Path
    capture: Any
    checkout: Path = ROOT
    requests: list[Request] = field(default_factory=list)
    out: str = ""
    err: str = ""
    happens: Iterator[Callable[[], None]] = field(default_factory=lambda: iter(()))
    _slept_s: float = 0.0

    def has(self, *programs: str, refuses: str = "") -> None:
        """Installs these builders, and removes all others."""
        for file in self.folder.iterdir():
            file.unlink()
        for name in programs:
            write_program(self.folder / name, STAND_IN.format(log=self.log, refuses=refuses))

    def type(self, *words: str) -> int:
        """The exit code of `python -m launch.image WORDS`."""
        code = main(words, self.runtime)
        self.out, self.err = self.capture.readouterr()
        return code

    @property
    def runtime(self) -> Runtime:
        path = str(self.folder)
        which = partial(shutil.which, path=path)
        clock = Clock(lambda: time.time() + self._slept_s, self._sleep)
        return Runtime(partial(Aws, policy="builder"), self.checkout, which, {"PATH": path}, self._say, clock)

    def _say(self, line: str) -> None:
        """Prints, and does what docker does in the registry."""
        print(line)
        if line.startswith("$ docker push"):
            target = "sagemaker" if any("--target sagemaker" in line for line in self.ran) else "trainer"
            put(target, f"pushed {len(self.ran)}")

    def _sleep(self, seconds: float) -> None:
        self._slept_s += seconds
        assert self._slept_s < 86_400, "nothing ever happens"
        next(self.happens, lambda: None)()

    @property
    def ran(self) -> list[str]:
        """The builders' command lines, each with its standard input after a bar."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    @property
    def calls(self) -> list[str]:
        """Calls to AWS, as service:Operation."""
        return [str(call) for call in self.requests]


def put(target: str = "trainer", content: str = "layers", tag: str = TAG) -> str:
    """Puts an image into the repository; returns its digest."""
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
