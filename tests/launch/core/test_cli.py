"""What all launchers do with a command line, shown on one that only records its calls."""

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pytest
from pydantic import BaseModel, Field

from launch.core.backend import Backend, Place
from launch.core.cli import Launcher, main
from launch.core.job import Job
from launch.core.quote import Quote
from launch.core.terminal import approve, confirm, may_detach
from launch.rehearse.backend import RehearsedJob
from trainer.errors import MachineError, SettingsError
from trainer.outcome import Outcome, read


class Where(BaseModel):
    rooms: int = Field(1, ge=1, description="how many rooms")
    max_usd: float | None = Field(None, description="the most")


def shown(plan: str, form: bool | str) -> str:
    return json.dumps(plan) if form == "json" else plan.upper()


@dataclass
class Recorder:
    """A backend that records the plans it performs and the questions to the user."""

    performed: list[str] = field(default_factory=list)
    quotes: tuple[Quote, ...] = ()
    asked: list[str] = field(default_factory=list)

    def plan(self, job: Job[Where]) -> str:
        return f"{job.train.epochs} epochs in {job.where.rooms} rooms"

    def perform(self, plan: str) -> Outcome:
        self.performed.append(plan)
        return Outcome("interrupted", 75, usd=1.5)

    def launch(self, *argv: str, rehearsal: str = "") -> int:
        backend = Backend("recorder", "records calls", Where, place=lambda wanted: Place({}, 1), rehearsal=rehearsal)
        launcher = Launcher(
            backend, "Records calls.", plan=self.plan, show=shown, perform=self.perform, brief=str.title,
            quotes=lambda plan: self.quotes, approve=self.asked.append,
        )  # fmt: skip
        return main(launcher, argv)


def test_a_job_is_planned_and_performed_and_its_exit_code_is_ours() -> None:
    recorder = Recorder()

    assert recorder.launch("--rooms", "2", "--epochs", "3") == 75
    assert recorder.performed == ["3 epochs in 2 rooms"]


PRICED = (Quote("big", usd_per_hour=2.0, estimate_s=900, most_usd=4.0), Quote("bigger", most_usd=8.0))


def test_what_costs_money_needs_a_confirmation_with_its_price() -> None:
    recorder = Recorder(quotes=PRICED)

    assert recorder.launch("--epochs", "3") == 75
    assert recorder.asked == ["start it, for about 0.50 USD, at most 8.00 USD"]
    assert len(recorder.performed) == 1


@pytest.mark.parametrize("answer", [["--yes"], ["--max-usd", "9"], ["--dry-run"]])
def test_a_flag_answers_the_question(answer: list[str]) -> None:
    recorder = Recorder(quotes=PRICED)
    recorder.launch(*answer)
    assert recorder.asked == []


def test_what_costs_nothing_needs_no_confirmation() -> None:
    recorder = Recorder()
    assert (recorder.launch(), recorder.asked) == (75, [])


def test_without_a_terminal_what_costs_money_needs_a_flag(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    recorder = Recorder(quotes=PRICED)
    monkeypatch.setattr(recorder, "asked", mock.Mock(append=approve))

    assert recorder.launch() == 2
    assert recorder.performed == []
    assert {"--yes", "--max-usd"} <= set(re.findall(r"--[a-z-]+", capsys.readouterr().err))


def test_a_dry_run_shows_the_same_plan_and_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder()

    assert recorder.launch("--rooms", "2", "--epochs", "3", "--dry-run") == 0
    assert recorder.performed == []
    command = "python -m launch.recorder --rooms 2 --epochs 3"
    assert capsys.readouterr().out == f"3 EPOCHS IN 2 ROOMS\n\nto start it:\n  {command}\n"

    assert recorder.launch("--rooms", "2", "--epochs", "3", "--dry-run=json") == 0
    assert capsys.readouterr().out == '"3 epochs in 2 rooms"\n'


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["--room", "2"], "unknown flag --room; did you mean --rooms?"),
        (["--epoch", "2"], "unknown flag --epoch; did you mean --epochs?"),
        (["--script", "t.py", "--epoch", "2"], "unknown flag --epoch. "),  # no trainer, no --epochs
        (["-m", "t", "--run-di", "2"], "unknown flag --run-di; did you mean --run-dir?"),
        (["--rooms", "0"], "--rooms 0: "),
        (["--warmup-epochs", "9"], "--warmup-epochs 9 "),
    ],
)
def test_a_mistake_ends_with_2_and_a_sentence_before_anything_happens(
    argv: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = Recorder()

    assert recorder.launch(*argv) == 2
    assert recorder.performed == []
    out, err = capsys.readouterr()
    assert (out, err.startswith(f"error: {named}"), err.count("\n")) == ("", True, 1)


def test_how_a_run_ended_is_written_for_programs(tmp_path: Path) -> None:
    assert Recorder().launch("--outcome", str(tmp_path / "new")) == 75

    outcome = read(tmp_path / "new")
    assert outcome is not None
    assert (outcome.state, outcome.exit_code, outcome.usd) == ("interrupted", 75, 1.5)
    assert outcome.seconds is not None
    assert outcome.ended.endswith("Z")


def test_a_failure_is_a_sentence_and_written_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(Recorder):
        def perform(self, plan: str) -> Outcome:
            raise MachineError("the disk is full.")

    assert Broken().launch("--outcome", str(tmp_path)) == 6

    outcome = read(tmp_path)
    assert outcome is not None
    assert (outcome.state, outcome.exit_code, outcome.reason) == ("failed", 6, "the disk is full.")
    assert capsys.readouterr().err == "error: the disk is full.\n"


@pytest.mark.parametrize(
    ("error", "code", "state"), [(KeyboardInterrupt(), 130, "stopped"), (ZeroDivisionError("x"), 1, "failed")]
)
def test_an_earlier_outcome_never_stands_for_this_run(
    error: BaseException, code: int, state: str, tmp_path: Path
) -> None:
    class Ends(Recorder):
        def perform(self, plan: str) -> Outcome:
            assert read(tmp_path) is None
            raise error

    Outcome("done", 0).write(tmp_path)
    with suppress(ZeroDivisionError):
        assert Ends().launch("--outcome", str(tmp_path)) == code

    outcome = read(tmp_path)
    assert outcome is not None
    assert (outcome.state, outcome.exit_code) == (state, code)


def test_an_outcome_that_cannot_be_written_is_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    recorder = Recorder()

    assert recorder.launch("--outcome", str(tmp_path / "file" / "folder")) == 2
    assert recorder.performed == []
    assert "give another folder" in capsys.readouterr().err


@pytest.mark.parametrize(("answer", "detaches"), [("detach", True), (" D", True), ("stop", False), ("", False)])
def test_ctrl_c_stops_the_job_unless_the_user_detaches(
    answer: str, detaches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda question: answer)
    assert may_detach() is detaches


@pytest.mark.parametrize("error", [KeyboardInterrupt(), EOFError(), UnicodeDecodeError("utf-8", b"", 0, 1, "")])
def test_who_does_not_answer_leaves_no_job_running(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(question: str) -> str:
        raise error

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", fail)
    assert not may_detach()


@pytest.mark.parametrize("stream", ["stdin", "stdout", "stderr", ""])
def test_without_a_terminal_or_with_a_closed_stream_there_is_no_question(
    stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job is stopped then, and what needs a confirmation names the flag."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: bool(stream))
    if stream:
        monkeypatch.setattr(f"sys.{stream}", None)  # as Python has it after `2>&-`
    assert not may_detach()
    with pytest.raises(SettingsError, match=r"^this removes it; add --yes to confirm"):
        confirm("this removes it")


# ---- questions


@pytest.mark.parametrize(("answer", "is_meant"), [("yes", True), (" Y ", True), ("no", False), ("", False)])
def test_what_would_be_lost_needs_a_confirmation(monkeypatch: pytest.MonkeyPatch, answer: str, is_meant: bool) -> None:
    asked = list[str]()

    def reply(question: str) -> str:
        asked.append(question)
        return answer

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", reply)
    if is_meant:
        confirm("this deletes it")
    else:
        with pytest.raises(SettingsError, match=r"^not confirmed; nothing was changed.  Answer yes, or add --yes"):
            confirm("this deletes it")
    assert asked == ["\nthis deletes it.  Continue? [yes/no] "]


def test_a_rehearsal_says_no_batch_size_where_a_global_one_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[RehearsedJob] = []
    monkeypatch.setattr("launch.rehearse.rehearsal.rehearse", lambda asked, is_terminal: played.append(asked) or 0)
    assert Recorder().launch("--rehearse", "--global-batch-size", "64", rehearsal="a:b") == 0
    assert Recorder().launch("--rehearse", rehearsal="a:b") == 0

    assert ["--batch-size" in asked.argv for asked in played] == [False, True]
