"""`python -m launch.forecast --script`: known answers from runs with exact times, refusals, and one real sweep."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from launch.core.runs import Run, write
from launch.forecast.__main__ import main
from trainer.outcome import Outcome
from trainer.script.pace import Pace

Capture = pytest.CaptureFixture[str]
SETTINGS = {"script": "train.py", "args": ["--lr=0.1"], "processes": "torchrun", "variables": [], "data_dir": None}
NO_NETWORK = "no run had several nodes, so what the network between them costs is not in it"
HOURLY = 1.212  # of g5.2xlarge


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ran(
    name: str, seconds: float | None, nodes: int = 1, instance_type: str = "g5.2xlarge", *,
    options: Mapping[str, Any] | None = None, backend: str = "ec2", settings: Mapping[str, Any] | None = None,
    **fields: Any,
) -> None:  # fmt: skip
    """A run as launch.sweep leaves it, below runs/."""
    machines = {"nodes": nodes, "instance_type": [instance_type], "nproc_per_node": None}
    write(Run(
        name, Path("runs", name), {**SETTINGS, **(settings or {})}, backend=backend,
        options=machines if options is None else options, seconds=seconds, **fields,
    ))  # fmt: skip


def amdahl(count: float, one: float = 3600.0, serial: float = 0.1) -> float:
    return one * (serial + (1 - serial) / count)


def command_line(*words: str) -> list[str]:
    return ["--script", "train.py", "--from-run", "runs", *words]


def answer(capsys: Capture, *words: str) -> dict[str, Any]:
    code, printed = main([*command_line(*words), "--json"]), capsys.readouterr()
    assert code == 0, printed.err
    return dict(json.loads(printed.out))


def by_nodes(found: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    return {row["nodes"]: row for row in found["candidates"]}


def refusal(capsys: Capture, *words: str) -> str:
    assert main(list(words)) == 2
    return capsys.readouterr().err


def test_what_was_measured_is_its_median_and_costs_what_the_catalog_says(capsys: Capture) -> None:
    for place, hours in enumerate((1.0, 1.1, 1.5)):
        ran(f"run-{place}", hours * 3600)

    row = by_nodes(answer(capsys, "--nodes", "1"))[1]

    assert (row["basis"], row["hours"], row["is_extrapolated"]) == ("measured", 1.1, False)
    assert row["hours_range"] == pytest.approx([0.99, 1.5])
    assert row["usd"] == pytest.approx(1.1 * HOURLY)
    assert row["spot_usd"] == pytest.approx(0.55 * HOURLY)


def test_between_and_beyond_measured_numbers_amdahls_law_counts(capsys: Capture) -> None:
    for nodes in (1, 2, 4):
        ran(f"nodes-{nodes}", amdahl(nodes), nodes)

    found = answer(capsys, "--nodes", "1,2,3,4,8")

    rows = by_nodes(found)
    assert {nodes: row["basis"] for nodes, row in rows.items()} == {
        1: "measured", 2: "measured", 3: "fitted", 4: "measured", 8: "fitted",
    }  # fmt: skip
    assert {nodes: row["hours"] * 3600 for nodes, row in rows.items()} == pytest.approx(
        {nodes: amdahl(nodes) for nodes in (1, 2, 3, 4, 8)}
    )
    # Perfect scaling from 2 is faster than 4 ever was; perfect scaling up to 4 is slower than no gain over 2.
    assert rows[3]["hours_range"] == pytest.approx([max(amdahl(2) * 2 / 3, amdahl(4)) / 3600, amdahl(4) / 3 * 4 / 3600])
    assert rows[8]["hours_range"] == pytest.approx([amdahl(4) / 2 / 3600, amdahl(4) / 3600])
    assert [row["is_extrapolated"] for row in rows.values() if row["nodes"] == 8] == [True]
    assert any("an extrapolation for 8 GPUs, as 1, 2 and 4 GPUs were measured" in note for note in found["notes"])
    assert found["sources"] == [
        "g5.2xlarge: measured on 1, 2 and 4 GPUs by 3 runs; by Amdahl's law 10.0% of the time of one does not shrink "
        "with more (off by at most 0.0%)"
    ]
    assert [row["usd"] for row in found["candidates"]] == sorted(row["usd"] for row in found["candidates"])


def test_one_measured_number_gives_a_range_for_others_and_no_expectation(capsys: Capture) -> None:
    ran("two", 3600.0, 2)

    found = answer(capsys, "--nodes", "1,2,4")

    rows = by_nodes(found)
    assert [rows[nodes]["basis"] for nodes in (1, 2, 4)] == ["range", "measured", "range"]
    assert (rows[4]["hours"], rows[4]["usd"], rows[4]["spot_usd"]) == (None, None, None)
    assert (rows[1]["hours_range"], rows[4]["hours_range"]) == ([1.0, 2.0], [0.5, 1.0])
    assert rows[4]["usd_range"] == pytest.approx([2 * HOURLY, 4 * HOURLY])
    assert found["candidates"][0]["nodes"] == 2
    assert main(command_line("--nodes", "2,4")) == 0
    text = capsys.readouterr().out
    assert "Cheapest and fastest: 2 x g5.2xlarge (measured), 2.42 USD in 1.0 h.\n" in text
    assert "4 x g5.2xlarge may be faster: 30 min at best." in text


def test_times_that_the_law_does_not_describe_give_a_range_only(capsys: Capture) -> None:
    for nodes, seconds in ((1, 1000.0), (2, 1400.0), (4, 900.0)):
        ran(f"nodes-{nodes}", seconds, nodes)

    (row,) = answer(capsys, "--nodes", "8")["candidates"]
    assert (row["basis"], row["hours"]) == ("range", None)


def test_a_type_that_was_never_measured_is_left_out_and_sagemakers_is_the_same_machine(capsys: Capture) -> None:
    ran("one", 3600.0)

    found = answer(capsys, "--nodes", "1", "--instance-type", "g5.2xlarge,ml.g5.2xlarge,p4d.24xlarge")

    assert {row["instance_type"]: row["usd"] for row in found["candidates"]} == {
        "g5.2xlarge": HOURLY, "ml.g5.2xlarge": 1.515,
    }  # fmt: skip
    assert found["left_out"] == ["p4d.24xlarge: never measured; run it there once."]
    assert "p4d.24xlarge: never measured" in refusal(capsys, *command_line("--instance-type", "p4d.24xlarge"))


def test_ranks_are_those_of_the_options_or_all_gpus_of_the_type(capsys: Capture) -> None:
    for gpus in (1, 2, None):
        options = {"nodes": 1, "instance_type": ["g5.12xlarge"], "nproc_per_node": gpus}
        ran(f"gpus-{gpus}", amdahl(gpus or 4), options=options)

    found = answer(capsys)

    assert [(row["replicas"], row["basis"]) for row in found["candidates"]] == [
        (4, "measured"), (8, "fitted"), (16, "fitted"),
    ]  # fmt: skip
    assert (
        "g5.12xlarge: no run had several nodes, so what the network between them costs is not in it" in found["notes"]
    )
    assert answer(capsys, "--gpus-per-node", "2", "--nodes", "1")["candidates"][0]["basis"] == "measured"


def test_a_run_that_was_cut_short_counts_by_its_pace_where_no_other_came_to_its_end(capsys: Capture) -> None:
    ran("cut", 500.0, state="failed")
    Outcome("failed", 1, "no room", seconds=420.0, ended="1970-01-01T00:16:40+00:00").write(Path("runs/cut"))
    Path("runs/cut/pace.json").write_text(json.dumps(asdict(Pace(done=0.5, since=0.0, seconds=400.0, at=1000.0))))

    found = answer(capsys, "--nodes", "1")

    assert found["candidates"][0]["hours"] * 3600 == pytest.approx(420 + 400)
    assert found["notes"] == ["cut was cut short with 50% done: its time is by its pace, without its start"]
    ran("whole", 900.0)
    found = answer(capsys, "--nodes", "1")
    assert (found["candidates"][0]["hours"] * 3600, found["notes"]) == (pytest.approx(900), [])


def test_runs_without_a_time_and_rehearsals_count_for_nothing_and_are_named(capsys: Capture) -> None:
    ran("one", 3600.0)
    ran("two", 60.0, 2, rehearsed=True)
    ran("three", 60.0, 3, state="interrupted")

    found = answer(capsys, "--nodes", "1,2")

    assert [row["basis"] for row in found["candidates"]] == ["measured", "range"]
    assert found["notes"] == [
        f"g5.2xlarge: {NO_NETWORK}",
        "nothing from three, which is interrupted, and recorded no pace",
        "nothing from two, which was rehearsed on this machine, and not run on g5.2xlarge",
    ]


def test_machines_without_a_type_have_their_backends_name_and_no_price(capsys: Capture) -> None:
    for gpus in (1, 2):
        ran(f"gpus-{gpus}", amdahl(gpus, serial=0.2), options={"nproc_per_node": gpus}, backend="local")

    found = answer(capsys)

    assert [(row["instance_type"], row["replicas"], row["usd"]) for row in found["candidates"]] == [
        ("local", 2, None), ("local", 1, None),
    ]  # fmt: skip
    assert main(command_line("--instance-type", "local", "--nodes", "1", "--gpus-per-node", "4")) == 0
    text = capsys.readouterr().out
    assert "Fastest: 1 x local (fitted, extrapolated, 4 GPUs) in 24 min." in text
    assert "USD" not in text


def test_a_module_and_the_arguments_say_which_runs_count(capsys: Capture) -> None:
    ran("slow", 7200.0, settings={"script": "-m package.train", "args": ["--lr=1"]})
    ran("fast", 3600.0, settings={"script": "-m package.train", "args": ["--lr=0.1"]})
    words = ["-m", "package.train", "--from-run", "runs", "--nodes", "1"]

    assert "different arguments: --lr=0.1, or --lr=1; name those of one after --" in refusal(capsys, *words)
    assert main([*words, "--json", "--", "--lr=1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["script"], found["candidates"][0]["hours"]) == ("-m package.train --lr=1", 2.0)
    assert "no run of -m package.train there has the arguments --lr=2; they have" in refusal(
        capsys, *words, "--", "--lr=2"
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--epochs", "3"], "--epochs is a setting of our trainer, which --script replaces"),
        (["--data-dir", "x"], "--data-dir is a setting of our trainer"),
        (
            ["--images", "3"],
            "--images is for forecasts of our trainer; that of a script rests on the times",
        ),
        (["--no-ebs"], "--ebs is for forecasts of our trainer"),
        (["-m", "package"], "--script and --module both name what to forecast"),
        (["--instance-type", "g5.2xlrge"], "unknown instance type 'g5.2xlrge'; did you mean 'g5.2xlarge'?"),
        (["--script", "other.py"], "runs has no run of other.py; its runs are of train.py: name one of these."),
        (["--from-run", "nowhere"], "there is no folder nowhere"),
    ],
)
def test_what_means_nothing_for_a_script_is_refused_in_a_sentence(
    words: list[str], sentence: str, capsys: Capture
) -> None:
    ran("one", 3600.0)

    assert sentence in refusal(capsys, *command_line(*words))


REFUSED = {
    "no runs": (["--script", "train.py"], "\nscript: train.py\ngrid: {instance_type: [g5.2xlarge], nodes: [1, 2]}\n"),
    "arguments alone": (["--", "--lr=1"], "-- is followed by a script's arguments"),
    "too many GPUs": (
        command_line("--gpus-per-node", "2", "--nodes", "1", "--from-run", "one"),
        "it has 1 GPUs, not 2",
    ),
    "a bare run folder": (
        command_line("--from-run", "bare"),
        "bare has no run of a script that says on what machines it ran",
    ),
    "no time": (command_line("--from-run", "untimed"), "one is done, and recorded no pace"),
}


@pytest.mark.parametrize(("words", "named"), REFUSED.values(), ids=REFUSED)
def test_runs_with_too_little_data_are_refused(words: list[str], named: str, capsys: Capture) -> None:
    Path("bare/mine").mkdir(parents=True)
    Path("bare/mine/metrics.jsonl").write_text('{"step": 1}\n')
    ran("one", None)
    Path("runs").rename("untimed")
    ran("one", 3600.0)
    Path("runs").rename("one")

    assert named in refusal(capsys, *words)


def test_runs_that_differ_in_more_than_gpus_are_not_mixed(capsys: Capture) -> None:
    for name, efa in (("a", True), ("b", False)):
        ran(name, 3600.0, options={"nodes": 2, "instance_type": ["p4d.24xlarge"], "nproc_per_node": None, "efa": efa})

    assert "a and b, both on p4d.24xlarge, differ in efa (True and False)" in refusal(capsys, *command_line())
