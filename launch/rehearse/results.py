"""Keeps what a rehearsed job leaves: its job folder and its logs, which would go with the embedded AWS."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from launch.rehearse.account import Account
from launch.rehearse.cloud import Seen


def save(account: Account, bucket: str | None, job: str, seen: Sequence[Seen]) -> Path:
    """Writes runs/JOB: the run folder itself, job/ with the rest of the job folder, logs/ with CloudWatch's streams,
    and requests.jsonl with every request.
    """
    kept = Path("runs") / job
    _write(kept / "requests.jsonl", "".join(f"{json.dumps(asdict(one))}\n" for one in seen).encode())
    for key, found in list(account.objects(bucket).items()):
        name = key.removeprefix(f"jobs/{job}/")
        inside = Path(name).relative_to("run") if name.startswith("run/") else Path("job") / name
        _write(kept / inside, found.value)
    for stream, lines in account.logs().items():
        _write(kept / "logs" / f"{stream.removeprefix(f'{job}/')}.log", "".join(f"{s}\n" for s in lines).encode())
    return kept


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
