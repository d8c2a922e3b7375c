"""The trainer in SageMaker's own toolkit, as a job's containers run it: real torchrun and mpirun, real collectives.

A run takes 10 to 20 s, most of it Python's imports.
"""

import io
import json
import os
import signal
import subprocess
import tarfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from launch.core.training.options import ScriptOptions, find_script
from launch.rehearse.nodes.sagemaker.container import NVIDIA_SMI, Container, ContainerSpec
from launch.rehearse.nodes.sagemaker.network import network
from launch.sagemaker.bundle import make_bundle
from launch.sagemaker.planner import ARCHIVE, WORK
from tests import needs
from tests.foreign import FOREIGN, missing_in
from tests.processes import processes_with
from trainer.contract import SAGEMAKER_ARCHIVE, SAGEMAKER_CHANNEL, SAGEMAKER_FAILURE_PATTERN, SAGEMAKER_SCRIPT_TEXT
from trainer.health.nvidia import problems

pytestmark = needs.sagemaker_toolkit()

# What the SDK adds to the hyperparameters for each distribution.
DISTRIBUTIONS: dict[str, dict[str, Any]] = {
    "torch_distributed": {"sagemaker_torch_distributed_enabled": True},
    "pytorchddp": {
        "sagemaker_distributed_dataparallel_enabled": True,
        "sagemaker_distributed_dataparallel_custom_mpi_options": "",
    },
}
SMALL: dict[str, Any] = {
    "model": "cnn",
    "dataset": "digits",
    "amp": False,
    "threads": 1,
    "probe_steps": 0,
    "plot": False,
}
QUICK = {**SMALL, "dataset": "synthetic", "synthetic_images": 512, "image_size": 8, "schedule": "constant"}
HOSTS = ("algo-1", "algo-2")
REGION = "us-east-1"


def hyperparameters(distribution: str, bundle: str, **settings: Any) -> dict[str, str]:
    """As the SDK writes them into CreateTrainingJob."""
    values = {"sagemaker_program": "train.py", "sagemaker_submit_directory": bundle, "sagemaker_region": REGION,
              "sagemaker_job_name": "job-1", "sagemaker_container_log_level": 20,
              **DISTRIBUTIONS[distribution], **settings}  # fmt: skip
    return {name: json.dumps(value) for name, value in values.items()}


def failure(container: Container) -> tuple[int, str]:
    """The exit code and the sentence that arrive in DescribeTrainingJob's FailureReason."""
    found = SAGEMAKER_FAILURE_PATTERN.search(container.failure[:1024])
    assert found, container.failure + container.log
    return int(found["code"]), found["sentence"]


def run(spec: ContainerSpec) -> Container:
    """A container that has ended."""
    with Container(spec) as container:
        container.wait(120)
    return container


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A local one; its requirements are there, so that pip runs but finds nothing to do."""
    file = tmp_path_factory.mktemp("source") / "sourcedir.tar.gz"
    file.write_bytes(make_bundle("pyyaml\n").content)
    return str(file)


def processes(container: Container, word: str = "") -> list[int]:
    """Those of a container's processes whose command line has `word`."""
    found = []
    for pid in processes_with(container.mark):
        with suppress(OSError):  # it has just ended
            if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


BUG = """
import os
import trainer.run
work = trainer.run.train_one_epoch
def fail(*args):
    if os.environ["OMPI_COMM_WORLD_RANK"] == "0":
        raise ValueError("boom")
    return work(*args)
trainer.run.train_one_epoch = fail
"""


@pytest.mark.slow("a bug of one rank reaches SageMaker with its exit code through AWS's toolkit and mpirun")
def test_a_bug_of_one_rank_arrives_with_its_exit_code_below_mpirun(tmp_path: Path, bundle: str) -> None:
    """The other rank, which ends with 6, must not be the first to leave: mpirun would end with its exit code."""
    buggy = with_script(bundle, tmp_path / "buggy.tar.gz", BUG + SAGEMAKER_SCRIPT_TEXT)

    ended = run(ContainerSpec(tmp_path / "ml", hyperparameters("pytorchddp", buggy, **QUICK)))

    assert ended.failure.startswith("ExecuteUserScriptError:\nExitCode 1\n")
    assert failure(ended) == (1, "ValueError: boom")
    assert "Traceback" in ended.failure[:1024]
    assert "in fail\n" in ended.failure  # where the cut falls depends on how long the paths are


SCRIPT = """
import os, sys
print(f"[METRIC] step=1 rank={os.environ['RANK']} of={os.environ['WORLD_SIZE']}", flush=True)
foreign()
print("given", sys.argv[1:], flush=True)
if os.environ["RANK"] == "1":
    sys.stderr.write("no data\\n")
    sys.exit(3)
import time
time.sleep(60)
"""


GIVEN = ["--lr", "a b", "", "$HOME '\"\n", "$(id)", "%2C,;"]


def script_job(base: Path, bundle: str, text: str, *arguments: str) -> ContainerSpec:
    """The container of a job with a script of the user's own, which comes by a channel: the words are the planner's."""
    folder = base / "mine"
    folder.mkdir()
    (folder / "train.py").write_text(text)
    options = ScriptOptions.model_validate({"script": folder / "train.py"})
    script = find_script(options, arguments, {}, folder, is_sent=True).called("job-1").sent(ARCHIVE, WORK)
    channel = base / "ml" / "input" / "data" / SAGEMAKER_CHANNEL
    channel.mkdir(parents=True)
    assert script.source is not None
    (channel / SAGEMAKER_ARCHIVE).write_bytes(script.source.archive.content)
    settings = hyperparameters("pytorchddp", bundle, **script.hyperparameters)
    return ContainerSpec(base / "ml", settings, channels=(SAGEMAKER_CHANNEL,))


@pytest.mark.slow("AWS's toolkit runs scripts that nobody here wrote, and says how the one of a rank of them ended")
def test_a_script_runs_in_awss_toolkit_and_its_exit_code_and_sentence_arrive(tmp_path: Path, bundle: str) -> None:
    ended = run(script_job(tmp_path, bundle, FOREIGN + SCRIPT, *GIVEN))

    assert missing_in(ended.log) == []  # trainings that nobody here wrote, on two ranks
    assert f"given {GIVEN}" in ended.log
    assert failure(ended) == (3, "rank 1: train.py ended with exit code 3: no data")
    assert ended.failure.startswith("ExecuteUserScriptError:\nExitCode 3\n")  # mpirun's
    (line,) = (ended.spec.base / "checkpoints" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line) == {"step": 1, "rank": 0, "of": 2}


def test_a_stopped_container_leaves_nothing_behind(tmp_path: Path, bundle: str) -> None:
    script = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('there')\ntime.sleep(600)\n"
    stubborn = with_script(bundle, tmp_path / "stubborn.tar.gz", script)
    with Container(ContainerSpec(tmp_path / "ml", hyperparameters("torch_distributed", stubborn))) as container:
        until(lambda: container.log.count("there") == 2)
        assert len(processes(container, "train.py")) >= 2

        code = container.stop(grace_s=0.5)

        assert code == -signal.SIGTERM
        assert processes(container) == []
        assert container.failure == ""


def with_script(bundle: str, path: Path, script: str) -> str:
    """A copy of the bundle at `path` with another train.py, and nothing for pip."""
    with tarfile.open(bundle) as source, tarfile.open(path, "w:gz") as copy:
        for entry in source.getmembers():
            if entry.name.startswith("trainer/"):
                copy.addfile(entry, source.extractfile(entry))
        entry = tarfile.TarInfo("train.py")
        entry.size = len(script)
        copy.addfile(entry, io.BytesIO(script.encode()))
    return str(path)


def until(condition: Any, timeout_s: float = 60) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


@needs.sagemaker_hosts()
@pytest.mark.slow("a rank that is asked to stop on another host reaches SageMaker as 75 through mpirun")
def test_a_rank_on_the_other_host_that_is_asked_to_stop_arrives_as_75_below_mpirun(tmp_path: Path, bundle: str) -> None:
    given = hyperparameters("pytorchddp", bundle, **QUICK, epochs=100_000)
    with ExitStack() as stack:
        net = stack.enter_context(network(tmp_path / "net", HOSTS))
        specs = [ContainerSpec(tmp_path / host, given, host, HOSTS, gpus=1) for host in HOSTS]
        for one in specs:
            one.base.mkdir()
        head, other = [stack.enter_context(Container(one, net)) for one in specs]
        until(lambda: "[METRIC]" in head.log)

        (rank,) = processes(other, "mpi4py")
        os.kill(rank, signal.SIGTERM)

        assert head.wait(60) == 1
    code, sentence = failure(head)
    assert code == 75
    assert sentence.startswith("stopped on request in epoch ")
    assert list((head.spec.base / "checkpoints" / "checkpoints").glob("epoch-*.pt"))
    assert "mpirun --host algo-1:1,algo-2:1 -np 2" in head.log


def test_the_stand_in_for_nvidia_smi_is_read_by_the_health_check(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(NVIDIA_SMI)
    said = subprocess.check_output(["sh", program, "-q", "-x"], env=os.environ | {"STAND_IN_GPUS": "2"}, text=True)
    assert problems(said, gpus=2) == []
    assert problems(said, gpus=3) != []
