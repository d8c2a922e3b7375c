"""A job in an image without AWS's toolkit: two hosts, each with a network and an /opt/ml of its own, and our `train`.

What the job says is what launch.sagemaker sends to any image: the SDK's hyperparameters, with a source bundle.
"""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from launch.rehearse.nodes.sagemaker import container as rehearsed
from launch.rehearse.nodes.sagemaker.container import Container, ContainerSpec
from launch.rehearse.nodes.sagemaker.network import network
from tests import needs
from tests.conftest import ROOT
from tests.launch.sagemaker.test_container import HOSTS, SMALL, failure, hyperparameters
from trainer.contract import Exit
from trainer.metrics.log import read_records

pytestmark = needs.sagemaker_hosts()

BUNDLE = "s3://jobs/source/sourcedir.tar.gz"
# What entry.sh starts, after what lets this machine be a container: see toolkit.py.
PROGRAM = """
import runpy
from launch.rehearse.nodes.sagemaker.toolkit import end_with_stdin

end_with_stdin()
runpy.run_module("trainer.container", run_name="__main__")
"""


@pytest.fixture(autouse=True)
def _no_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    monkeypatch.setattr(rehearsed, "TOOLKIT", tmp_path / "train.py")


def spec_of(folder: Path, host: str, **settings: Any) -> ContainerSpec:
    given = hyperparameters("pytorchddp", BUNDLE, **SMALL | settings)
    return ContainerSpec(folder / host, given, host, HOSTS, env={"PYTHONPATH": str(ROOT)})


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(stack: ExitStack, folder: Path, **settings: Any) -> list[Container]:
    """Two hosts, the second of them first."""
    net = stack.enter_context(network(folder / "network", HOSTS))
    return [stack.enter_context(Container(spec_of(folder, host, **settings), net)) for host in reversed(HOSTS)][::-1]


@pytest.mark.slow("two SageMaker hosts train without AWS's toolkit, and hand over the model")
def test_two_hosts_train_and_hand_the_model_over(pair: ExitStack, tmp_path: Path) -> None:
    first, second = start(pair, tmp_path, epochs=1)

    assert [box.wait(180) for box in (first, second)] == [0, 0], first.log + second.log
    assert f"The trainer is the image's own; the source in {BUNDLE} is left out." in first.log
    assert "ddp on 2 CPUs" in first.log
    results = {path.name for path in (first.spec.base / "model").iterdir()}
    assert results == {"model.pt", "model.safetensors", "model.json", "metrics.jsonl", "config.yaml"}
    assert torch.load(first.spec.base / "model/model.pt", weights_only=True)
    (record,) = read_records(first.spec.base / "model/metrics.jsonl")
    assert record["eval_images"] == 360
    assert list((second.spec.base / "model").iterdir()) == []
    assert [box.failure for box in (first, second)] == ["", ""]


@pytest.mark.slow("a SageMaker host that is asked to stop saves and leaves with the other")
def test_a_host_that_is_asked_to_stop_saves_and_leaves_with_the_other(pair: ExitStack, tmp_path: Path) -> None:
    first, second = start(pair, tmp_path, epochs=1000)
    end = time.monotonic() + 120
    while "epoch 1/" not in first.log and time.monotonic() < end:
        time.sleep(0.1)

    code = second.stop()

    assert [code, first.wait(60)] == [Exit.INTERRUPTED, Exit.INTERRUPTED], first.log + second.log
    assert list((first.spec.base / "checkpoints/checkpoints").glob("*.pt"))
    assert [box.failure for box in (first, second)] == ["", ""]


def test_why_it_failed_is_left_for_sagemaker(pair: ExitStack, tmp_path: Path) -> None:
    first, second = start(pair, tmp_path, epochs=1, lr=-1)

    assert [box.wait(120) for box in (first, second)] == [Exit.SETTINGS, Exit.SETTINGS], first.log
    assert failure(first)[0] == Exit.SETTINGS
    assert failure(first)[1].startswith("--lr")


def test_what_is_no_file_of_sagemakers_ends_it_at_once(tmp_path: Path) -> None:
    alone = ContainerSpec(
        tmp_path / "ml", {"model": json.dumps("cnn")}, "elsewhere", HOSTS, env={"PYTHONPATH": str(ROOT)}
    )

    with Container(alone) as box:
        code = box.wait(30)

    assert (code, failure(box)[0]) == (Exit.SETTINGS, Exit.SETTINGS)
