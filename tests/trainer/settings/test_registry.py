"""Tables of names."""

from json import dumps

import pytest

from trainer.errors import SettingsError, did_you_mean, import_function, look_up


def test_a_function_is_imported_by_its_name() -> None:
    assert import_function("json:dumps") is dumps


def test_an_unknown_name_gets_the_nearest_and_all_known_ones() -> None:
    with pytest.raises(SettingsError) as error:
        look_up("model", "resnt18", {"cnn": "a:b", "resnet18": "c:d"})

    assert str(error.value) == "unknown model 'resnt18'; did you mean 'resnet18'? Known: cnn, resnet18."


def test_capitals_do_not_hide_the_nearest_name() -> None:
    assert did_you_mean("ResNet18", ["resnet18", "cnn"]) == "; did you mean 'resnet18'?"
