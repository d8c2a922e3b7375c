"""The launcher writes cluster.json; every other launcher may write it, too, and the boot script reads it as root."""

import json
import re
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

TEXT = files("infra").joinpath("ec2/boot.sh").read_text()
# From how it reads its row to how it uses it, with everything around it stubbed; what a later line does with a number.
SCRIPT = "\n".join(
    [
        "set -u; INSTANCE=i-1 ROOT=. MINUTES=60 BORN=0",
        'say() { echo "$*"; }; fail() { echo "failed: $3"; exit 21; }; now() { echo 0; }; shutdown() { :; }',
        'ip() { echo "2: eth0 inet $6/24"; }',
        *re.findall(r"^(?:place|take_place)\(\) .*?^}$", TEXT, re.MULTILINE | re.DOTALL),
        "take_place",
        'echo "is_host=$((RANK == 0)) generation=$GENERATION volume=$VOLUME"',
    ]
)
COMMAND = "BORN[$(touch${IFS}ran)]"  # an array that is there: `set -u` stops at others


def node(number: int, **more: Any) -> dict[str, Any]:
    return {"rank": number, "instance": f"i-{number}", "address": f"10.0.0.1{number}", "data_volume": None, **more}


def taken(folder: Path, me: dict[str, Any], **more: Any) -> subprocess.CompletedProcess[str]:
    cluster = {"generation": 1, "deadline": 4_000_000_000.0, "nodes": [node(0), me], **more}
    (folder / "cluster.json").write_text(json.dumps(cluster))
    return subprocess.run(["bash"], input=SCRIPT, cwd=folder, capture_output=True, text=True, check=False)


def test_its_place_is_read(tmp_path: Path) -> None:
    ended = taken(tmp_path, node(1, data_volume="vol-0123456789abcdef0"))
    assert ended.stdout.splitlines() == [
        "node 1 of 2, generation 1: 10.0.0.11 on eth0, 10.0.0.10 is the head",
        "is_host=0 generation=1 volume=vol-0123456789abcdef0",
    ]


@pytest.mark.parametrize(
    ("mine", "others"),
    [
        ({"rank": COMMAND}, {}),
        ({"address": COMMAND}, {}),
        ({"address": "0.0.0.0/0"}, {}),
        ({"data_volume": "vol-../../../nvme0n1p1"}, {}),
        ({}, {"generation": COMMAND}),
        ({}, {"deadline": COMMAND}),
        ({}, {"nodes": [node(0, address="10.0.0.10 1 9 9"), node(1)]}),
    ],
    ids=["rank", "address", "every address", "volume", "generation", "deadline", "head"],
)
def test_what_is_no_number_no_address_and_no_volume_is_refused_and_not_run(
    mine: dict[str, Any], others: dict[str, Any], tmp_path: Path
) -> None:
    ended = taken(tmp_path, node(1) | mine, **others)
    assert not (tmp_path / "ran").exists()
    assert (ended.returncode, ended.stdout.startswith("failed: ")) == (21, True), ended
