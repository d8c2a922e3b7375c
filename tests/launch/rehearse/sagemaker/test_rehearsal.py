"""Whole rehearsals on SageMaker, as a user starts them.  Each ends with nothing left, on the embedded AWS and here."""

import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.launch.rehearse.sagemaker.conftest import SETTINGS, TRAINING, Rehearse, needs_network
from tests.launch.rehearse.terminal import Kept, Start, Terminal

pytestmark = pytest.mark.timeout(600)  # with the undisturbed rehearsal, on a busy machine

# As a user who is not root, although the tests may be.
WITHOUT_ROOT = """
import sys
from launch.rehearse import sagemaker
from launch.sagemaker.__main__ import main
sagemaker.why_no_network = lambda: "needs root, for namespaces and mounts"
sys.exit(main(sys.argv[1:]))
"""
MARK = b"STAND_IN_CONTAINER"


def containers(terminal: Terminal) -> list[int]:
    """Processes of containers, which have an environment of their own."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has just ended
            text = environment.read_bytes()
            if MARK in text and str(terminal.folder).encode() in text:
                found.append(int(environment.parent.name))
    return found


def assert_nothing_left(terminal: Terminal) -> None:
    """On the embedded AWS, and on this machine."""
    assert "resources: 1 made, 1 removed, 0 left" in terminal.text
    assert terminal.left() == []
    give_up = time.monotonic() + 15
    while (left := containers(terminal)) and time.monotonic() < give_up:
        time.sleep(0.1)
    assert left == []


@pytest.mark.slow("a rehearsed SageMaker job trains under mpirun and leaves nothing")
def test_a_job_trains_and_leaves_nothing(undisturbed: Kept) -> None:
    assert [row["epoch"] for row in undisturbed.epochs()] == [1, 2, 3]
    assert "resources: 1 made, 1 removed, 0 left" in undisturbed.text
    assert "sagemaker:CreateTrainingJob 1" in undisturbed.text
    assert "mpirun" in undisturbed.text
    assert (undisturbed.folder / "runs/job/requests.jsonl").exists()
    assert list((undisturbed.folder / "runs/job/logs").glob("algo-1-*.log"))
    assert all(seconds > 0 for name, seconds in undisturbed.phases().items() if name not in ("boot", "provision"))
    job = "--job-name job --through boto3 " + " ".join(TRAINING)
    assert [line.strip() for line in undisturbed.text.splitlines()[-3:]] == [
        f"python -m launch.doctor --for sagemaker --fix {job}",
        f"python -m launch.sagemaker {job} --dry-run",
        f"python -m launch.sagemaker {job}",
    ]


@needs_network
@pytest.mark.slow("a rehearsed SageMaker job trains under mpirun and leaves nothing")
def test_nothing_in_it_listens_beyond_loopback(undisturbed: Kept) -> None:
    """mpirun listens on every address of its machine: of the hosts, which are namespaces here.  Without root there are
    none, and it listens on this machine's: see SECURITY.md.
    """
    undisturbed.assert_only_loopback()


@needs_network
@pytest.mark.slow("a SageMaker job with an interruption and a killed launcher ends with the same weights")
def test_after_an_interruption_and_the_loss_of_the_launcher_the_weights_are_the_same(
    rehearse: Rehearse, request: pytest.FixtureRequest
) -> None:
    """SageMaker restarts an interrupted job."""
    faults = "throttle,launcher-killed@call:33,spot-notice@epoch:1"
    terminal = rehearse("--spot", "--inject", faults)

    assert terminal.end() == 0, terminal.text

    for fault in faults.split(","):
        assert f"{fault}: " in terminal.text
    assert "node algo-1, rank 0: off, Interrupted" in terminal.text
    assert "launch: exit code 137" in terminal.text
    assert "job is already running" in terminal.text
    assert_nothing_left(terminal)
    # Asked for late, when another test process has most likely played it.
    terminal.kept.assert_same_training(request.getfixturevalue("undisturbed"))


@pytest.mark.slow("Ctrl-C in a SageMaker rehearsal without root leaves nothing")
def test_ctrl_c_without_root_leaves_nothing(start: Start, tmp_path: Path) -> None:
    """As a killed launcher does: tests/launch/rehearse/ec2/test_interrupted.py."""
    (tmp_path / "train.py").write_text("import time\nprint('it trains', flush=True)\ntime.sleep(600)\n")
    interrupted = start(*SETTINGS, "--script", str(tmp_path / "train.py"), code=("-c", WITHOUT_ROOT))

    interrupted.wait_for("it trains")
    assert len(containers(interrupted)) > 2  # what is looked for afterwards
    interrupted.process.send_signal(signal.SIGINT)

    assert interrupted.end() == 130
    assert "nodes: processes" in interrupted.text
    assert "off, Stopped" in interrupted.text
    assert_nothing_left(interrupted)
