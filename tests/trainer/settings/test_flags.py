"""Settings from flags and YAML, and back."""

import re
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from trainer.config import SECTIONS, TrainConfig
from trainer.errors import SettingsError
from trainer.settings.flags import build, parse, to_argv, to_yaml

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


@pytest.mark.parametrize("name", OTHER)
def test_every_setting_survives_the_way_through_flags(name: str) -> None:
    config = TrainConfig(**{name: OTHER[name]})

    assert getattr(config, name) == OTHER[name]
    assert len(to_argv(config)) == 2
    assert read(*to_argv(config)) == config


def test_milestones_keep_all_their_digits() -> None:
    config = TrainConfig(milestones=(30.0, 60.1234567, 1e-07))

    assert to_argv(config) == ["--milestones", "30,60.1234567,1e-07"]
    assert read(*to_argv(config)) == config


def test_all_settings_survive_the_way_through_yaml(tmp_path: Path) -> None:
    config = TrainConfig(**OTHER)

    assert read("--config", job(tmp_path, to_yaml(config))) == config


def test_defaults_survive_the_way_through_yaml(tmp_path: Path) -> None:
    assert read("--config", job(tmp_path, to_yaml(TrainConfig()))) == TrainConfig()


def test_defaults_need_no_flags() -> None:
    assert to_argv(TrainConfig()) == []


def test_hyphens_and_underscores_are_the_same() -> None:
    for spelt in (["--batch-size", "8"], ["--batch_size", "8"], ["--batch-size=8"], ["--batch_size=8"]):
        assert read(*spelt).batch_size == 8


def test_a_value_keeps_its_underscores() -> None:
    assert read("--data-dir=my_data", "--wandb", "my_project").wandb == "my_project"
    assert read("--data_dir=my_data").data_dir == Path("my_data")


@pytest.mark.parametrize("name", BOOLEANS)
def test_a_boolean_can_be_written_in_every_way(name: str) -> None:
    flag = "--" + name.replace("_", "-")

    for on in ([flag], [flag, "true"], [flag, "True"], [f"--{name}", "True"], [f"{flag}=true"], [flag, "1"]):
        assert getattr(read(*on), name) is True
    for off in ([f"--no-{name.replace('_', '-')}"], [f"--no_{name}"], [flag, "false"], [f"--{name}", "False"]):
        assert getattr(read(*off), name) is False


def test_the_last_of_two_flags_wins() -> None:
    assert read("--amp", "--no-amp", "--epochs", "1", "--epochs", "2") == read("--no-amp", "--epochs", "2")


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
    ("argv", "sentence"),
    [
        (["--modle", "cnn"], "unknown flag --modle; did you mean --model? See --help for all of them."),
        (["--batch_sise=8"], "unknown flag --batch-sise; did you mean --batch-size? See --help for all of them."),
        (["--no-amq"], "unknown flag --no-amq; did you mean --no-amp? See --help for all of them."),
        (["--gpus", "2"], "unknown flag --gpus. See --help for all of them."),
        (["--zzz", "1"], "unknown flag --zzz. See --help for all of them."),
        (["cnn"], "unexpected word 'cnn'; settings are given as --name value."),
        (["--model"], "--model: expected one argument."),
        (["--epochs", "0"], "--epochs 0: must be greater than or equal to 1."),
        (["--epochs", "two"], "--epochs two: must be a whole number."),
        (["--workers", "1.5"], "--workers 1.5: must be a whole number."),
        (["--lr", "fast"], "--lr fast: must be a number."),
        (["--amp", "perhaps"], "--amp perhaps: must be true or false."),
        (["--milestones", "30,x"], "--milestones x: must be a number."),
        (
            ["--batch-ramp", "512"],
            "--batch-ramp 512: write it as epoch:images,epoch:images, for example 0:512,2:2048.",
        ),
        (
            ["--schedule", "cosin"],
            "--schedule cosin: must be constant, cosine, multistep, onecycle; did you mean 'cosine'?",
        ),
        (["--device", "tpu-v4"], "--device tpu-v4: must be auto, cuda, cpu."),
    ],
)
def test_a_wrong_flag_gets_a_sentence(argv: list[str], sentence: str) -> None:
    assert refused(*argv) == sentence


def test_every_wrong_value_is_named_at_once() -> None:
    assert refused("--epochs", "0", "--lr", "fast").splitlines() == [
        "--epochs 0: must be greater than or equal to 1.",
        "--lr fast: must be a number.",
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("epoch: 5", "unknown setting 'epoch' in {file}; did you mean 'epochs'?"),
        ("epochs: 0", "--epochs 0: must be greater than or equal to 1."),
        ("just words", "--config {file} must hold `name: value` lines, such as `epochs: 5`."),
        ("", "--config {file} must hold `name: value` lines, such as `epochs: 5`."),
    ],
)
def test_a_wrong_file_gets_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    file = job(tmp_path, text)

    assert refused("--config", file) == sentence.format(file=file)


def test_a_file_that_is_no_yaml_is_refused_with_the_place(tmp_path: Path) -> None:
    file = job(tmp_path, "epochs: 5\nlr: [1, 2\n")

    sentence = refused("--config", file)

    assert sentence.startswith(f"--config {file} is not YAML: ")
    assert "line 3" in sentence
    assert "\n" not in sentence


def test_a_file_of_bytes_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    file.write_bytes(b"\x80\x02\xff")

    assert refused("--config", str(file)).startswith(f"--config {file} is not YAML: ")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"

    assert refused("--config", str(file)) == f"--config {file}: No such file or directory; check the path."


def test_two_models_share_one_line_and_one_file(tmp_path: Path) -> None:
    file = job(tmp_path, "nodes: 4\nepochs: 7\n")

    where, train = parse(["--config", file, "--seed", "3"], [Where, TrainConfig], prog="p", about="", sections={})

    assert (where, train) == (Where(nodes=4), TrainConfig(epochs=7, seed=3))


def test_a_misspelt_flag_gets_the_nearest_of_both_models() -> None:
    for word, near in (("--node", "--nodes"), ("--epoch", "--epochs")):
        with pytest.raises(SettingsError, match=f"did you mean {near}"):
            parse([word, "2"], [Where, TrainConfig], prog="p", about="", sections={})


def test_wrong_values_of_both_models_are_named_at_once() -> None:
    with pytest.raises(SettingsError) as error:
        build({"nodes": 0, "epochs": 0}, [Where, TrainConfig])

    assert [line.split(":")[0] for line in str(error.value).splitlines()] == ["--nodes 0", "--epochs 0"]


def test_help_shows_every_setting_with_its_default_under_headings(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        read("--help")

    text = capsys.readouterr().out
    assert end.value.code == 0
    assert text.startswith("usage: trainer [--name value ...]\n\nTrains.\n")
    assert [heading for heading in SECTIONS.values() if f"\n{heading}:\n" not in text] == []
    assert [name for name in OTHER if f"  --{name.replace('_', '-')}" not in text] == []
    assert "--epochs N" in text
    assert "passes over the training set (default: 5)" in text


def test_help_says_of_every_setting_what_its_default_is() -> None:
    unexplained = [
        name
        for name, field in TrainConfig.model_fields.items()
        if field.default is None and "(default: " not in str(field.description)
    ]

    # Without these nothing happens, as their names say.
    assert unexplained == ["init_from", "global_batch_size", "batch_ramp", "max_steps", "wandb", "mlflow"]


def test_help_breaks_no_name_in_two(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in range(70, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        with pytest.raises(SystemExit):
            read("--help")

    assert [line for line in capsys.readouterr().out.splitlines() if line.endswith("-")] == []


def test_version_is_printed_without_any_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        read("--version")

    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("aws-ddp-toolkit")


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
