"""`python -m launch.forecast`: the ranked table, corrections by runs, and refusals."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from launch.core.runs import Run, write
from launch.forecast.__main__ import main
from launch.forecast.compare import compare
from launch.forecast.from_runs import measurements
from launch.forecast.offers import as_text
from launch.forecast.options import ForecastOptions
from tests.conftest import ROOT
from trainer.config import TrainConfig

Capture = pytest.CaptureFixture[str]
EXAMPLE = ("--instance-type", "g5.2xlarge,g5.12xlarge,p4d.24xlarge", "--nodes", "1,2,4", "--model", "resnet18",
           "--dataset", "imagenet")  # fmt: skip


def answer(capsys: Capture, *argv: str) -> dict[str, Any]:
    assert main([*argv, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_nine_candidates_are_ranked_by_price_and_two_are_recommended(capsys: Capture) -> None:
    assert main([*EXAMPLE, "--epochs", "90"]) == 0

    text = capsys.readouterr().out
    rows = [line for line in text.splitlines() if re.match(r"  \d x (g5|p4d)", line)]
    assert len(rows) == 9
    assert text.count("\nCheapest: ") == text.count("\nFastest: ") == 1
    assert max(map(len, text.splitlines())) <= 100
    prices = [candidate["usd"] for candidate in answer(capsys, *EXAMPLE)["candidates"]]
    assert prices == sorted(prices)


@pytest.mark.parametrize(
    ("width", "shown", "dropped"),
    [
        (None, ["USD range", "basis", "images/s"], ["s/epoch range", "USD/epoch", "spot", "efficiency"]),
        (60, ["s/epoch", "job", "USD"], ["basis", "images/s", "USD range"]),
        (200, ["s/epoch range", "efficiency", "USD/epoch", "spot"], ["measured"]),  # no run to show
    ],
)
def test_a_narrow_terminal_drops_columns_and_their_meaning(
    width: int | None, shown: list[str], dropped: list[str]
) -> None:
    text = as_text(compare(TrainConfig(dataset="cifar10"), ForecastOptions(), ()), width)
    _, table, *_, legend = text.split("\n\n")
    heading = re.split(" {2,}", table.splitlines()[0].strip())

    assert [name for name in shown if name not in heading] == []
    assert [name for name in dropped if name in heading] == []
    assert [name for name in dropped if f"{name}:" in legend] == []
    assert max(map(len, table.splitlines())) <= (width or 100)


def test_it_ranks_by_time_and_by_spot_prices_too(capsys: Capture) -> None:
    hours = [row["hours"] for row in answer(capsys, *EXAMPLE, "--sort", "time")["candidates"]]
    spot = answer(capsys, *EXAMPLE, "--spot")["candidates"]

    assert hours == sorted(hours)
    assert [row["spot_usd"] for row in spot] == sorted(row["spot_usd"] for row in spot)
    assert {row["spot_usd_source"] for row in spot} == {"estimated"}


def test_sagemakers_names_have_sagemakers_prices(capsys: Capture) -> None:
    found = answer(capsys, "--instance-type", "g5.2xlarge,ml.g5.2xlarge", "--nodes", "2")["candidates"]

    assert {row["instance_type"]: row["usd_per_hour"] for row in found} == {
        "g5.2xlarge": 2 * 1.212,
        "ml.g5.2xlarge": 2 * 1.515,
    }


def test_what_cannot_be_is_left_out_with_its_reason(capsys: Capture) -> None:
    found = answer(capsys, "--instance-type", "g5.2xlarge", "--nodes", "1,3", "--global-batch-size", "256")

    assert [row["nodes"] for row in found["candidates"]] == [1]
    (reason,) = found["left_out"]
    assert reason.startswith("3 x g5.2xlarge: a global batch of 256 does not divide among 3 replicas")


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["--instance-type", "g5.2xlrge"], "'g5.2xlarge'"),
        (["--model", "resnt18"], "'resnet18'"),
        (["--dataset", "imagefolder"], "--images"),
        (["--nodes", "0"], "--nodes 0"),
        (["--nodes", ","], "at least one value"),
        (["--strategy", "dp", "--nodes", "2"], "--strategy dp"),
        (["--from-run", "nowhere"], "nowhere"),
        (["publish"], "'published'"),
    ],
)
def test_mistakes_are_one_sentence(argv: list[str], named: str, capsys: Capture) -> None:
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert named in err


def test_a_model_that_nobody_counted_says_how_to_count_it(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from launch.core.estimate import rates

    read = rates.table
    known = {name: sizes for name, sizes in read("models").items() if name != "resnet50"}
    monkeypatch.setattr(rates, "table", lambda name: known if name == "models" else read(name))

    assert main(["--model", "resnet50", "--dataset", "cifar10"]) == 2
    assert "Add what `python -m trainer.models.count resnet50` prints." in capsys.readouterr().err


def test_a_run_on_this_kind_of_gpu_calibrates_and_another_does_not(tmp_path: Path, capsys: Capture) -> None:
    a_run(tmp_path / "run", "NVIDIA A10G")
    flags = ("--model", "resnet18", "--dataset", "cifar10", "--nodes", "1", "--from-run", str(tmp_path))

    found = answer(capsys, *flags, "--instance-type", "g5.2xlarge,p4d.24xlarge")

    (fits,) = (row for row in found["candidates"] if row["instance_type"] == "g5.2xlarge")
    assert fits["images_per_s"] == pytest.approx(128 / 0.025)
    assert fits["source"] == "measured"
    corrected, refused = found["corrections"]
    assert corrected.startswith("g5.2xlarge: compute: 25.0 ms a step of 128 images, from run")
    assert refused.startswith("p4d.24xlarge: nothing from run")


def test_a_run_of_one_epoch_counts_where_there_is_no_other_and_is_marked(tmp_path: Path) -> None:
    for name in ("cold", "warm"):
        a_run(tmp_path / name, "NVIDIA A10G")
    metrics = tmp_path / "cold" / "metrics.jsonl"
    metrics.write_text(metrics.read_text().splitlines(keepends=True)[0])

    assert [found.name for found in measurements([tmp_path])] == ["warm"]
    assert [found.name for found in measurements([tmp_path / "cold"])] == [
        "cold (its warm-up: train two epochs or more)"
    ]


def test_of_a_batch_ramp_only_epochs_at_the_last_batch_count(tmp_path: Path) -> None:
    a_run(tmp_path / "run", "NVIDIA A10G")
    metrics = tmp_path / "run" / "metrics.jsonl"
    first, *_, last = map(json.loads, metrics.read_text().splitlines())
    epochs = [first, {**last, "global_batch": 64, "step_ms": 13.0}, {**last, "global_batch": 64, "step_ms": 13.0}, last]
    metrics.write_text("".join(json.dumps(epoch) + "\n" for epoch in epochs))

    (found,) = measurements([tmp_path])

    assert (found.batch, found.step_s) == (128, 0.0255)


def test_a_type_that_is_being_retired_gives_one_note(capsys: Capture) -> None:
    found = answer(capsys, "--instance-type", "p3.8xlarge,ml.p3.8xlarge", "--nodes", "1", "--dataset", "cifar10")

    assert found["left_out"] == []
    (note,) = found["notes"]
    assert note.startswith("p3.8xlarge is being retired")


def test_more_gpus_than_there_are_images_for_are_left_out(capsys: Capture) -> None:
    argv = ("--dataset", "digits", "--instance-type", "g5.12xlarge", "--nodes", "1,4")

    assert [row["nodes"] for row in answer(capsys, *argv)["candidates"]] == [1]
    assert answer(capsys, *argv)["left_out"] == [
        "4 x g5.12xlarge: an update takes 2,048 images, and digits has 1,437; lower --batch-size."
    ]


def a_run(folder: Path, device: str) -> None:
    """A folder as the trainer and a sweep leave it: the first epoch slow, the others not."""
    record = {"global_batch": 128, "world_size": 1, "replicas": 1, "nodes": 1, "device": device, "precision": "bf16",
              "data_wait_ms": 0.5, "communication_ms": 0.0, "all_reduce_gb_per_s": None}  # fmt: skip
    settings = {"model": "resnet18", "dataset": "cifar10", "batch_size": 128}
    write(Run(name=folder.name, folder=folder, settings=settings, options={"instance_type": "g5.2xlarge"}))
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    epochs = [{**record, "step_ms": ms, "images_per_s": 128e3 / ms} for ms in (90.0, 25.5, 25.5)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(epoch) + "\n" for epoch in epochs))


def test_the_forecast_of_each_published_result(capsys: Capture, golden: Callable[[str, str], None]) -> None:
    assert main(["published"]) == 0
    golden("published.txt", capsys.readouterr().out)


def test_the_page_on_data_prints_what_the_command_prints_of_imagenet(capsys: Capture) -> None:
    page = (ROOT / "infra/data.md").read_text()
    command = "--instance-type g5.2xlarge --nodes 1,2 --model resnet18 --dataset imagenet --epochs 1 --batch-size 256 "
    command += "--prepared --fill-volumes always"
    assert f"python -m launch.forecast {command}\n" in page

    assert main(command.split()) == 0
    shown = capsys.readouterr().out
    assert shown[shown.index("  machines") : shown.index("\n\nCheapest")] in page


def test_whether_volumes_are_filled_at_a_price_decides_on_a_short_job(capsys: Capture) -> None:
    """With --fill-volumes, as launch.ec2 has it; SageMaker's volumes are not made from a snapshot."""
    asked = ["--model", "resnet18", "--dataset", "imagenet", "--epochs", "1", "--nodes", "1"]
    both = ["--instance-type", "g5.2xlarge,ml.g5.2xlarge"]
    never = {
        row["instance_type"]: row for row in answer(capsys, *asked, *both, "--fill-volumes", "never")["candidates"]
    }
    (auto,) = answer(capsys, *asked, "--instance-type", "g5.2xlarge")["candidates"]
    (spot,) = answer(capsys, *asked, "--instance-type", "g5.2xlarge", "--spot")["candidates"]

    assert spot["filling"]["volume"]["mib_per_s"] is None  # at half the price, the time that is saved is worth less
    assert never["ml.g5.2xlarge"]["filling"] is None
    assert never["g5.2xlarge"]["filling"]["volume"]["mib_per_s"] is None
    assert auto["filling"]["volume"]["mib_per_s"] == 300
    assert never["g5.2xlarge"]["hours"] - auto["hours"] == pytest.approx(0.38, abs=0.01)  # 23 minutes
    assert never["g5.2xlarge"]["hours"] - never["ml.g5.2xlarge"]["hours"] == pytest.approx(0.38, abs=0.01)


@pytest.mark.parametrize("odd", ["x", {}, -1, float("nan")], ids=str)
def test_no_odd_run_ends_the_forecast_with_a_traceback(odd: object, tmp_path: Path) -> None:
    settings = {"model": "resnet18", "dataset": "cifar10", "image_size": odd, "accumulate": odd, "threads": odd}
    epoch = {"images_per_s": 900.0, "step_ms": 9.0, "global_batch": 64, "nodes": odd, "replicas": 1, "device": "A10G"}
    run = Run("odd", tmp_path / "odd", settings, options={"instance_type": "g5.2xlarge"})
    write(run)
    (run.folder / "metrics.jsonl").write_text(2 * f"{json.dumps(epoch)}\n")

    (measured,) = measurements([tmp_path])
    assert (measured.accumulate, measured.layout.nodes, measured.threads, measured.px) == (1, 1, None, 32)
    assert compare(TrainConfig(dataset="cifar10", model="resnet18"), ForecastOptions(), [measured])


def test_its_page_prints_what_the_command_prints(capsys: Capture) -> None:
    page = (ROOT / "launch/forecast/README.md").read_text()

    assert main([*EXAMPLE, "--epochs", "90", "--batch-size", "256"]) == 0
    assert f"```\n{capsys.readouterr().out}```\n" in page
