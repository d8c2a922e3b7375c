"""infra/data/publish.sh, run by bash: which steps it takes, and that it says how it ends and turns the machine off."""

import hashlib
import importlib.metadata
import io
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tarfile
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest

from launch.data.on_ec2 import planner
from launch.data.on_ec2.bundle import LOCK, bundle
from launch.data.on_ec2.facts import Run
from tests.launch.data.on_ec2.machine import BIN, Machine

NOW = datetime(2026, 11, 23, 14, 0, tzinfo=UTC)
FOLDER = "bucket/data-runs/photos"
DONE = "print('published')"


@cache
def code_of(program: str) -> bytes:
    """A bundle whose `python -m launch.data` is this program.  Made once: gzip writes the second of it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in (("launch/__init__.py", ""), ("launch/data/__init__.py", ""),
                           ("launch/data/__main__.py", program)):  # fmt: skip
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


RUN = Run(
    id="data-photos-1", name="photos", account="123456789012", region="us-east-1", bucket="bucket", owner="me",
    source="s3://bucket/sources/it's here", type="c6id.xlarge", words=("--name=photos", "--to=both"),
    code=64 * "0", ami="ami-1", root="/dev/xvda", gib=16, started=NOW, deadline=NOW + timedelta(hours=2),
)  # fmt: skip


def user_data(code: bytes = b"") -> str:
    return planner.user_data(replace(RUN, code=hashlib.sha256(code).hexdigest()))


def boot(folder: Path, program: str = DONE, **machine: object) -> Machine:
    """A machine, with the code where its user data says."""
    made = Machine(folder, **machine)  # type: ignore[arg-type]
    code = code_of(program)
    place = folder / "buckets" / FOLDER / f"code-{hashlib.sha256(code).hexdigest()[:16]}.tar.gz"
    place.parent.mkdir(parents=True)
    place.write_bytes(code)
    return made


def test_the_script_is_clean_for_shellcheck(tmp_path: Path) -> None:
    rendered = tmp_path / "publish.sh"
    rendered.write_text(user_data())
    command = [BIN / "shellcheck", "--exclude", "SC2329", rendered]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "")


def test_the_first_command_is_the_dead_man_timer_and_all_fits_into_user_data() -> None:
    lines = [line for line in user_data().splitlines() if line and not line.startswith("#")]
    first = next(line for line in lines if not re.match(r"[A-Z0-9_]+=", line))
    assert first == 'shutdown -h "+$MINUTES" || shutdown -h now'
    assert len(user_data().encode()) < 15_360  # of 16 KiB


def test_it_publishes_reports_and_turns_itself_off(tmp_path: Path) -> None:
    program = "import os, sys; print('words', sys.argv[1:], os.environ['AWS_DEFAULT_REGION'], flush=True)"
    machine = boot(tmp_path, program, disks=2)

    end = machine.run(user_data(code_of(program)))

    assert (end["run"], end["code"], end["step"], end["reason"]) == ("data-photos-1", 0, "publish", "done"), machine.log
    assert [line.split()[0] for line in machine.calls] == [
        "shutdown",
        "dnf",
        "mdadm",
        "mkfs.ext4",
        "mount",
        "pip",
        "shutdown",
    ]
    assert (machine.calls[0], machine.calls[-1]) == ("shutdown -h +120", "shutdown -h now")
    assert machine.calls[2].startswith("mdadm --create /dev/md0 --run --level=0 --raid-devices=2 ")
    assert "--require-hashes --only-binary :all:" in machine.calls[-2]
    assert f"-r {tmp_path}/publish/code/infra/locks/publish.txt" in machine.calls[-2]
    assert "'publish', \"s3://bucket/sources/it's here\", '--name=photos', '--to=both', '--by=here'" in machine.log
    left = tmp_path / "buckets" / FOLDER
    assert json.loads((left / "exit.json").read_text()) == end
    assert json.loads((left / "progress.json").read_text())["last"].startswith("words")
    assert "step publish" in (left / "log.txt").read_text()
    assert (tmp_path / "boot/ddp").read_text().endswith("shutdown -h now\n")  # after a reboot


@pytest.mark.parametrize(
    ("how", "code", "step", "words"),
    [
        ({"disks": 0}, 6, "disk", "no local disk"),
        ({"programs": {"mkfs.ext4": "exit 1"}}, 6, "disk", "cannot make a file system"),
        ({"programs": {"dnf": "exit 1"}}, 6, "programs", "dnf cannot install Python"),
        ({"program": "import sys; print('error: no room for it.', file=sys.stderr); sys.exit(7)"}, 7, "publish",
         "no room for it."),
        ({"program": "raise SystemExit(2)"}, 2, "publish", "gave no reason; see the log"),
        # The names in an archive may be anything.
        ({"program": "print('\\0\\nerror: no ro\\0om for it.'); raise SystemExit(7)"}, 7, "publish", "no room for it."),
        ({"program": "print('error: ' + 'x' * 200_000); raise SystemExit(7)"}, 7, "publish", "x" * 500),
    ],
    ids=["no disk", "disk", "packages of the system", "publish", "no reason", "zero bytes", "long"],
)  # fmt: skip
def test_a_failure_is_reported_and_turns_it_off(
    how: dict[str, object], code: int, step: str, words: str, tmp_path: Path
) -> None:
    program = str(how.pop("program", DONE))
    machine = boot(tmp_path, program, **how)

    end = machine.run(user_data(code_of(program)))

    assert (end["code"], end["step"]) == (code, step), machine.log
    assert words in end["reason"]
    assert machine.calls[-1] == "shutdown -h now"


def test_changed_code_is_not_run(tmp_path: Path) -> None:
    machine = boot(tmp_path)
    code = code_of("print('mine')")
    (tmp_path / "buckets" / FOLDER / f"code-{hashlib.sha256(code).hexdigest()[:16]}.tar.gz").write_bytes(b"theirs")

    end = machine.run(user_data(code))

    assert (end["code"], end["step"]) == (4, "code")
    assert not (tmp_path / "work/code").exists()


def test_a_stop_is_obeyed_while_a_report_hangs(tmp_path: Path) -> None:
    """The service has 90 seconds to say how it ended; a copy that gets no answer may take ten minutes."""
    hangs = f"""
if [[ "$3" = */progress.json ]] && grep -q '"step": "publish"' "$3"; then
    echo $$ >"{tmp_path}/hangs"
    exec sleep 600
fi
exec "{sys.executable}" -S "{tmp_path}/aws.py" "$@"
"""
    machine = boot(tmp_path, DONE, programs={"aws": hangs})
    started, until = machine.start(user_data(code_of(DONE))), time.monotonic() + 20
    try:
        while not (tmp_path / "hangs").exists() or not (tmp_path / "hangs").read_text():
            assert time.monotonic() < until, machine.log
            time.sleep(0.02)
        started.send_signal(signal.SIGTERM)
        started.wait(10)
    finally:
        os.kill(int((tmp_path / "hangs").read_text()), signal.SIGKILL)
        started.kill()
    assert (machine.end["code"], machine.end["step"]) == (143, "publish")
    assert machine.calls[-1] == "shutdown -h now"


def test_the_code_of_an_earlier_version_does_not_stay_in_the_bucket() -> None:
    """https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteObject.html"""
    keys = [request.params["Key"] for request in planner.clear(RUN, replace(RUN, code=64 * "e"))]
    assert keys[-1] == f"data-runs/photos/code-{16 * 'e'}.tar.gz"
    assert not [request for request in planner.clear(RUN, RUN) if "code-" in request.params["Key"]]


def test_the_bundle_holds_all_that_publishing_imports_but_the_packages_of_the_lock(tmp_path: Path) -> None:
    content = bundle().content
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(tmp_path, filter="data")
    assert {path.name for path in tmp_path.iterdir()} == {"infra", "launch", "trainer"}
    packages = sysconfig.get_path("purelib")
    # -S: without the checkout, to which an editable install leads.
    program = "import sys, launch.data.commands, trainer.prepare.__main__; print(*sys.modules)"
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{packages}"}
    command = [sys.executable, "-S", "-c", program]
    loaded = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True).stdout.split()
    made_by = importlib.metadata.packages_distributions()
    needed = {one.lower().replace("_", "-") for name in loaded for one in made_by.get(name, ())} - {"aws-ddp-toolkit"}
    locked = set(re.findall(r"(?m)^([\w.-]+)==", (tmp_path / LOCK).read_text()))
    assert needed - locked == set()
    assert len(content) < 2_000_000
