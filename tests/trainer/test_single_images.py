"""Batches of one image, of which batch norm may see one value a channel: refused before anything is rented."""

from typing import Any

import pytest
import torch

from launch.core.training.classifier import classifier_of
from trainer import models
from trainer.__main__ import main
from trainer.config import TrainConfig, check_batches
from trainer.errors import SettingsError, import_function
from trainer.models import largest_alone
from trainer.models.shapes import run_on_shapes

WHY = "normalises over its batch, and one image of 32 px at a time"
QUICK = ("resnet18", "mobilenet_v3_small", "cnn", "vgg11")
FAMILIES = (
    "resnet34", "googlenet", "shufflenet_v2_x0_5", "mnasnet0_5", "efficientnet_b0", "densenet121", "regnet_x_400mf",
    "alexnet", "squeezenet1_1",
)  # fmt: skip
SLOW = pytest.mark.slow("launchers know of every family how large an image must be to be trained alone")


@pytest.mark.parametrize("words", ["--batch-size 1", "--global-batch-size 1", "--batch-ramp 0:1,1:8 --epochs 2"])
def test_a_training_on_one_image_at_a_time_is_refused(words: str, tmp_path, capsys) -> None:
    given = f"--model resnet34 --dataset digits --device cpu --image-size 32 --run-dir {tmp_path / 'run'} {words}"

    assert main(given.split(), {}) == 2

    assert f"error: resnet34 {WHY}" in capsys.readouterr().err


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=SLOW) for name in FAMILIES)])
def test_launchers_know_of_each_family_how_large_one_image_must_be(name: str) -> None:
    least = largest_alone(name)
    for px in (max(least, 32), least + 1, 64):
        try:
            with torch.device("meta"):
                model = import_function(models.TABLE[name])(name, 10, px)
        except (NotImplementedError, SettingsError):
            continue  # regnets compute their widths with tensors; too small for any batch
        if px > least:
            run_on_shapes(model.train(), px, images=1)
        else:
            with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
                run_on_shapes(model.train(), px, images=1)


@pytest.mark.parametrize(
    ("values", "replicas", "is_refused"),
    [
        ({"global_batch_size": 2}, 2, True),
        ({"global_batch_size": 4}, 2, False),
        ({"batch_size": 1}, 8, True),
        ({"batch_size": 1, "image_size": 64}, 8, False),
        ({"batch_size": 1, "model": "vit_b_16"}, 8, False),
        ({"batch_size": 1, "dataset": "imagenet", "image_size": 32}, 8, True),
        ({"batch_size": 1, "dataset": "imagenet", "image_size_start": 32}, 8, True),
    ],
)
def test_a_launcher_refuses_it_before_anything_is_rented(
    values: dict[str, Any], replicas: int, is_refused: bool
) -> None:
    given = {"model": "mobilenet_v3_small", "dataset": "digits", **values}
    train = classifier_of(given)
    for check in (lambda: train.check_ranks(1, replicas), lambda: train.check_replicas(replicas)):
        if is_refused:
            with pytest.raises(SettingsError, match=f"mobilenet_v3_small {WHY}"):
                check()
        else:
            check()


def test_of_images_whose_size_nobody_gave_only_the_trainer_can_know() -> None:
    check_batches(TrainConfig(model="resnet34", dataset="imagefolder", batch_size=1), 1)
