"""What a rehearsal shows: on a terminal, whose screen is read here, and in a log."""

import os
import re

import pyte
import pytest

from launch.rehearse.stage.display import Display, fitted
from tests.launch.rehearse.stand_in import StandIn

FIRST, SECOND = "i-4a579d6d2ee1191b1", "i-3d9be81a6cc485bb6"
SHUT_DOWN = "Client.InstanceInitiatedShutdown"
LONG = "[0] warning: " + "take a smaller batch, --batch-ramp (such as 0:512,2:2048) or more --epochs;"


def play(display: Display, scene: StandIn) -> None:
    """A rehearsal in which a node dies."""
    display.note("an AWS in this process")
    display.line("start 2 nodes, all or none")
    first, second = scene.start(FIRST), scene.start(SECOND, address="172.31.0.5")
    scene.places = {FIRST: 0, SECOND: 1}
    display.look()
    first.state = second.state = "trains"
    display.look()
    scene.train(1)
    display.look()
    display.line("[0] epoch 1/5  loss 1.5000  accuracy 41.1%")
    display.line(LONG)
    second.state, second.how = "off", "Server.InternalError"
    display.look()
    first.state, first.how = "off", SHUT_DOWN
    display.close()
    display.note("the end")


def on_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], has_colours: bool = True
) -> tuple[pyte.Screen, str]:
    """The screen at the end, and what was written."""
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size(size))
    scene = StandIn()
    play(Display(scene.as_scene, 5, is_terminal=True, has_colours=has_colours), scene)
    written = capsys.readouterr().out
    screen = pyte.Screen(*size)
    pyte.Stream(screen).feed(written.replace("\n", "\r\n"))
    return screen, written


def rows(screen: pyte.Screen) -> list[str]:
    return [re.sub(r"^ *\d+\.\d s", "T", row.rstrip()) for row in screen.display if row.strip()]


def test_a_wide_terminal_ends_with_the_whole_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen, _ = on_screen(capsys, monkeypatch, (140, 30))

    assert rows(screen) == [
        "T  an AWS in this process",
        "T  | start 2 nodes, all or none",
        "T  epoch 1/5: loss 1.5000, test accuracy 75.0%, 1,234 images/s",
        "T  | [0] warning: take a smaller batch, --batch-ramp (such as 0:512,2:2048) or more --epochs;",
        "  node                 state  rank  epoch  loss    images/s  address     time  end",
        f"  i-4a579d6d2ee1191b1  off    0     1/5    1.5000  1,234     172.31.0.4  3 s   {SHUT_DOWN}",
        "  i-3d9be81a6cc485bb6  off    1     1/5    1.5000  1,234     172.31.0.5  3 s   Server.InternalError",
        "T  the end",
    ]


def test_on_80_columns_nothing_is_broken(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    screen, _ = on_screen(capsys, monkeypatch, (80, 24))

    assert rows(screen)[3:] == [
        "T  | [0] warning: take a smaller batch, --batch-ramp (such as",
        "            0:512,2:2048) or more --epochs;",
        "  node        state  rank  epoch  loss    images/s  address     time",
        "  i-4a579d6d  off    0     1/5    1.5000  1,234     172.31.0.4  3 s",
        "  i-3d9be81a  off    1     1/5    1.5000  1,234     172.31.0.5  3 s",
        "T  the end",
    ]
    assert sum("i-4a579d6d" in row for row in rows(screen)) == 1  # each table takes the place of the one before


def test_colours_are_for_terminals_that_want_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    coloured, written = on_screen(capsys, monkeypatch, (80, 24))
    plain, without = on_screen(capsys, monkeypatch, (80, 24), has_colours=False)

    assert "\x1b[32mtrains\x1b[0m" in written
    assert re.findall(r"\x1b\[[\d;]*m", without) == []
    assert rows(coloured) == rows(plain)


def test_a_log_has_a_line_for_each_change_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    scene = StandIn()

    play(Display(scene.as_scene, 5, is_terminal=False), scene)

    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert [re.sub(r"^ *\d+\.\d s", "T", line) for line in said.splitlines()] == [
        "T  an AWS in this process",
        "T  | start 2 nodes, all or none",
        f"T  node {FIRST}, rank 0 at 172.31.0.4: boots",
        f"T  node {SECOND}, rank 1 at 172.31.0.5: boots",
        f"T  node {FIRST}, rank 0: trains",
        f"T  node {SECOND}, rank 1: trains",
        "T  epoch 1/5: loss 1.5000, test accuracy 75.0%, 1,234 images/s",
        f"T  | {LONG}",
        f"T  node {SECOND}, rank 1: off, Server.InternalError",
        f"T  node {FIRST}, rank 0: off, {SHUT_DOWN}",
        "T  the end",
    ]


def test_more_nodes_than_rows_are_counted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((80, 10)))
    scene = StandIn()
    display = Display(scene.as_scene, 5, is_terminal=True)
    for number in range(12):
        scene.start(f"i-{number:017x}").state = "off" if number < 3 else "trains"

    display.look()

    shown = capsys.readouterr().out
    assert shown.count("trains") == 5
    assert shown.endswith("  and 7 more\n")


def test_names_that_are_alike_are_not_shortened() -> None:
    row = ("trains", "0", "1/5", "1.5", "1,234", "172.31.0.4", "3 s", "")

    found = fitted([("algorithm-1", *row), ("algorithm-2", *row)], 40)

    assert all(len(line) <= 40 for line in found)
    assert "algorithm-1" in found[1]
    assert "algorithm-2" in found[2]
