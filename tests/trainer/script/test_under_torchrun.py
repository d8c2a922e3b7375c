"""A user's script below real torchrun: it adds nothing to what the worker says, and passes any exit code on."""

import json
import signal
from pathlib import Path

import pytest

from tests.conftest import ROOT, trainer_env
from tests.listening import below
from tests.processes import left_of
from tests.warm import Job


def start(folder: Path, text: str, *flags: str) -> Job:
    """torchrun, in a process that has imported torch already, of two ranks of the script `text`."""
    (folder / "t.py").write_text(text)
    words = ["--standalone", "--nproc-per-node", "2", *flags, "-m", "trainer.script", "--run-dir", "run", "--", "t.py"]
    return Job(words, folder, [trainer_env({"TEST_JOB": str(folder)})], "trainer.torchrun")


def outcome(folder: Path) -> tuple[str, int, str]:
    found = json.loads((folder / "run" / "outcome.json").read_text())
    return found["state"], found["exit_code"], found["reason"]


def test_any_exit_code_is_passed_on_and_reported_once(tmp_path: Path) -> None:
    code = 200
    text = f"import os, sys, time\nif os.environ['RANK'] == '1': sys.exit({code})\ntime.sleep(60)\n"

    job = start(tmp_path, text)

    assert job.communicate() == ("", f"error: rank 1: t.py ended with exit code {code}\n")
    assert job.returncode == code
    assert outcome(tmp_path) == ("failed", code, f"rank 1: t.py ended with exit code {code}")
    assert left_of(f"TEST_JOB={tmp_path}") == []


def test_a_script_knows_that_torchrun_started_it_again_and_its_outcome_is_the_last(tmp_path: Path) -> None:
    text = "import os\nif os.environ['DDP_RESTARTS'] == '0': os.kill(os.getpid(), 9)\nprint('again', flush=True)\n"

    job = start(tmp_path, text, "--max-restarts", "1")
    out, err = job.communicate()

    assert (out.count("again"), job.returncode) == (2, 0)
    assert [line for line in err.splitlines() if "SIGKILL" not in line and "left nothing in" not in line] == []
    assert outcome(tmp_path) == ("done", 0, "")


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGUSR1, 75), (signal.SIGINT, 130)])
def test_a_request_to_leave_reaches_the_scripts(signum: signal.Signals, code: int, tmp_path: Path) -> None:
    job = start(tmp_path, "import os, time\nos.write(1, b'begun\\n')\ntime.sleep(60)\n")
    assert [job.stdout.readline() for _ in range(2)] == ["begun\n", "begun\n"]

    job.send_signal(signum)
    out, err = job.communicate()

    lines = "" if code == 130 else "t.py was asked to leave, and left; start again to go on.\n"
    assert (out, err, job.returncode) == ("", lines, code)
    assert outcome(tmp_path)[1] == code
    assert left_of(f"TEST_JOB={tmp_path}") == []


def test_scripts_on_one_machine_connect_on_loopback_where_torchrun_listens(tmp_path: Path) -> None:
    names = ("MASTER_ADDR", "TORCHELASTIC_USE_AGENT_STORE", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    text = f"import os\nos.write(1, (' '.join(map(os.environ.get, {names})) + chr(10)).encode())\n"
    job = start(tmp_path, f"{text}import time\ntime.sleep(60)\n")
    lines = [job.stdout.readline() for _ in range(2)]
    assert job.pid is not None
    there = {one.address for one in below(job.pid)}

    job.send_signal(signal.SIGTERM)
    job.communicate()

    # With the agent's store a script opens none of its own, which would be on every address.
    assert lines == 2 * ["127.0.0.1 True lo =lo\n"]
    assert there == {"127.0.0.1"}


# The tests are found first: an installed package may bring a folder of that name.
GLOO = f"""
import os, sys, torch, torch.distributed as dist
sys.path.insert(0, {str(ROOT)!r})
dist.init_process_group("gloo")
if os.environ["RANK"] == "0":
    from tests.listening import below
    print("listens on", *{{one.address for one in below(os.getpid())}}, flush=True)
value = torch.ones(1)
dist.all_reduce(value)
if os.environ["RANK"] == "1":
    os.kill(os.getpid(), 9)
dist.all_reduce(value)
"""


@pytest.mark.slow("a script's rank that loses another one under gloo leaves the word to that one")
def test_the_lost_rank_is_reported_and_not_its_peer(tmp_path: Path) -> None:
    job = start(tmp_path, GLOO)
    out, err = job.communicate()

    assert job.returncode == 6
    assert out == "listens on 127.0.0.1\n"
    assert [line for line in err.splitlines() if line.startswith("error: ")] == [
        "error: rank 1: t.py was killed by SIGKILL; the usual reason is too little memory. Start again to go on."
    ]
    assert "gloo" in err  # what rank 0 says itself is passed on
