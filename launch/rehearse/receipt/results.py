"""Keeps what a rehearsed job leaves: its job folder and its logs, which would go with the embedded AWS."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from launch.rehearse.aws.account import Account
from launch.rehearse.aws.server import Seen


def save(account: Account, bucket: str | None, job: str, seen: Sequence[Seen]) -> tuple[Path, dict[str, int]]:
    """Writes runs/JOB: the run folder itself, job/ with the rest of the job folder, logs/ with CloudWatch's streams,
    and requests.jsonl with every request.  Gives the folder, and bytes by path in it: there may be older files.
    """
    found = {"requests.jsonl": "".join(f"{json.dumps(asdict(one))}\n" for one in seen).encode()}
    for key, thing in list(account.objects(bucket).items()):
        name = key.removeprefix(f"jobs/{job}/")
        found[name.removeprefix("run/") if name.startswith("run/") else f"job/{name}"] = thing.value
    for stream, lines in account.logs().items():
        found[f"logs/{stream.removeprefix(f'{job}/')}.log"] = "".join(f"{line}\n" for line in lines).encode()
    kept = Path("runs") / job
    for name, content in found.items():
        (kept / name).parent.mkdir(parents=True, exist_ok=True)
        (kept / name).write_bytes(content)
    return kept, {name: len(content) for name, content in found.items()}
