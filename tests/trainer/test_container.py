"""`train` of our own: what it makes of SageMaker's files, and how it ends.  Whole jobs: tests/launch/sagemaker."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from trainer import container
from trainer.container import (
    Inputs,
    Relay,
    command,
    flags,
    read_inputs,
    reason_of,
    run_to_end,
    variables,
    wait_for,
    write_failure,
)
from trainer.contract import SAGEMAKER_FAILURE_PATTERN, Exit
from trainer.errors import MachineError, SettingsError

TWO = {"current_host": "algo-2", "hosts": ["algo-2", "algo-1"], "network_interface_name": "eth0"}


def files(base: Path, **contents: Any) -> Path:
    """A container's /opt/ml with these files."""
    (base / "input/config").mkdir(parents=True)
    for name, content in contents.items():
        (base / f"input/config/{name}.json").write_text(json.dumps(content))
    return base


def test_all_that_sagemaker_says_is_read(tmp_path: Path) -> None:
    settings = {"model": '"cnn"', "epochs": "3", "plain": "not JSON"}

    read = read_inputs(
        files(tmp_path, resourceconfig=TWO, hyperparameters=settings, inputdataconfig={"val": {}, "a": {}})
    )

    assert read == Inputs(
        "algo-2", ("algo-1", "algo-2"), "eth0", ("a", "val"), {"model": "cnn", "epochs": 3, "plain": "not JSON"}
    )


@pytest.mark.parametrize("resources", [None, {}, {"hosts": ["algo-1"]}, {"hosts": ["algo-1"], "current_host": "other"}])
def test_without_sagemakers_files_it_says_what_train_is_for(tmp_path: Path, resources: object) -> None:
    base = files(tmp_path, **({} if resources is None else {"resourceconfig": resources}))

    with pytest.raises(SettingsError, match="`train` is for SageMaker: elsewhere give the trainer's flags"):
        read_inputs(base)


GIVEN: dict[str, Any] = {
    "batch-size": "256", "lr": 0.1, "amp": True, "plot": "false", "clip_norm": None, "x": 1, "milestones": [1, 2],
    "pairs": {"b": 1, "a": 2}, "sagemaker_program": "train.py", "sagemaker_mpi_enabled": True,
    "sagemaker_mpi_num_of_processes_per_host": 4, "_tuning_objective_metric": "loss", "name": "two words",
}  # fmt: skip


def test_hyperparameters_become_flags_and_the_sdks_own_are_left_out() -> None:
    assert flags(GIVEN) == [
        "--amp", "True", "--batch-size", "256", "--clip_norm", "", "--lr", "0.1", "--milestones", "[1, 2]",
        "--name", "two words", "--pairs", "a=2,b=1", "--plot", "false", "-x", "1",
    ]  # fmt: skip


@needs.sagemaker_toolkit()
def test_the_flags_are_those_of_awss_toolkit() -> None:
    from sagemaker_training import mapping, params

    theirs = mapping.split_by_criteria(GIVEN, keys=params.SAGEMAKER_HYPERPARAMETERS, prefix=params.SAGEMAKER_PREFIX)

    assert flags(GIVEN) == mapping.to_cmd_args(theirs.excluded)


def test_the_ranks_hear_where_things_are() -> None:
    said = variables(Inputs("algo-1", ("algo-1", "algo-2"), "eth1", ("train", "val"), {}), Path("/opt/ml"))

    assert said == {
        "SM_MODEL_DIR": "/opt/ml/model",
        "SM_INPUT_DIR": "/opt/ml/input",
        "SM_OUTPUT_DIR": "/opt/ml/output",
        "SM_HOSTS": '["algo-1", "algo-2"]',
        "SM_CURRENT_HOST": "algo-1",
        "NCCL_SOCKET_IFNAME": "eth1",
        "GLOO_SOCKET_IFNAME": "eth1",
        "SM_CHANNEL_TRAIN": "/opt/ml/input/data/train",
        "SM_CHANNEL_VAL": "/opt/ml/input/data/val",
    }


@pytest.mark.parametrize(
    ("settings", "gpus", "ranks"),
    [({}, 8, "8"), ({}, 0, "1"), ({"sagemaker_mpi_num_of_processes_per_host": 2}, 8, "2")],
)
def test_torchrun_starts_a_rank_for_each_gpu_of_each_host(settings: Mapping[str, Any], gpus: int, ranks: str) -> None:
    words = command(Inputs("algo-2", ("algo-1", "algo-2"), "eth0", (), {**settings, "epochs": 3}), gpus, "7777")

    assert words == [
        sys.executable, "-m", "trainer.torchrun", "--nnodes", "2", "--nproc-per-node", ranks, "--node-rank", "1",
        "--master-addr", "algo-1", "--master-port", "7777", "-m", "trainer.sagemaker", "--epochs", "3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "lines", "sentence"),
    [
        (5, ["Exception: exit code 6: rank 1 is lost.", "Exception: exit code 5: NaN."], "NaN."),
        (6, ["error: old", "error: rank 1 was killed by SIGKILL."], "rank 1 was killed by SIGKILL."),
        (1, ["Traceback"], "the training ended with exit code 1; its log says more."),
    ],
)
def test_the_reason_is_that_of_the_rank_with_this_code_or_torchruns(code: int, lines: list[str], sentence: str) -> None:
    assert reason_of(code, lines) == sentence


def test_the_launcher_finds_code_and_sentence_in_the_file(tmp_path: Path) -> None:
    write_failure(tmp_path, Exit.DATA, "two\nlines.")

    found = SAGEMAKER_FAILURE_PATTERN.search((tmp_path / "output/failure").read_text())
    assert found
    assert (found["code"], found["sentence"]) == ("3", "two lines.")


def test_what_a_command_says_is_heard_and_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    script = "import sys; print('out'); print('err\\nmore', file=sys.stderr); sys.exit(5)"

    code = run_to_end([sys.executable, "-c", script], os.environ, Relay(), lines.append)

    assert (code, lines) == (5, ["err", "more"])
    assert capfd.readouterr() == ("out\n", "err\nmore\n")


SAVES = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))"


@pytest.mark.parametrize("early", [True, False])
def test_a_request_to_stop_is_passed_on_once(early: bool) -> None:
    relay = Relay()
    script = f"{SAVES}; print('on', file=sys.stderr, flush=True); time.sleep(30)"
    if early:
        relay(signal.SIGTERM, None)

    def on_line(line: str) -> None:
        relay(signal.SIGTERM, None)
        relay(signal.SIGTERM, None)

    assert run_to_end([sys.executable, "-c", script], os.environ, relay, on_line) == Exit.INTERRUPTED


def test_what_a_rank_left_running_keeps_no_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the pipe that the words come through."""
    monkeypatch.setattr(container, "LAST_WORDS_S", 0.1)
    leave = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, file=sys.stderr); sys.exit(5)"
    begun, lines = time.monotonic(), list[str]()
    threads = threading.enumerate()

    assert run_to_end([sys.executable, "-c", leave], os.environ, Relay(), lines.append) == Exit.TRAINING

    assert time.monotonic() - begun < 30
    os.kill(int(lines[0]), signal.SIGKILL)
    for listener in set(threading.enumerate()).difference(threads):
        listener.join()


def test_a_host_that_is_stopped_waits_for_no_other() -> None:
    relay = Relay()
    relay(signal.SIGTERM, None)
    begun = time.monotonic()

    wait_for(["algo-2.invalid"], relay)

    assert time.monotonic() - begun < 1


def test_a_host_without_an_address_is_named_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "WAIT_S", 0.0)

    with pytest.raises(MachineError, match=r"the name of host algo-2\.invalid did not resolve within 0 s"):
        wait_for(["localhost", "algo-2.invalid"], Relay())
