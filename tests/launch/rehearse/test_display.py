"""What a rehearsal shows: on a terminal, whose screen is read here, and in a log."""

import io
import re

import pyte
import pytest

from launch.rehearse.display import Display, console_for
from tests.launch.rehearse.fake_backend import FakeBackend

FIRST, SECOND = "i-4a579d6d2ee1191b1", "i-3d9be81a6cc485bb6"
SHUT_DOWN = "Client.InstanceInitiatedShutdown"
LONG = "[0] warning: " + "take a smaller batch, --batch-ramp (such as 0:512,2:2048) or more --epochs;"


def play(display: Display, backend: FakeBackend) -> None:
    """A rehearsal in which a node dies."""
    display.note("an AWS in this process")
    display.launcher_line("start 2 nodes, all or none")
    first, second = backend.start(FIRST), backend.start(SECOND, address="172.31.0.5")
    backend.places = {FIRST: 0, SECOND: 1}
    display.update()
    first.state = second.state = "trains"
    display.update()
    backend.train(1)
    display.update()
    display.launcher_line("[0] epoch 1/5  loss 1.5000  accuracy 41.1%")
    display.launcher_line(LONG)
    second.state, second.how = "off", "Server.InternalError"
    display.update()
    first.state, first.how = "off", SHUT_DOWN
    display.close()
    display.note("the end")


def display_on(backend: FakeBackend, size: tuple[int, int] | None, **env: str) -> Display:
    """A display on a terminal of so many columns and lines; None: in a log."""
    columns, lines = size or (80, 24)
    console = console_for({"COLUMNS": str(columns), "LINES": str(lines), "TERM": "xterm", **env}, size is not None)
    return Display(backend.as_backend, 5, console)


def on_screen(capsys: pytest.CaptureFixture[str], size: tuple[int, int], **env: str) -> tuple[pyte.Screen, str]:
    """The screen at the end, and what was written."""
    backend = FakeBackend()
    play(display_on(backend, size, **env), backend)
    written = capsys.readouterr().out
    screen = pyte.Screen(*size)
    pyte.Stream(screen).feed(written.replace("\n", "\r\n"))
    return screen, written


def rows(screen: pyte.Screen) -> list[str]:
    return [re.sub(r"^ *\d+\.\d s", "T", row.rstrip()) for row in screen.display if row.strip()]


def test_a_wide_terminal_ends_with_the_whole_table(capsys: pytest.CaptureFixture[str]) -> None:
    screen, _ = on_screen(capsys, (140, 30))

    assert rows(screen) == [
        "T  an AWS in this process",
        "T  | start 2 nodes, all or none",
        "T  epoch 1/5: loss 1.5000, eval accuracy 75.0%, 1,234 images/s",
        "T  | [0] warning: take a smaller batch, --batch-ramp (such as 0:512,2:2048) or more --epochs;",
        "  node                 state  rank  epoch  loss    images/s  address     time  end",
        f"  i-4a579d6d2ee1191b1  off    0     1/5    1.5000  1,234     172.31.0.4  3 s   {SHUT_DOWN}",
        "  i-3d9be81a6cc485bb6  off    1     1/5    1.5000  1,234     172.31.0.5  3 s   Server.InternalError",
        "T  the end",
    ]


NARROW_TABLES = {
    80: [
        "  node        state  rank  epoch  loss    images/s  address     time",
        "  i-4a579d6d  off    0     1/5    1.5000  1,234     172.31.0.4  3 s",
        "  i-3d9be81a  off    1     1/5    1.5000  1,234     172.31.0.5  3 s",
    ],
    60: [
        "  node        state  rank  epoch  loss    images/s  time",
        "  i-4a579d6d  off    0     1/5    1.5000  1,234     3 s",
        "  i-3d9be81a  off    1     1/5    1.5000  1,234     3 s",
    ],
    40: [
        "  node        state  rank  epoch  loss",
        "  i-4a579d6d  off    0     1/5    1.5000",
        "  i-3d9be81a  off    1     1/5    1.5000",
    ],
}


@pytest.mark.parametrize("columns", NARROW_TABLES)
def test_a_narrow_terminal_has_a_table_that_fits(columns: int, capsys: pytest.CaptureFixture[str]) -> None:
    screen, _ = on_screen(capsys, (columns, 24))

    assert [row for row in rows(screen) if row.startswith("  ") and "--" not in row][-3:] == NARROW_TABLES[columns]
    assert sum("i-4a579d6d" in row for row in rows(screen)) == 1  # each table takes the place of the one before


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_are_for_terminals_that_want_them(env: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    _, written = on_screen(capsys, (80, 24))
    _, plain = on_screen(capsys, (80, 24), **env)

    assert "\x1b[32mtrains" in written
    assert re.findall(r"\x1b\[[\d;]+m", plain) == []


def test_a_rehearsal_that_is_killed_leaves_the_cursor_visible(capsys: pytest.CaptureFixture[str]) -> None:
    backend = FakeBackend()
    display_on(backend, (80, 24)).note("still running")

    written = capsys.readouterr().out
    assert written.rfind("\x1b[?25h") > written.rfind("\x1b[?25l")


def test_a_closed_pipe_does_not_end_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr("sys.stdout", Closed())
    backend = FakeBackend()
    display = display_on(backend, None)

    play(display, backend)

    assert len(display.recorder.lines) == 11


def test_a_log_has_a_line_for_each_change_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    backend = FakeBackend()

    play(display_on(backend, None), backend)

    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert [re.sub(r"^ *\d+\.\d s", "T", line) for line in said.splitlines()] == [
        "T  an AWS in this process",
        "T  | start 2 nodes, all or none",
        f"T  node {FIRST}, rank 0 at 172.31.0.4: boots",
        f"T  node {SECOND}, rank 1 at 172.31.0.5: boots",
        f"T  node {FIRST}, rank 0: trains",
        f"T  node {SECOND}, rank 1: trains",
        "T  epoch 1/5: loss 1.5000, eval accuracy 75.0%, 1,234 images/s",
        f"T  | {LONG}",
        f"T  node {SECOND}, rank 1: off, Server.InternalError",
        f"T  node {FIRST}, rank 0: off, {SHUT_DOWN}",
        "T  the end",
    ]


def test_more_nodes_than_rows_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    backend = FakeBackend()
    display = display_on(backend, (80, 10))
    for number in range(12):
        backend.start(f"i-{number:017x}").state = "off" if number < 3 else "trains"

    display.update()

    shown = capsys.readouterr().out
    assert shown.count("trains") == 5
    assert "  and 7 more" in shown


@pytest.mark.parametrize("size", [None, (80, 24)])
def test_no_line_of_the_launchers_or_the_trainings_moves_the_terminal(
    size: tuple[int, int] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    display = display_on(FakeBackend(), size)
    display.launcher_line("job \x1b]0;title\x07\x9b2J\u202e failed")
    display.close()
    display.text("receipt of \x1b[2J")
    shown = capsys.readouterr().out
    assert not re.search(r"\x1b\]0;|\x9b|\u202e|\x1b\[2J", shown)
    assert "\\x1b]0;title\\x07" in shown
