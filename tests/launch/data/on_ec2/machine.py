"""A machine for infra/data/publish.sh: a folder, with programs that stand in for those that need root or a network."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launch.rehearse.nodes.ec2.node import HERE

BIN = Path(sys.executable).parent
WARM_AWS = str(HERE / "aws_cli.py")
# s3://BUCKET/KEY is a file in $BUCKETS: aws s3 cp FROM TO, aws s3 sync FROM TO, aws s3 rm WHAT --recursive.
AWS = """\
import fnmatch, os, shutil, sys
from pathlib import Path
words = sys.argv[2:]
def place(word):
    return Path(os.environ["BUCKETS"], word[5:]) if word.startswith("s3://") else Path(word)
if words[0] == "rm":
    shutil.rmtree(place(words[1]), ignore_errors=True)
    sys.exit()
source, target = place(words[1]), place(words[2])
target.parent.mkdir(parents=True, exist_ok=True)
if words[0] == "cp":
    shutil.copy(source, target)
else:
    only = [words[at + 1] for at, word in enumerate(words) if word == "--include"] or ["*"]
    for file in source.glob("*"):
        if any(fnmatch.fnmatch(file.name, pattern) for pattern in only):
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target / file.name)
"""
# python3.12 -m venv FOLDER, whose python is the one of the tests.
PYTHON = """\
#!/bin/bash
mkdir -p "$3/bin"
printf '#!/bin/bash\\necho "pip $*" >>"$CALLS"\\n' >"$3/bin/pip"
printf '#!/bin/bash\\nexec %q "$@"\\n' "$PYTHON_HERE" >"$3/bin/python"
chmod +x "$3/bin/pip" "$3/bin/python"
"""


@contextmanager
def warm_aws() -> Iterator[str]:
    """Where AWS's command line listens: it is read once, and not for each of some forty commands."""
    folder = tempfile.mkdtemp(prefix="aws-")  # the path of a socket must be short
    server = subprocess.Popen([sys.executable, "-P", WARM_AWS, "--serve", f"{folder}/socket"])
    try:
        yield f"{folder}/socket"
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder)


@dataclass
class Machine:
    """folder: everything of it; programs: in place of those that it has, by name, as bash.

    aws: where AWS's own command line listens, for an AWS that answers; "" for one that copies files.
    """

    folder: Path
    programs: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    disks: int = 1
    aws: str = ""

    def start(self, script: str, **constants: str) -> "subprocess.Popen[bytes]":
        """Boots it with this user data.  constants: of the script, to other values."""
        self._furnish()
        usual = {"WORK": self.folder / "publish", "ROOT": self.folder / "run", "DISKS": self.folder / "disks",
                 "BOOT": self.folder / "boot", "PAUSE_S": "0", "REPORT_S": "1"}  # fmt: skip
        for name, value in {**usual, **constants}.items():
            script, count = re.subn(rf"(?m)^{name}=\S+", f"{name}={value}", script)
            assert count == 1, name
        path = self.folder / "user-data"
        path.write_text(script)
        env = {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{BIN}:{os.environ['PATH']}",
            "CALLS": str(self.folder / "calls"),
            "BUCKETS": str(self.folder / "buckets"),
            "PYTHON_HERE": sys.executable,
            "DDP_SERVICE": "yes",
            **self.env,
        }
        return subprocess.Popen(["bash", str(path)], env=env, cwd=self.folder, process_group=0)

    def run(self, script: str, **constants: str) -> dict[str, Any]:
        """Boots it; the record of its end."""
        self.start(script, **constants).wait(60)
        return self.end

    def _furnish(self) -> None:
        for name in ("bin", "boot", "disks", "buckets"):
            (self.folder / name).mkdir(exist_ok=True, parents=True)
        for number in range(self.disks):
            (self.folder / f"disks/nvme-Amazon_EC2_NVMe_Instance_Storage_AWS{number}").touch()
        usual = {name: f'echo "{name} $*" >>"$CALLS"' for name in ("shutdown", "dnf", "mkfs.ext4", "mount", "mdadm")}
        programs = {name: f"#!/bin/bash\n{text}\n" for name, text in {**usual, **self.programs}.items()}
        programs["python3.12"] = PYTHON
        (self.folder / "aws.py").write_text(AWS)
        words = f'"{self.folder}/aws.py"' if not self.aws else f'-I "{WARM_AWS}" {self.aws}'
        programs.setdefault("aws", f'#!/bin/bash\nexec "{sys.executable}" -S {words} "$@"\n')
        for name, text in programs.items():
            (self.folder / "bin" / name).write_text(text)
            (self.folder / "bin" / name).chmod(0o755)

    # ---- what it left

    @property
    def calls(self) -> list[str]:
        """The command lines of the programs that stand in."""
        return (self.folder / "calls").read_text().splitlines()

    @property
    def end(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.folder / "run/exit.json").read_text())
        return record

    @property
    def log(self) -> str:
        return (self.folder / "run/log.txt").read_text()
