"""~ is the home folder in every path setting, which no shell sees to in --flag=~/x and in YAML."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import BaseModel

from launch.ec2.__main__ import main as ec2
from launch.report.__main__ import main as report
from launch.sagemaker.__main__ import main as sagemaker
from launch.slurm.options import SlurmOptions
from trainer import export, predict
from trainer.prepare.__main__ import main as prepare
from trainer.settings import flags
from trainer.settings.argparser import holds_paths

ROOT = Path(__file__).parents[1]
NO_PATHS = {"format", "job_name", "data_url", "data", "data_s3", "requirements", "cwd", "digest", "name", "register",
            "bucket"}  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "home"


def models() -> Iterator[Any]:
    """Every settings model of both packages."""
    for path in sorted([*ROOT.glob("launch/**/*.py"), *ROOT.glob("trainer/**/*.py")]):
        if re.search(r"class \w+\((BaseModel|\w*Options)\)", path.read_text()):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for one in vars(import_module(name)).values():
                if isinstance(one, type) and issubclass(one, BaseModel) and one.__module__ == name:
                    yield one


PATHS = [(model, name) for model in models() for name, field in model.model_fields.items() if holds_paths(field)]


def test_every_path_setting_knows_the_home_folder(home: Path) -> None:
    for model, name in PATHS:
        for given in ("~/x", Path("~/x")):
            (value,) = flags.cleaned({name: given}, model.model_fields).values()
            assert str(value) == str(home / "x")


def test_every_setting_that_names_a_folder_or_a_file_is_one() -> None:
    texts = [
        f"{model.__name__}.{name}"
        for model in models()
        for name, field in model.model_fields.items()
        if "str" in str(field.annotation) and not holds_paths(field) and name not in NO_PATHS
        if re.match(r"(folder|file|path)\b", str(field.description))
    ]
    assert texts == []
    assert {"data_dir", "run_dir", "script", "out", "source", "from_run"} <= {name for _, name in PATHS}


def test_a_list_and_a_file_of_settings_know_it(home: Path) -> None:
    fields = {**SlurmOptions.model_fields}
    assert flags.cleaned({"container_mounts": "~/a:/a, ~/b:/b"}, fields) == {
        "container_mounts": f"{home}/a:/a,{home}/b:/b"
    }
    (home / "job.yaml").write_text("data_dir: ~/pictures\n")
    values = flags.with_file({"config": "~/job.yaml"}, [cast(Any, SimpleNamespace(model_fields={"data_dir": None}))])
    assert values == {"data_dir": "~/pictures"}


@pytest.mark.parametrize("main", [ec2, sagemaker], ids=["ec2", "sagemaker"])
@pytest.mark.parametrize("name", ["cache-dir", "data-dir", "init-from"])
def test_a_path_of_the_nodes_is_not_in_this_machines_home(
    main: Any, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([f"--{name}=~/x", "--dry-run"]) == 2
    assert f"--{name} ~/x: ~ is your home folder on this machine" in capsys.readouterr().err


def test_commands_with_words_of_their_own_know_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert predict.main(["~/run", "~/image.png"]) in (2, 3)
    assert export.main(["~/run", "--to", "onnx"]) == 2
    assert prepare(["~/photos", "~/shards"]) in (2, 3)
    assert report(["~/runs"]) == 2
    assert capsys.readouterr().err.count(str(home)) >= 4
    assert not list(Path().iterdir())
