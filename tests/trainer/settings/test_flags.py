"""Settings from flags and YAML, and back; tables of names."""

import re
from json import dumps
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from trainer.config import SECTIONS, TrainConfig
from trainer.errors import SettingsError, did_you_mean, import_function, look_up
from trainer.settings.flags import build, parse, to_argv, to_yaml

# ---- flags


# One value for every setting, none of them its default.
OTHER: dict[str, Any] = {
    "model": "vgg11", "image_size": 64, "image_size_start": 32, "init_from": Path("old/model.pt"),
    "dataset": "imagefolder", "data_dir": Path("my data"), "data_url": "s3://b/pets",
    "data_cache_gb": 2.5, "shuffle_shards": 4, "cache_dir": Path("/tmp/c"), "download": False,
    "augment": False, "workers": 3, "worker_kind": "processes", "decode": "gpu", "max_bad_images": 7,
    "synthetic_images": 100, "synthetic_classes": 4,
    "epochs": 9, "batch_size": 16, "global_batch_size": 512, "accumulate": 2, "batch_ramp": {0: 512, 2: 2048},
    "eval_batch_size": 99, "eval_every": 3, "max_steps": 1000, "seed": 5,
    "optimizer": "lars", "lr": 1.5e-05, "lr_scaling": "sqrt", "lr_base_batch": 128, "schedule": "multistep",
    "warmup_epochs": 0.5, "milestones": (30.0, 60.5), "lr_gamma": 0.2, "momentum": 0.8, "nesterov": False,
    "weight_decay": 0.0, "label_smoothing": 0.1, "clip_norm": 1.0, "ema_decay": 0.999,
    "strategy": "fsdp", "device": "cpu", "comm_hook": "powersgd", "powersgd_rank": 4, "bucket_cap_mb": 50.0,
    "gradient_as_bucket_view": False, "static_graph": True, "timeout_s": 30.0,
    "stall_s": 0.0, "health_check": True,
    "precision": "bf16", "amp": True, "channels_last": False, "compile": True, "compile_mode": "max-autotune",
    "fused": False, "cudnn_benchmark": False, "deterministic": True, "threads": 2,
    "run_dir": Path("runs/x"), "checkpoint_dir": Path("s"), "checkpoint_every_s": 1.0, "keep_checkpoints": 1,
    "resume": False, "progress": False, "log_every": 1, "probe_steps": 0, "plot": False, "tensorboard": True,
    "wandb": "project", "mlflow": "experiment",
}  # fmt: skip
BOOLEANS = [name for name, value in OTHER.items() if isinstance(value, bool)]


class Where(BaseModel):
    """What a launcher would add."""

    model_config = ConfigDict(extra="forbid")

    nodes: int = Field(1, ge=1, description="machines")


def read(*argv: str) -> TrainConfig:
    (config,) = parse(argv, [TrainConfig], prog="trainer", about="Trains.", sections=SECTIONS)
    assert isinstance(config, TrainConfig)
    return config


def refused(*argv: str) -> str:
    with pytest.raises(SettingsError) as error:
        read(*argv)
    return str(error.value)


def job(folder: Path, text: str) -> str:
    file = folder / "job.yaml"
    file.write_text(text)
    return str(file)


def test_the_table_above_has_every_setting() -> None:
    assert OTHER.keys() == TrainConfig.model_fields.keys()
    assert not [name for name, value in OTHER.items() if value == TrainConfig.model_fields[name].default]


def test_every_setting_survives_the_way_through_flags() -> None:
    for name, value in OTHER.items():
        config = TrainConfig(**{name: value})

        assert (getattr(config, name), len(to_argv(config))) == (value, 2)
        assert read(*to_argv(config)) == config


def test_all_settings_survive_the_way_through_yaml(tmp_path: Path) -> None:
    config = TrainConfig(**OTHER)

    assert read("--config", job(tmp_path, to_yaml(config))) == config


def test_hyphens_and_underscores_are_the_same() -> None:
    for spelt in (["--batch-size", "8"], ["--batch_size", "8"], ["--batch-size=8"], ["--batch_size=8"]):
        assert read(*spelt).batch_size == 8


@pytest.mark.parametrize("name", ["amp", "channels_last"])
def test_a_boolean_can_be_written_in_every_way(name: str) -> None:
    flag = "--" + name.replace("_", "-")

    for on in ([flag], [flag, "true"], [flag, "True"], [f"--{name}", "True"], [f"{flag}=true"], [flag, "1"]):
        assert getattr(read(*on), name) is True
    for off in ([f"--no-{name.replace('_', '-')}"], [f"--no_{name}"], [flag, "false"], [f"--{name}", "False"]):
        assert getattr(read(*off), name) is False


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    config = read("--config", job(tmp_path, "epochs: 7\nbatch-size: 64\n"), "--epochs", "9")

    assert (config.epochs, config.batch_size, config.model) == (9, 64, "cnn")


def test_a_file_may_use_the_types_of_yaml(tmp_path: Path) -> None:
    text = "lr: 1e-3\namp: no\nmilestones: [30, 60]\nbatch_ramp: {0: 512, 2: 2048}\nimage_size: null\nclip_norm: none\n"

    config = read("--config", job(tmp_path, text))

    assert (config.lr, config.amp, config.milestones) == (0.001, False, (30.0, 60.0))
    assert (config.batch_ramp, config.image_size, config.clip_norm) == ({0: 512, 2: 2048}, None, None)


def test_none_means_the_default_where_nothing_is_no_value() -> None:
    assert read("--epochs", "none", "--model", "", "--lr", "None") == TrainConfig()


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        ("--batch_sise=8", "did you mean --batch-size?"),
        ("--no-amq", "did you mean --no-amp?"),
        ("--zzz 1", "unknown flag --zzz."),
        ("cnn", "unexpected word 'cnn'"),
        ("--model", "--model: expected one argument."),
        ("--epochs 0", "--epochs 0: must be"),
        ("--workers 1.5", "--workers 1.5: must be a whole number."),
        ("--lr fast", "--lr fast: must be a number."),
        ("--amp perhaps", "--amp perhaps: must be true or false."),
        ("--milestones 30,x", "--milestones x: must be a number."),
        ("--batch-ramp 512", "--batch-ramp 512: "),
        ("--schedule cosin", "did you mean 'cosine'?"),
    ],
)
def test_a_wrong_flag_gets_a_sentence(argv: str, named: str) -> None:
    assert named in refused(*argv.split())


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"epoch: 5", "did you mean 'epochs'?"),
        (b"epochs: 0", "--epochs 0"),
        (b"just words", "must hold `name: value` lines"),
        (b"", "must hold `name: value` lines"),
        (b"epochs: 5\nlr: [1, 2\n", "line 3"),
        (b"\x80\x02\xff", "is not YAML"),
        (None, "No such file or directory"),
    ],
)
def test_a_wrong_file_gets_a_sentence(tmp_path: Path, content: bytes | None, named: str) -> None:
    file = tmp_path / "job.yaml"
    if content is not None:
        file.write_bytes(content)

    sentence = refused("--config", str(file))

    assert named in sentence
    assert "\n" not in sentence


def test_two_models_share_one_line_and_one_file(tmp_path: Path) -> None:
    def both(*argv: str) -> list[BaseModel]:
        return parse(argv, [Where, TrainConfig], prog="p", about="", sections={})

    file = job(tmp_path, "nodes: 4\nepochs: 7\n")

    assert both("--config", file, "--seed", "3") == [Where(nodes=4), TrainConfig(epochs=7, seed=3)]
    with pytest.raises(SettingsError, match="did you mean --nodes"):
        both("--node", "2")
    with pytest.raises(SettingsError) as error:
        both("--nodes", "0", "--epochs", "0")
    assert [line.split(":")[0] for line in str(error.value).splitlines()] == ["--nodes 0", "--epochs 0"]


def test_a_launchers_default_gives_way_to_a_setting_that_says_the_same() -> None:
    defaults = {"batch_size": 256, "epochs": 3}

    def read(*argv: str) -> TrainConfig:
        (config,) = parse(argv, [TrainConfig], prog="x", about="", sections=SECTIONS, defaults=defaults)
        assert isinstance(config, TrainConfig)
        return config

    assert read().batch_size == 256
    together = read("--global-batch-size", "1024")
    assert (together.global_batch_size, together.epochs) == (1024, 3)
    assert "batch_size" not in together.model_fields_set
    assert read("--global-batch-size", "1024", "--batch-size", "64").batch_size == 64


def test_the_word_none_is_a_choice_where_a_setting_has_it() -> None:
    class Volumes(BaseModel):
        volume: Literal["auto", "per-node", "none"] = "auto"
        share: Literal["one", "all"] | None = "one"

    assert build({"volume": "none", "share": "none"}, [Volumes]) == [Volumes(volume="none", share=None)]
    assert build({"volume": ""}, [Volumes]) == [Volumes(volume="auto")]


@pytest.mark.parametrize(("defaults", "says"), [({}, "on a terminal"), ({"progress": False}, "false")])
def test_help_shows_one_default_also_where_a_launcher_sets_its_own(
    defaults: dict[str, Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(["--help"], [TrainConfig], prog="x", about="", sections={}, defaults=defaults)

    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(r"progress bar (\(default: [^)]*\) ?)+", shown)[0].strip() == f"progress bar (default: {says})"  # type: ignore[index]


# ---- registry


def test_a_function_is_imported_by_its_name() -> None:
    assert import_function("json:dumps") is dumps


def test_an_unknown_name_gets_the_nearest_and_all_known_ones() -> None:
    with pytest.raises(SettingsError) as error:
        look_up("model", "resnt18", {"cnn": "a:b", "resnet18": "c:d"})

    assert str(error.value) == "unknown model 'resnt18'; did you mean 'resnet18'? Known: cnn, resnet18."


def test_capitals_do_not_hide_the_nearest_name() -> None:
    assert did_you_mean("ResNet18", ["resnet18", "cnn"]) == "; did you mean 'resnet18'?"
