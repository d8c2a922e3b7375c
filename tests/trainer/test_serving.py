"""The inference code in model.tar.gz, loaded and asked by AWS's own PyTorch inference toolkit."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from tests import needs
from trainer import sagemaker, trained
from trainer.contract import SAGEMAKER_INFERENCE, SIGNATURE, WEIGHTS
from trainer.datasets.base import Signature
from trainer.models.cnn import build as build_cnn

CLASSES = ("cat", "dog", "cow")
# What AWS's model server does with a request, without the server: its handler, and a request's properties.
ASK = """
import json, sys
from types import SimpleNamespace
sys.path.append(sys.argv[2])  # behind this machine's own packages
from sagemaker_pytorch_serving_container.handler_service import HandlerService
response = {}
def ask(body, content_type, accept):
    properties = {"Content-Type": content_type, "Accept": accept}
    context = SimpleNamespace(
        model_name="model", system_properties={"model_dir": sys.argv[1]},
        request_processor=[SimpleNamespace(get_request_properties=lambda: properties)],
        set_response_content_type=lambda index, kind: response.update(type=kind),
        set_response_status=lambda code, phrase: response.update(status=code),
    )
    if not started:
        service.initialize(context)
        started.append(True)
    response.clear()
    (answer,) = service.handle([{"body": body}], context)
    return {**response, "answer": answer}
service, started = HandlerService(), []
image = open(sys.argv[3], "rb").read()
rows = [ask(image, "image/png", "application/json"), ask(image, "application/x-image", "*/*"),
        ask(b"nothing", "image/png", "application/json"), ask(b"[1]", "application/json", "application/json"),
        ask(image, "image/png", "text/csv")]
import trainer
print(json.dumps({"rows": rows, "trainer": trainer.__file__}))
"""


def model_folder(folder: Path) -> Path:
    """What a training leaves for model.tar.gz."""
    folder.mkdir()
    torch.save(build_cnn("cnn", len(CLASSES), 32).state_dict(), folder / WEIGHTS)
    signature = Signature(CLASSES, 32, (0.5, 0.5, 0.5), (0.2, 0.2, 0.2))
    (folder / SIGNATURE).write_text(signature.as_json("cnn"))
    trained.write_code(folder)
    return folder


@pytest.mark.slow("AWS's PyTorch inference toolkit loads a registered model and names the classes of an image")
@needs.sagemaker_inference()
def test_awss_inference_toolkit_loads_the_model_and_answers(tmp_path: Path) -> None:
    folder, image = model_folder(tmp_path / "model"), tmp_path / "image.png"
    Image.new("RGB", (50, 40), "red").save(image)
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(folder / "code"),  # as the model server's start does it
        "SAGEMAKER_BASE_DIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", ASK, folder, needs.INFERENCE, image],
        env=env, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    response = json.loads(done.stdout.splitlines()[-1])
    assert response["trainer"] == str(folder / "code/trainer/__init__.py")  # the archive's own
    first, again, broken, no_image, csv = response["rows"]
    guesses = json.loads(first["answer"])
    assert sorted(guess["class"] for guess in guesses) == sorted(CLASSES)
    assert sum(guess["probability"] for guess in guesses) == pytest.approx(1)
    assert guesses == sorted(guesses, key=lambda guess: -guess["probability"])
    assert first["type"] == "application/json"
    assert again == first
    assert [row["status"] for row in (broken, no_image, csv)] == [400, 415, 406]
    assert "the image cannot be read" in broken["answer"]


def test_the_code_is_all_that_the_archive_needs_beside_what_aws_has(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model")
    assert (folder / "code/inference.py").read_text() == "from trainer.trained import model_fn, transform_fn\n"
    lines = (folder / "code/requirements.txt").read_text().splitlines()
    assert [line.partition("==")[0] for line in lines] == list(trained.REQUIRED)
    assert all("==" in line for line in lines)
    assert not list((folder / "code").rglob("__pycache__"))


@pytest.mark.parametrize("wanted", [True, False])
def test_a_training_writes_its_code_only_on_request(
    wanted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained(*_: Any) -> int:
        return 0

    run, model = tmp_path / "checkpoints", tmp_path / "model"
    run.mkdir()
    model.mkdir()
    (run / WEIGHTS).write_bytes(b"")
    monkeypatch.setattr(sagemaker, "train", trained)
    env = {"SM_MODEL_DIR": str(model), **({SAGEMAKER_INFERENCE: "1"} if wanted else {})}
    assert sagemaker.main(["--dataset", "digits"], env) == 0
    assert (model / "code/inference.py").exists() is wanted
    assert (model / WEIGHTS).exists()
