"""Keeps what a rehearsed job leaves: its job folder and its logs, which would vanish with the embedded AWS."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from launch.aws.names import is_path
from launch.rehearse.aws.account import Account
from launch.rehearse.aws.server import Request
from launch.rehearse.receipt.page import NAME

NO_FILE = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG)


def save(account: Account, bucket: str | None, job: str, requests: Sequence[Request]) -> tuple[Path, dict[str, int]]:
    """Writes runs/JOB and returns it, with the bytes of each file by its path in there.

    It gets the run folder itself, job/ with the rest of the job folder, logs/ with CloudWatch's streams, and
    requests.jsonl with every request.  What cannot lie there is left out, such as a key that leads out of the folder:
    whoever has the rights of a node may write it.  No file of the run folder stands for one of the others.
    """
    contents = {"requests.jsonl": "".join(f"{json.dumps(asdict(request))}\n" for request in requests).encode()}
    for stream, lines in account.logs().items():
        contents[f"logs/{stream.removeprefix(f'{job}/')}.log"] = "".join(f"{line}\n" for line in lines).encode()
    run = {}
    for key, stored in list(account.objects(bucket).items()):
        name = key.removeprefix(f"jobs/{job}/")
        if name.startswith("run/"):
            run[name.removeprefix("run/")] = stored.value
        else:
            contents[f"job/{name}"] = stored.value
    contents |= {name: value for name, value in run.items() if not _is_ours(name, contents)}
    folder = Path("runs") / job
    return folder, {name: len(content) for name, content in contents.items() if _write(folder, name, content)}


def _is_ours(name: str, ours: Mapping[str, bytes]) -> bool:
    """Whether a file of the run folder would stand in the place of one of ours, or of the receipt."""
    return name in ours or name.partition("/")[0] == NAME


def _write(folder: Path, name: str, content: bytes) -> bool:
    """Whether it could be written: in S3 a name may be both a file's and a folder's, and of any length."""
    if not is_path(name):
        return False
    path = folder / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(content)
    except OSError as error:
        if error.errno not in NO_FILE:
            raise
        return False
    return True
