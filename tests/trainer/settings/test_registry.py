"""Tables of names."""

from json import dumps

import pytest

from trainer.errors import SettingsError
from trainer.settings.registry import check_name, did_you_mean, import_function, look_up, one_of


def test_a_function_is_imported_by_its_name() -> None:
    assert import_function("json:dumps") is dumps


def test_an_unknown_name_gets_the_nearest_and_all_known_ones() -> None:
    with pytest.raises(SettingsError) as error:
        look_up("model", "resnt18", {"cnn": "a:b", "resnet18": "c:d"})

    assert str(error.value) == "unknown model 'resnt18'; did you mean 'resnet18'? Known: cnn, resnet18."


def test_nothing_is_suggested_when_nothing_is_near() -> None:
    assert did_you_mean("transformer", ["cnn", "vgg11"]) == ""


@pytest.mark.parametrize(("names", "text"), [(["a"], "a"), (["a", "b"], "a or b"), (["a", "b", "c"], "a, b or c")])
def test_a_help_text_lists_names(names: list[str], text: str) -> None:
    assert one_of(names) == text


def test_capitals_do_not_hide_the_nearest_name() -> None:
    assert did_you_mean("ResNet18", ["resnet18", "cnn"]) == "; did you mean 'resnet18'?"


def test_a_long_table_is_shown_in_part() -> None:
    with pytest.raises(SettingsError, match=r"Known: n0, .*, n11, \.\.\.\.$"):
        check_name("model", "x", [f"n{i}" for i in range(20)])
