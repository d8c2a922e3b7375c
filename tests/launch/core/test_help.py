"""--help of every launcher, and suggestions for what it does not know."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from launch.core.backend import BACKENDS, Demand, find, ways_to
from launch.core.cli import FIRST, LaunchOptions, RehearsalOptions
from launch.core.training.options import TRAINS
from trainer.settings.argparser import flag

MOST_FLAGS = 18  # of --help


def shown(backend: str, word: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        import_module(f"launch.{backend}.__main__").main([word])
    assert ended.value.code == 0
    return capsys.readouterr().out


def flags_in(text: str) -> list[str]:
    return re.findall(r"^  (?:-h, )?(--[a-z0-9-]+)", text, re.MULTILINE)


@pytest.mark.parametrize("backend", BACKENDS)
def test_help_shows_what_most_jobs_need_by_group_and_the_verbs(
    backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(backend, "--help", capsys)

    assert len(flags_in(text)) <= MOST_FLAGS + len(["--help", "--help-all", "--version", "--config"])
    assert {"--script", "--dataset", "--epochs", "--dry-run", "--help-all"} <= set(flags_in(text))
    headings = re.findall(r"^([a-z ]+):$", text, re.MULTILINE)
    assert [one for one in headings if one in FIRST] == [one for one in FIRST if one in headings]
    if backend != "local":
        assert f"python -m launch.{backend} status" in text


@pytest.mark.parametrize("backend", BACKENDS)
def test_help_all_shows_every_flag(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    rehearsal = [RehearsalOptions] if find(backend).rehearsal else []
    models = [LaunchOptions, *rehearsal, find(backend).options, *TRAINS]

    every = {flag(name) for model in models for name in model.model_fields}
    assert every <= set(flags_in(shown(backend, "--help-all", capsys)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("gpus", [1, 8])
def test_gpus_suggests_machines_that_have_so_many(backend: str, gpus: int, capsys: pytest.CaptureFixture[str]) -> None:
    ways = ways_to(find(backend), gpus)

    assert import_module(f"launch.{backend}.__main__").main(["--gpus", str(gpus)]) == 2
    said = capsys.readouterr().err
    assert ways
    for way in ways:
        assert " ".join(f"{flag(name)} {value}" for name, value in way.items()) in said
        place = find(backend).place(Demand(way, "ddp", None))
        assert place.replicas in (gpus, None)  # of a Slurm cluster only the cluster knows


def test_any_other_number_of_gpus_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for words in [["--gpus"], ["--gpus=all"], ["--gpus", "0"], ["--gpus=1000000"]]:
        assert import_module("launch.ec2.__main__").main(words) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_gpus_among_a_scripts_own_arguments_is_the_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    words = ["--script", "train.py", "--dry-run", "--", "--gpus", "8"]

    assert import_module("launch.local.__main__").main(words) == 0
    assert capsys.readouterr().out.endswith("train.py --gpus 8\n")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("words", "nearest"),
    [(["--script", "trian.py"], "did you mean train.py?"), (["--dataset", "cifr10"], "did you mean 'cifar10'?")],
)
def test_a_misspelt_name_is_found_in_a_dry_run(
    backend: str,
    words: list[str],
    nearest: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()

    assert import_module(f"launch.{backend}.__main__").main([*words, "--dry-run"]) == 2
    assert nearest in capsys.readouterr().err


@pytest.mark.parametrize("backend", [name for name in BACKENDS if "region" in find(name).options.model_fields])
def test_a_misspelt_region_is_found_in_a_dry_run(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    for region in ("us-east1", "us-eaast-1"):
        assert import_module(f"launch.{backend}.__main__").main(["--region", region, "--dry-run"]) == 2
        assert "did you mean 'us-east-1'?" in capsys.readouterr().err
