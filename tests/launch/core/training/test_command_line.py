"""What a command line trains: our classifier, or a script of the user's own."""

from pathlib import Path
from typing import Any, cast

import pytest

from launch.core.backend import find
from launch.core.quote import Quote, price_lines
from launch.core.training.base import Training
from launch.core.training.classifier import Classifier
from launch.core.training.options import ScriptOptions, epochs_in, split, training_from, training_of
from launch.core.training.script import Script
from trainer.config import TrainConfig
from trainer.errors import SettingsError
from trainer.script.config import parse
from trainer.settings import flags


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("print('hello')\n")
    return tmp_path


def trained(line: str, here: Path, *, is_sent: bool = True) -> Training:
    """The training of a command line that is written in `here`."""
    backend = find("ec2" if is_sent else "local")
    words, arguments = split(line.split())
    models = [ScriptOptions, TrainConfig]
    values = flags.read(words, models, prog="launch", about="", sections={})
    script, config = flags.build(values, models)
    return training_of(cast(ScriptOptions, script), cast(TrainConfig, config), values, arguments, here, backend)


def test_without_a_script_our_trainer_trains(here: Path) -> None:
    found = trained("--epochs 3", here)

    assert found == Classifier(TrainConfig(epochs=3))
    assert found.words == ("-m", "trainer", "--epochs", "3")


def test_a_script_gets_its_arguments_as_they_are(here: Path) -> None:
    found = trained("--script train.py -- --lr 0.1 --script other -- -m", here)

    assert isinstance(found, Script)
    assert found.arguments == ("train.py", "--lr", "0.1", "--script", "other", "--", "-m")
    assert found.words[:2] == ("-m", "trainer.script")
    assert found.label == "train"


@pytest.mark.parametrize("flag", ["-m", "--module"])
def test_a_module_is_named_as_python_names_it(here: Path, flag: str) -> None:
    found = trained(f"{flag} package.train -- 1", here, is_sent=False)

    assert isinstance(found, Script)
    assert found.arguments == ("-m", "package.train", "1")
    assert found.label == "train"


def test_arguments_may_stand_in_the_file_as_a_text_or_as_a_list(here: Path) -> None:
    for args in ("--lr '0.1 0.2'", ["--lr", "0.1 0.2"]):
        options = ScriptOptions(script=Path("train.py"), args=cast(Any, args))
        found = training_of(options, TrainConfig(), {}, (), here, find("local"))
        assert isinstance(found, Script)
        assert found.arguments == ("train.py", "--lr", "0.1 0.2")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("-- --lr 0.1", "there is none; give --script FILE"),
        ("--source-dir .", "--source-dir is for a script of your own; give --script FILE as well"),
        ("--processes one", "--processes is for a script of your own"),
        ("--script train.py -m package", "both say what to run; give one of them"),
        ("--script train.py --epochs 5", r"--epochs is a setting of our trainer, .*, write it after --: -- --epochs 5"),
        ("--script train.py --args a -- b", "--args and the words after -- are both"),
        ("--script none.py", "none.py"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_remedy(here: Path, line: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        trained(line, here)


def test_what_runs_on_a_machine_is_read_back_from_its_words(here: Path) -> None:
    sent = trained("--script train.py --processes one --data-dir data -- --epochs 7", here).called("mine")
    placed = sent.sent(Path("/job/source/source.tar.gz"), Path("/job/source")).at(run_dir=Path("/job/run"))

    again = training_from(placed.words)

    assert again.words == placed.words
    assert again.digest == sent.digest
    assert again.source is None
    assert again.data_dir == here / "data"
    classifier = Classifier(TrainConfig(epochs=3, dataset="imagenet"))
    assert training_from(classifier.words) == classifier
    with pytest.raises(SettingsError, match="no training that is known: sh -c evil"):
        training_from(["sh", "-c", "evil"])


def test_the_number_of_epochs_is_known_where_the_words_say_it(here: Path) -> None:
    assert epochs_in(Classifier(TrainConfig(epochs=3)).words) == "3"
    assert epochs_in(Classifier(TrainConfig()).words) == str(TrainConfig().epochs)
    assert epochs_in(trained("--script train.py -- --epochs 9", here).words) == "9"
    assert epochs_in(trained("--script train.py", here).words) == "?"


def test_one_process_a_node_is_one_whatever_its_gpus(here: Path) -> None:
    assert trained("--script train.py", here).processes(None, 8) == 8
    one = trained("--script train.py --processes one", here)
    assert one.processes(None, 8) == 1
    with pytest.raises(SettingsError, match="--nproc-per-node 4 starts more; leave one of them out"):
        one.processes(4, 8)


def test_a_strategy_of_one_process_is_refused_for_more() -> None:
    for strategy in ("dp", "single"):
        with pytest.raises(SettingsError, match=f"--strategy {strategy} trains in one process, not 2"):
            Classifier(TrainConfig(strategy=cast(Any, strategy))).check_ranks(2, 1)


def test_the_scripts_environment_is_part_of_its_command(here: Path) -> None:
    found = trained("--script train.py --variables HF_HOME=/data/hf,MODE=a=b -- 1", here)

    assert parse(found.words[2:]).variables == ("HF_HOME=/data/hf", "MODE=a=b")
    assert training_from(found.words).words == found.words
    for wrong, sentence in (
        ("1X=2", "names have letters, digits and _"),
        ("HF_TOKEN=hf_" + 34 * "a", "--variables HF_TOKEN looks like a secret"),
        ("X", "write it as KEY=VALUE,KEY=VALUE"),
    ):
        with pytest.raises(SettingsError, match=sentence) as refused:
            trained(f"--script train.py --variables {wrong}", here)
        assert 34 * "a" not in str(refused.value)


def test_a_variables_value_may_have_commas(here: Path) -> None:
    given = ["CUDA_VISIBLE_DEVICES=0,1", "RATE=100%2C5%", "EMPTY="]
    (here / "job.yaml").write_text(f"script: train.py\nvariables: {given}\n")

    found = trained(f"--config {here}/job.yaml", here)

    assert training_from(found.words).words == found.words
    assert parse(found.words[2:]).variables == tuple(given)


def test_the_time_that_the_user_expects_makes_the_expected_price(here: Path) -> None:
    with_hours = trained("--script train.py --expected-hours 1.5", here)
    quote = Quote(
        "g5.2xlarge", usd_per_hour=2.0, on_demand_usd_per_hour=2.0, once_usd=0.1, estimate_s=with_hours.expected_s
    )

    assert (quote.expected_s, quote.expected_usd) == (5400, pytest.approx(3.1))
    assert ("  expected", "3.10 USD in 1.5 h: by --expected-hours") in price_lines([quote])
    with_hours.check_limit(1.5)
    with pytest.raises(SettingsError, match=r"--expected-hours 1.5 is more than --max-hours 1, .* raise --max-hours"):
        with_hours.check_limit(1)
    assert trained("--script train.py", here).expected_s is None
    with pytest.raises(SettingsError, match="--expected-hours is for a script of your own"):
        trained("--expected-hours 1", here)


@pytest.mark.parametrize(
    ("name", "content"),
    [("train.sh", b"#!/bin/bash\npython train.py\n"), ("empty.ipynb", b'{"cells": []}'), ("a.out", b"\x7fELF\0"),
     ("train.py", b"\x7fELF\0"), ("folder", None)],
)  # fmt: skip
def test_what_is_no_python_file_is_refused(here: Path, name: str, content: bytes | None) -> None:
    (here / name).write_bytes(content) if content is not None else (here / name).mkdir()
    with pytest.raises(SettingsError, match=f"--script:? .*{name}"):
        trained(f"--script {name}", here)


@pytest.mark.parametrize(("name", "content"), [("train", "#!/usr/bin/env python3\n"), ("-c.py", ""), ("a b.py", "")])
def test_a_python_file_may_have_any_name(here: Path, name: str, content: str) -> None:
    (here / name).write_text(content)
    options = ScriptOptions(script=Path(name))
    for backend in ("ec2", "local"):
        assert training_of(options, TrainConfig(), {}, (), here, find(backend)).label


def test_an_open_quote_in_the_arguments_is_refused() -> None:
    with pytest.raises(SettingsError, match="close every quote"):
        flags.build({"args": "--name 'a"}, [ScriptOptions])
