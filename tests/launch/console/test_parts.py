"""The parts of the console: answers that are shared, windows of logs, timelines, and commands that go on."""

import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from launch.api import Client
from launch.console import logs
from launch.console.actions import Actions
from launch.console.jobs import row_of, timeline
from launch.console.logs import Buffer, Buffers, log_of_files
from launch.console.world import Cache, Place, World
from launch.core.errors import AwsError
from launch.core.jobs import Line, Log, Summary, phases_of
from trainer.errors import SettingsError

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_two_tabs_ask_once() -> None:
    asked, cache = list[int](), Cache()

    def ask() -> int:
        time.sleep(0.05)
        asked.append(1)
        return 7

    answers = list[int]()
    tabs = [threading.Thread(target=lambda: answers.append(cache.get("jobs", ask, 60))) for _ in range(5)]
    for tab in tabs:
        tab.start()
    for tab in tabs:
        tab.join()
    assert (asked, answers) == ([1], [7] * 5)


def test_a_slow_answer_and_an_error_are_kept_as_well() -> None:
    moments, asked = iter([0.0, 10.0, 39.0, 41.0, 41.0, 42.0]), list[str]()
    cache = Cache(lambda: next(moments))

    def ask() -> str:
        asked.append("")
        raise AwsError("AWS does not answer.", "", "x")

    for _ in range(3):  # at 0 s, which takes 10 s and holds for 30 s; at 39 s; and at 41 s
        with pytest.raises(AwsError):
            cache.get("jobs", ask, 5)
    assert len(asked) == 2


def test_a_slow_region_holds_up_no_other_and_its_last_answer_stays() -> None:
    world, far = World((Client("launch.ec2"),), ("near", "far"), cache=Cache(patience_s=0.05)), threading.Event()

    def ask(place: Place) -> tuple[list[str], str]:
        if place.region == "far":
            far.wait(10)
        return [str(place.region)], ""

    assert world.everywhere("status", ask, 0) == (["near"], ["launch.ec2 in far: no answer yet"], True)
    far.set()
    until = time.monotonic() + 10
    while world.everywhere("status", ask, 0)[2] and time.monotonic() < until:
        time.sleep(0.01)
    far.clear()
    try:
        assert world.everywhere("status", ask, 0) == (["near", "far"], [], False)
    finally:
        far.set()


def test_a_shown_command_stays_one_command_whatever_a_job_is_named() -> None:
    place = Place(Client("launch.ec2"), "us-east-1")
    assert place.command("stop", "x; reboot") == "python -m launch.ec2 stop 'x; reboot' --region us-east-1"


def test_a_log_that_is_being_opened_holds_up_no_other() -> None:
    buffers, opens, opening, opened = Buffers(), threading.Event(), threading.Event(), list[Buffer]()

    def slow() -> Log:
        opening.set()
        opens.wait(10)
        return log_of_files([], is_running=True)

    def quick() -> None:
        opened.append(buffers.get("quick", lambda: log_of_files([], is_running=True)))

    threads = [threading.Thread(target=lambda: buffers.get("slow", slow)), threading.Thread(target=quick)]
    threads[0].start()
    opening.wait(10)
    threads[1].start()
    threads[1].join(5)
    try:
        assert len(opened) == 1
    finally:
        opens.set()
        for thread in threads:
            thread.join()


def test_every_region_is_asked_of_the_backends_that_have_regions() -> None:
    world = World(regions=("us-east-1", "eu-west-1"))

    assert [str(place) for place in world.places("status")] == [
        "launch.ec2 in us-east-1", "launch.ec2 in eu-west-1", "launch.sagemaker in us-east-1",
        "launch.sagemaker in eu-west-1", "launch.slurm",
    ]  # fmt: skip
    assert [str(place) for place in World((Client("launch.slurm"),)).places("leaks")] == []


def test_a_log_is_held_up_to_a_limit_and_shown_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [Line(f"step {number}") for number in range(logs.MOST_LINES + 1000)]
    buffer = Buffer(lambda: Log(True, lambda show: len(list(map(show, lines))), lambda show: "", lambda: "", ""))
    buffer.update()

    newest = buffer.window()
    earlier = buffer.window(before=newest.lines[0][0])
    found = buffer.window("STEP 77777")

    assert [newest.lines[-1][0], newest.lines[-1][3], len(newest.lines)] == [200_999, "step 200999", logs.WINDOW]
    assert (newest.has_earlier, newest.end) == (True, 201_000)
    assert earlier.lines[-1][0] == newest.lines[0][0] - 1
    assert [text for *_, text in found.lines] == ["step 77777"]
    assert buffer.window("step 999 ").lines == []  # the oldest lines are gone
    assert buffer.window(after=200_997).lines[0][0] == 200_998


def test_a_file_that_grows_is_read_on(tmp_path: Path) -> None:
    path, shown = tmp_path / "rank-0.log", list[str]()
    path.write_bytes(b"one\n\xff\n")
    log = log_of_files([path], is_running=True)

    log.show(lambda line: shown.append(line.text))
    with path.open("a") as file:
        file.write("three\n")
    log.show(lambda line: shown.append(line.text))

    assert shown == ["one", "\ufffd", "three"]


def test_a_job_past_its_time_limit_may_cost_any_sum() -> None:
    job = Summary("one", "running", deadline=NOW, usd_per_hour=1.0, usd=2.0)

    found = [row_of("ec2", job, NOW + HOUR * hours).usd_at_most for hours in (-3, -1, 0)]
    assert found == [5.0, 3.0, None]
    assert row_of("ec2", replace(job, status="stopped"), NOW).usd_at_most == 2.0


def test_a_timeline_ends_with_the_job_or_now() -> None:
    began = [("provision", NOW - 2 * HOUR), ("boot", None), ("train", NOW - HOUR)]

    running, done = timeline(phases_of(began, None), NOW), timeline(phases_of(began, NOW + 2 * HOUR), NOW)

    assert [(bar.label, bar.x, bar.width) for bar in running["bars"]] == [("provision", 0, 50), ("train", 50, 50)]
    assert [(bar.label, bar.x, bar.width) for bar in done["bars"]] == [("provision", 0, 25), ("train", 25, 75)]
    assert (running["goes_on"], done["goes_on"]) == (True, False)
    assert timeline((), NOW)["bars"] == []


def test_a_command_goes_on_with_its_output_and_the_same_one_is_not_started_beside_it() -> None:
    actions = Actions()
    words = ["-c", "import sys; print('begins', flush=True); sys.exit(int(bool(sys.stdin.read())))"]
    sleeps = ["-c", "import time; print('sleeps', flush=True); time.sleep(600)"]
    ended, runs = actions.start(words), actions.start(sleeps)
    with pytest.raises(SettingsError, match="still running"):
        actions.start(sleeps)
    until = time.monotonic() + 20
    while (ended.code is None or runs.lines != ["sleeps"]) and time.monotonic() < until:
        time.sleep(0.05)
    try:
        assert (ended.code, ended.lines) == (0, ["begins"])
        assert runs.code is None
        assert actions.close() == [runs]
        assert (ended.output.exists(), runs.output.exists()) == (False, True)
    finally:
        runs.process.send(9)
        runs.process.wait(5)
    assert sys.executable not in runs.command  # it is shown as a user would type it
    actions.close()
    assert not runs.output.parent.exists()
