"""A user with a prepared data set on the disk, and an account: types commands of launch.data."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from moto.ebs.models import ebs_backends

from launch.aws.client import Aws
from launch.core.clock import Clock
from launch.data.__main__ import main
from launch.data.commands import Runtime
from tests.launch.ec2.account import Account
from tests.launch.faults import Request

NAME = "photos"


@cache
def one_aws(region: str | None) -> Aws:
    """One per region for all commands: clients take as long as ten calls."""
    return Aws(region or "us-east-1", policy="data")


@dataclass
class Desk:
    """said: what the last command printed; typed: every command line; slept_s: since it was opened."""

    account: Account
    folder: Path
    said: list[str] = field(default_factory=list)
    typed: list[tuple[str, ...]] = field(default_factory=list)
    slept_s: float = 0.0
    confirms: Callable[[str], None] = lambda what: None
    make_aws: Callable[[str | None], Aws] = one_aws
    which: Callable[[str], str | None] = shutil.which

    def type(self, *words: str) -> int:
        """python -m launch.data WORDS; returns the exit code."""
        self.typed.append(words)
        self.said.clear()
        env = {"PATH": "/usr/sbin:/usr/bin"}
        return main(words, Runtime(self.make_aws, self.which, env, self.clock, self.said.append, self.confirms))

    @property
    def clock(self) -> Clock:
        return Clock(lambda: time.time() + self.slept_s, self._sleep)

    def publish(self, *words: str, source: Path | None = None) -> int:
        """One request at a time, so that a fault meets the same call each time."""
        return self.type("publish", str(source or self.folder), "--name", NAME, "--connections", "1", *words)

    def _sleep(self, seconds: float) -> None:
        self.slept_s += seconds
        assert self.slept_s < 7_200, "nothing ever happens:\n" + "\n".join(self.said[-20:])

    @property
    def text(self) -> str:
        return "\n".join(self.said)

    # ---- what is in the account

    def writes(self, since: int = 0) -> list[Request]:
        """The calls that change something, without those before the one with this number."""
        reads = ("Get", "Head", "List", "Describe")
        return [call for call in self.account.requests[since:] if not call.operation.startswith(reads)]

    def snapshots(self, region: str = "us-east-1") -> list[Any]:
        """moto's snapshots of the data set in a region."""
        from moto.ec2.models import ec2_backends

        backend = ec2_backends[self.account.id][region]
        return [
            one for one in backend.snapshots.values() if one.get_filter_value("tag:aws-ddp-toolkit:dataset") == NAME
        ]

    def blocks(self, snapshot: str) -> dict[int, bytes]:
        written = ebs_backends[self.account.id]["us-east-1"].snapshots[snapshot].blocks
        return {index: block.block_data for index, block in written.items()}

    def s3(self) -> dict[str, bytes]:
        """The objects of the data set, by name."""
        prefix = f"data/{NAME}/"
        objects = self.account.objects()
        return {
            key.removeprefix(prefix): objects[key].value for key in self.account.s3_keys() if key.startswith(prefix)
        }

    @property
    def record(self) -> dict[str, Any]:
        found = self.account.s3(f"data/{NAME}/published.json")
        assert found is not None
        return dict(found)


def write_prepared(folder: Path, sizes: tuple[int, ...] = (700_000, 40_000), seed: int = 0) -> Path:
    """A folder as trainer.prepare leaves it: the shards hold noise, as nothing here looks into them."""
    noise, splits = Random(seed), dict[str, Any]()
    for split, size in zip(("train", "val"), sizes, strict=True):
        (folder / split).mkdir(parents=True, exist_ok=True)
        shard, index = f"{split}/000000.tar", f"{split}/index.npy"
        (folder / shard).write_bytes(noise.randbytes(size))
        (folder / index).write_bytes(noise.randbytes(64))
        row = {"file": shard, "images": size // 10_000, "bytes": size, "sha256": _sha256(folder / shard)}
        splits[split] = {"images": size // 10_000, "bytes": size, "shards": [row],
                         "index": {"file": index, "sha256": _sha256(folder / index)}}  # fmt: skip
    manifest = {"format": "webdataset", "version": 1, "name": NAME, "classes": ["cat", "dog"], "resize": 256,
                "quality": 90, "splits": splits, "source": {}, "bad_images": 0}  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def prepared(train: int, val: int, size: int) -> dict[str, Any]:
    """A manifest of trainer.prepare for so many images of three classes, and bytes of both halves."""
    of = {"train": (train, size - size // 10), "val": (val, size // 10)}
    splits = {split: {"images": images, "bytes": stored} for split, (images, stored) in of.items()}
    return {"classes": ["cat", "cow", "dog"], "resize": 256, "splits": splits}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def opened(folder: Path) -> Iterator[Desk]:
    """A new account that is set up, and a prepared data set in `folder`/photos."""
    with Account.opened() as account:
        yield Desk(account, write_prepared(folder / NAME))
