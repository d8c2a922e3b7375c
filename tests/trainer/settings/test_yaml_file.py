"""Whatever stands in a settings file: the right settings, or a sentence that says where and what."""

from pathlib import Path
from typing import Any

import pytest

from trainer.config import TrainConfig
from trainer.errors import SettingsError
from trainer.settings.checks import check
from trainer.settings.flags import build, parse


def read(folder: Path, content: str | bytes) -> TrainConfig:
    file = folder / "job.yaml"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    (config,) = parse(["--config", str(file)], [TrainConfig], prog="trainer", about="", sections={})
    assert isinstance(config, TrainConfig)
    return config


def refused(folder: Path, content: str | bytes) -> str:
    with pytest.raises(SettingsError) as error:
        read(folder, content)
    return str(error.value).replace(f"{folder}/", "").removesuffix(".")


def given(config: TrainConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.model_fields_set}


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("epochs: 1\nlr: 2\nepochs: 3", "epochs is set twice, in lines 1 and 3"),
        ("lr: 1\nbatch-size: 8\nbatch_size: 8", "batch_size is set twice, in lines 2 and 3"),
        ("batch_ramp:\n  0: 8\n  0: 16", "0 is set twice, in lines 2 and 3"),
    ],
)
def test_a_name_that_is_given_twice_is_refused_with_both_lines(text: str, lines: str, tmp_path: Path) -> None:
    assert refused(tmp_path, text) == f"--config job.yaml: {lines}; keep one"


@pytest.mark.parametrize("word", ["yes", "no", "on", "off", "true", "False"])
def test_yes_and_no_are_booleans_only_where_one_is_meant(word: str, tmp_path: Path) -> None:
    assert read(tmp_path, f"amp: {word}").amp is (word in ("yes", "on", "true"))
    assert refused(tmp_path, f"epochs: {word}") == f"--epochs {word}: must be a whole number"
    assert refused(tmp_path, f"lr: {word}") == f"--lr {word}: must be a number"
    with pytest.raises(SettingsError, match="--wandb and --mlflow take a name"):
        check(read(tmp_path, f"wandb: {word}"))


@pytest.mark.parametrize("value", [True, False])
def test_a_boolean_of_python_is_no_number(value: bool) -> None:
    with pytest.raises(SettingsError, match=f"^--epochs {value}: is a boolean, but this setting is not"):
        build({"epochs": value}, [TrainConfig])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("milestones: 3\nschedule: multistep", {"milestones": (3.0,), "schedule": "multistep"}),
        ("run_dir: 2026-02-30", {"run_dir": Path("2026-02-30")}),
        ("epochs: 010", {"epochs": 10}),
        ("lr: ~\nprogress: null\nclip_norm:", {"lr": None, "progress": None, "clip_norm": None}),
        ("<<: {epochs: 7, lr: 2}\nlr: 1", {"epochs": 7, "lr": 1.0}),
        ("batch_ramp: {0: 512, 2: 2048}", {"batch_ramp": {0: 512, 2: 2048}}),
    ],
)
def test_a_value_means_what_its_setting_says(text: str, expected: dict[str, Any], tmp_path: Path) -> None:
    assert given(read(tmp_path, text)) == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("seed: 2026-13-40", "--seed 2026-13-40: must be a whole number"),
        ("max_steps: 1:30", "--max-steps 1:30: must be a whole number"),
        ("epochs: 99999999999999999999", "--epochs 99999999999999999999: must be at most 9,007,199,254,740,992"),
        ("milestones: {a: 1}", "--milestones {'a': '1'}: must be a list"),
        ("batch_ramp: [1]", "--batch-ramp ['1']: must be pairs"),
        (
            "seed: !!python/object:os.system x",
            "--config job.yaml is not YAML: could not determine a constructor",
        ),
        ("? [a]\n: 3", "--config job.yaml is not YAML: while constructing a mapping"),
        ("<<: 3", "--config job.yaml is not YAML: while constructing a mapping"),
        ('data_dir: "a\\0b"', "--data-dir a\\x00b: has a character"),
        ('epochs: "\\e[31m"', "--epochs \\x1b[31m: must be a whole number"),
        ("lr: .inf", "--lr .inf: must be a number"),
        ("milestones: &a [*a]", "--milestones [[...]]: must be a number"),
    ],
)
def test_odd_values_get_a_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    assert refused(tmp_path, text).startswith(sentence)


@pytest.mark.parametrize("opening", ["[", "- "])
def test_deep_nesting_gets_a_sentence_soon(opening: str, tmp_path: Path) -> None:
    assert refused(tmp_path, opening * 1_000).startswith("--config job.yaml is nested too deeply")
