"""The command: what it writes and says, and what it refuses."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest

from launch.core.drawing.charts import Lines
from launch.core.runs import RUN, Run
from launch.report.__main__ import main
from launch.report.commands import report
from launch.report.findings import find, sentences, title
from launch.report.options import ReportOptions
from launch.report.page import all_charts
from tests.launch.report.conftest import FAILED, NOON, Made
from tests.launch.report.made import EVERYTHING, SCALED, kept, run
from trainer.contract import METRICS
from trainer.outcome import Outcome


@pytest.fixture
def lean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures take seconds and are tested elsewhere."""
    monkeypatch.setattr("launch.report.page.all_charts", lambda found: ["speedup: not today."])


def report_on(folder: Path, out: Path, **options: object) -> str:
    said: list[str] = []
    assert report([folder], ReportOptions(out=out, **options), NOON, said.append) == 0  # type: ignore[arg-type]
    return "\n".join(said)


def test_it_writes_a_page_pictures_and_a_table_and_says_so(made: Made) -> None:
    assert "failed: oom: rank 3 ran out of GPU memory; lower --batch-size.\n" in made.said
    assert re.search(r"^  ddp, 100 per GPU +weak +8 +1 +4,706 +2.13 +4.71 +59% +45.1%$", made.said, re.MULTILINE)
    names = ["report.html", "table.csv", "figures", "overview.png"]
    assert made.said.endswith("\nwritten:\n" + "\n".join(f"  {made.out / name}" for name in names))
    assert sorted(path.name for path in made.out.iterdir()) == sorted(names)
    assert [path.suffix for path in (made.out / "figures").iterdir()] == [".png"] * 18


def test_the_sentences_say_speedup_serial_part_communication_accuracy_and_cost() -> None:
    found = find(EVERYTHING)

    assert title(found) == "8 GPUs train 4.71× as fast as 1 GPU: 59% efficiency"  # noqa: RUF001
    assert sentences(found) == [
        "Best series, ddp, 100 per GPU: 1,000 images/s on 1 GPU, 4,706 on 8; speedup 4.71, efficiency 59%.",
        "Gustafson's law: each further GPU adds 54.9% of one's images/s, as far as was measured; with a fixed batch "
        "for each the law has no ceiling (fitted to 4 numbers of GPUs, off by at most 9.6%).",
        "4 of its 4 points rest on a single run; a range is that of its epochs.",
        "Communication takes 20% of an update.",
        "Best final eval accuracy: 90.0% (ddp, 1 × 100 images per GPU).",  # noqa: RUF001
        "With 8,000 images per update, lars loses 5.0 points and sgd loses 20.0 points, against 90.0% with 100.",
        "Cheapest epoch: 0.00550 USD (ddp, 1 × 100 images per GPU).",  # noqa: RUF001
        "Cheapest point of accuracy: 0.000300 USD (ddp, 1 × 100 images per GPU).",  # noqa: RUF001
    ]


@pytest.mark.parametrize(
    ("runs", "baseline", "said"),
    [
        ([run("a"), run("b", 2, rate=800)], None, "2 GPUs are slower than 1 GPU: 0.800× its speed"),  # noqa: RUF001
        ([run("a")], None, "1 run on 1 GPU"),
        (EVERYTHING, "ddp-2", "8 GPUs train 2.59× as fast as 2 GPUs: 65% efficiency"),  # noqa: RUF001
    ],
)
def test_the_title_says_the_speedup_where_there_is_one(runs: list[Run], baseline: str | None, said: str) -> None:
    assert title(find(runs, baseline)) == said


@pytest.mark.usefixtures("lean")
def test_the_table_has_a_line_a_run_failed_ones_too(tmp_path: Path) -> None:
    report_on(kept(tmp_path / "runs", *SCALED[:2], replace(FAILED, point={"gpus": 8})), tmp_path / "out")

    with (tmp_path / "out/table.csv").open() as file:
        rows = {row["run"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["ddp-1", "ddp-2", "oom"]
    one = rows["ddp-2"]
    assert (one["replicas"], one["global_batch"], one["precision"], one["eval_top1"]) == ("2", "200", "bf16", "0.9")
    assert float(one["images_per_s"]) == pytest.approx(1818.18, abs=0.01)
    assert (one["speedup"], one["efficiency"]) == ("1.81818", "0.909091")
    assert float(one["usd_per_epoch"]) == pytest.approx(0.0065)
    assert (rows["oom"]["state"], rows["oom"]["point.gpus"]) == ("failed", "8")
    assert rows["oom"]["reason"] == "rank 3 ran out of GPU memory; lower --batch-size."


def test_runs_that_all_failed_make_a_page_with_their_reasons(tmp_path: Path) -> None:
    said = report_on(kept(tmp_path / "runs", FAILED), tmp_path / "out")

    assert said.startswith("Nothing was measured: 1 run, none with an epoch\n")
    assert "rank 3 ran out of GPU memory" in (tmp_path / "out/report.html").read_text()
    assert not (tmp_path / "out/overview.png").exists()


def test_without_a_run_on_one_gpu_it_says_what_the_speedup_is_over() -> None:
    found = find([run("a", 2, rate=1800), run("b", 4, rate=3000)])

    assert "speedup 3.33, efficiency 83%, taking 2 GPUs for 2.00×." in sentences(found)[0]  # noqa: RUF001
    chart = next(chart for chart in all_charts(found) if isinstance(chart, Lines) and chart.name == "speedup")
    assert chart.note == "Without a run on one GPU: the fewest GPUs of a series, or the baseline, count as ideal."


def test_every_refusal_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, empty, broken = kept(tmp_path / "runs", *SCALED[:2], FAILED), tmp_path / "empty", tmp_path / "broken"
    empty.mkdir()
    broken.mkdir()
    (broken / RUN).write_text("{")
    for words, named in (
        ([], "python -m launch.report runs/ "),
        ([tmp_path / "none"], f"there is no folder {tmp_path / 'none'}"),
        ([empty], f"{empty} holds no run"),
        ([broken], f"{broken} has a run that cannot be read"),
        ([runs, "--format", "gif"], "--format gif: "),
        ([runs, "--baseline", "dpp-1"], "--baseline dpp-1: no run has that name; did you mean 'ddp-1'?"),
        ([runs, "--baseline", "oom"], "--baseline oom has no measured epoch"),
    ):
        assert main([str(word) for word in words]) == 2
        err = capsys.readouterr().err
        assert err.startswith("error: ")
        assert named in err


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = kept(tmp_path / "runs", FAILED)
    (tmp_path / "file").write_text("")

    assert main([str(runs), "--out", str(tmp_path / "file")]) == 6
    assert capsys.readouterr().err == (
        f"error: {tmp_path / 'file'} cannot be written: Not a directory; give another folder with --out.\n"
    )


@pytest.mark.usefixtures("lean")
def test_one_run_that_cannot_be_read_does_not_end_the_report(tmp_path: Path) -> None:
    runs = kept(tmp_path / "runs", *SCALED[:2])
    (runs / "broken").mkdir()
    (runs / "broken" / RUN).write_text("{")

    said = report_on(runs, tmp_path / "out")

    assert said.startswith("2 GPUs train 1.82")
    assert f"One run cannot be read and is left out: {runs / 'broken'} has a run that cannot be read" in said


@pytest.mark.usefixtures("lean")
@pytest.mark.parametrize(
    ("setting", "records"),
    [
        ({"epochs": float("inf")}, {}),
        ({"epochs": {"a": 1}}, {}),
        ({"strategy": "fsdp"}, {"nodes": 0.5}),
        ({}, {"epoch_s": 0.0, "eval_s": 0.0}),
        ({"image_size_start": "x", "image_size": 8}, {"epoch": [1]}),
    ],
)
def test_odd_numbers_of_one_run_do_not_end_the_report(
    setting: dict[str, object], records: dict[str, object], tmp_path: Path
) -> None:
    epochs = tuple({**record, **records} for record in SCALED[2].epochs)
    odd = replace(SCALED[2], settings={**SCALED[2].settings, **setting}, epochs=epochs)
    runs = kept(tmp_path / "runs", SCALED[0], odd)

    assert "written:" in report_on(runs, tmp_path / "out", target_accuracy=50.0)


def test_no_name_of_a_run_ends_the_report_or_adds_a_line_to_it(tmp_path: Path) -> None:
    """As matplotlib's formulas, for one: tests/launch/core/test_drawing.py has more of them."""
    names = ("plain", "$\\foo$", "\udcff", "a\n  theirs  done\nwarning: run this", "_", "\x1b[2J")
    for folder in names:
        (tmp_path / "runs" / folder).mkdir(parents=True)
        (tmp_path / "runs" / folder / METRICS).write_text('{"step": 1, "loss": 2}\n{"step": 2, "loss": 1}\n')
        Outcome("failed", 5, "why").write(tmp_path / "runs" / folder)

    lines = report_on(tmp_path / "runs", tmp_path / "out").splitlines()

    assert all(line.isprintable() for line in lines)
    assert sum(" why" in line for line in lines) == len(names)
    assert not [line for line in lines if line.startswith(("  theirs", "warning"))]


@pytest.mark.usefixtures("lean")
def test_pictures_of_an_earlier_report_are_removed_and_nobody_elses(tmp_path: Path) -> None:
    runs, out = kept(tmp_path / "runs", run("a")), tmp_path / "out"
    (out / "figures").mkdir(parents=True)
    names = ("overview.png", "figures/speedup.png", "figures/amdahl.pdf", "figures/mine.png")
    for name in names:
        (out / name).touch()

    report_on(runs, out)
    assert all((out / name).exists() for name in names)  # there was no report of ours
    report_on(runs, out)
    assert [name for name in names if (out / name).exists()] == ["figures/mine.png"]
