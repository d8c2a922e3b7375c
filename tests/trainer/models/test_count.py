"""trainer.models.count: what a model costs, and that launch's table of it is what it counts."""

from importlib.resources import files

import pytest
import yaml

from trainer import models
from trainer.models.count import CLASSES, HEAD, cost, lines

TABLE = files("infra").joinpath("models.yaml").read_text()


def test_resnet18_at_32_px_costs_what_can_be_looked_up() -> None:
    found = cost("resnet18", 32, 10)

    assert found.parameters == 11_173_962
    assert found.gflop == pytest.approx(3.33, abs=0.005)


def test_grouped_convolutions_are_not_counted_as_dense_ones() -> None:
    # 0.30 GFLOP multiply-adds forward, as its paper has it: twice that, and thrice with the backward pass.
    assert cost("mobilenet_v2", 224, 1000).gflop == pytest.approx(6 * 0.30, rel=0.02)


@pytest.mark.parametrize("name", ["resnet18", "vgg11", "cnn"])
def test_the_table_is_what_is_counted(name: str) -> None:
    counted = yaml.safe_load("\n".join(lines([name])))

    assert yaml.safe_load(TABLE)[name] == counted[name]


def test_the_table_has_every_model_the_trainer_knows() -> None:
    assert sorted(yaml.safe_load(TABLE)) == sorted(models.NAMES)
    assert TABLE.startswith(HEAD)
    assert CLASSES == {32: 10, 224: 1000}
