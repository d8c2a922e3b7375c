"""Settings that contradict each other, and batch arithmetic."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from tests.conftest import ROOT
from trainer.__main__ import main
from trainer.config import Batches, TrainConfig, batches_at, side_at, sides
from trainer.datasets.base import Data, Signature
from trainer.errors import SettingsError
from trainer.settings.checks import check
from trainer.training import _build_model

# ---- config


def test_the_defaults_are_sound() -> None:
    check(TrainConfig())


def test_a_contradiction_gets_a_sentence() -> None:
    cases = [
        ({"model": "resnt18"}, "unknown model 'resnt18'; did you mean 'resnet18'?"),
        ({"image_size_start": 32}, "digits is kept in memory; take --dataset imagenet or imagefolder"),
        ({"image_size_start": 64, "image_size": 64, "dataset": "imagenet"}, "must be less than --image-size 64"),
        ({"decode": "gpu"}, "digits is kept in memory; drop it"),
        ({"decode": "gpu", "dataset": "imagenet", "device": "cpu"}, "--device cpu asks for none"),
        ({"amp": True, "precision": "fp32"}, "--amp and --precision fp32 contradict"),
        ({"amp": False, "precision": "fp16"}, "--no-amp and --precision fp16 contradict"),
        ({"batch_size": 128, "global_batch_size": 512}, "give --batch-size or --global-batch-size, not both"),
        ({"batch_ramp": {0: 8}, "global_batch_size": 512}, "--batch-ramp or --global-batch-size, not both"),
        ({"batch_ramp": {1: 8}}, "begin it with 0:IMAGES"),
        ({"batch_ramp": {0: 8, 2: 0}}, "at least one image"),
        ({"batch_ramp": {0: 8, -1: 8}}, "epochs from 0"),
        ({"schedule": "multistep"}, "needs --milestones"),
        ({"milestones": (30,)}, "no effect with --schedule cosine; add --schedule multistep"),
        ({"warmup_epochs": 5, "epochs": 5}, "--warmup-epochs 5 must be less than --epochs 5"),
        ({"comm_hook": "fp16", "strategy": "fsdp"}, "--comm-hook fp16 works with --strategy ddp only, not fsdp"),
        ({"comm_hook": "powersgd", "strategy": "single"}, "--comm-hook powersgd works with --strategy ddp only"),
        ({"strategy": "fsdp", "channels_last": True}, "--channels-last does not work with --strategy fsdp"),
        ({"strategy": "fsdp", "optimizer": "muon"}, "--optimizer muon needs whole matrices"),
        ({"strategy": "fsdp", "fused": True}, "fused sgd does not support the sharded weights of --strategy fsdp"),
        ({"static_graph": True, "accumulate": 2}, "--static-graph does not work with --accumulate"),
        ({"strategy": "dp", "compile": True}, "--compile does not work with --strategy dp"),
        ({"strategy": "dp", "device": "cpu"}, "on a CPU use --strategy single"),
        ({"nesterov": True, "momentum": 0}, "--nesterov needs a --momentum above 0"),
        ({"wandb": ""}, "--wandb and --mlflow take a name"),
    ]
    for settings, words in cases:
        with pytest.raises(SettingsError) as error:
            check(TrainConfig(**settings))

        assert words in str(error.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"schedule": "multistep", "milestones": (30, 60)},
        {"comm_hook": "fp16", "strategy": "ddp"},
        {"strategy": "fsdp", "precision": "fp16"},
        {"strategy": "fsdp", "optimizer": "adamw", "fused": True},
        {"model": "vit_b_16"},
        {"image_size_start": 128, "dataset": "imagenet", "decode": "gpu"},
    ],
)
def test_what_goes_together_is_left_alone(settings: dict[str, Any]) -> None:
    check(TrainConfig(**settings))


@pytest.mark.parametrize("value", ["inf", "nan"])
def test_no_setting_takes_a_number_that_is_not_finite(value: str) -> None:
    for name in [n for n, f in TrainConfig.model_fields.items() if "float" in str(f.annotation)]:
        with pytest.raises(ValidationError, match="finite number"):
            TrainConfig(**{name: value})


@pytest.mark.parametrize(
    ("name", "largest", "too_large"), [("seed", 4_294_967_295, 4_294_967_296), ("timeout_s", 86_400, 86_401)]
)
def test_what_torch_could_not_take_is_refused_here(name: str, largest: int, too_large: int) -> None:
    assert getattr(TrainConfig(**{name: largest}), name) == largest
    with pytest.raises(ValidationError, match=f"less than or equal to {largest}"):
        TrainConfig(**{name: too_large})


def test_the_batch_of_a_replica_makes_the_global_one() -> None:
    batches = batches_at(TrainConfig(batch_size=32, accumulate=2), epoch=0, replicas=4)

    assert (batches, batches.per_update) == (Batches(per_replica=32, accumulate=2, replicas=4), 256)


@pytest.mark.parametrize(("epoch", "per_update"), [(0, 512), (1, 512), (2, 2048), (9, 2048)])
def test_a_ramp_holds_until_its_next_epoch(epoch: int, per_update: int) -> None:
    ramp = TrainConfig(batch_ramp={2: 2048, 0: 512})

    assert batches_at(ramp, epoch, replicas=4).per_update == per_update


@pytest.mark.parametrize(("wanted", "nearest"), [(100, 96), (104, 96), (2, 16)])
def test_a_global_batch_that_does_not_divide_gets_the_nearest_that_does(wanted: int, nearest: int) -> None:
    with pytest.raises(SettingsError) as error:
        batches_at(TrainConfig(global_batch_size=wanted, accumulate=2), epoch=0, replicas=8)

    assert f"a global batch of {wanted} " in str(error.value)
    assert f" {nearest}." in str(error.value)


def test_an_epoch_that_a_ramp_names_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        TrainConfig(batch_ramp="0:16,0:32")  # type: ignore[arg-type]


def test_the_page_of_settings_is_what_help_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, golden: Callable[[str, str], None]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        main(["--help"], {})

    heading = "# Settings of the trainer\n\nThe output of `python -m trainer --help`; "
    how = "`python -m pytest tests/trainer/test_config.py --write-golden` writes this page."
    golden(str(ROOT / "trainer/SETTINGS.md"), f"{heading}{how}\n\n```\n{capsys.readouterr().out}```\n")


# ---- batches


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [
        (2, [128, 224]),
        (5, [128, 152, 176, 200, 224]),
        (6, [128, 152, 176, 200, 224, 224]),
        (11, [128, 128, 152, 152, 176, 176, 200, 200, 224, 224, 224]),
    ],
)
def test_images_grow_over_the_epochs_and_end_at_their_full_size(epochs: int, expected: list[int]) -> None:
    assert [side_at(epoch, epochs, 128, 224) for epoch in range(epochs)] == expected
    assert sides(epochs, 128, 224) == sorted(set(expected))
    assert sides(epochs, None, 224) == [224]


def test_a_model_for_one_size_is_refused_before_it_trains() -> None:
    config = TrainConfig(model="cnn", dataset="imagenet", image_size_start=32)
    nobody = range(0)
    data = Data(nobody, nobody, Signature(("cat", "dog"), 48, (0, 0, 0), (1, 1, 1)))  # type: ignore[arg-type]

    with pytest.raises(SettingsError, match=r"cnn cannot take the 32 px of --image-size-start 32; drop it, or take a "):
        _build_model(config, data)

    _build_model(config.model_copy(update={"model": "resnet18"}), data)
