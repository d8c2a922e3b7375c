"""Keeps what a rehearsed job leaves: its job folder and its logs, which would vanish with the embedded AWS."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from launch.rehearse.aws.account import Account
from launch.rehearse.aws.server import Request


def save(account: Account, bucket: str | None, job: str, requests: Sequence[Request]) -> tuple[Path, dict[str, int]]:
    """Writes runs/JOB and returns it, with the bytes of each file by its path in there.

    It gets the run folder itself, job/ with the rest of the job folder, logs/ with CloudWatch's streams, and
    requests.jsonl with every request.
    """
    contents = {"requests.jsonl": "".join(f"{json.dumps(asdict(request))}\n" for request in requests).encode()}
    for key, stored in list(account.objects(bucket).items()):
        name = key.removeprefix(f"jobs/{job}/")
        contents[name.removeprefix("run/") if name.startswith("run/") else f"job/{name}"] = stored.value
    for stream, lines in account.logs().items():
        contents[f"logs/{stream.removeprefix(f'{job}/')}.log"] = "".join(f"{line}\n" for line in lines).encode()
    folder = Path("runs") / job
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder, {name: len(content) for name, content in contents.items()}
