"""infra/examples/gpt: it learns, is stopped and started again at the same weights, and needs no launcher."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.examples.loading import load
from trainer import kit

gpt = load("gpt")

TINY = ("--width", "16", "--layers", "1", "--context", "16", "--batch-size", "4")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The run folder of a launched script."""
    monkeypatch.setenv("DDP_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(kit, "should_stop", lambda: False)  # it would listen for signals of the tests
    return tmp_path / "run"


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Those of the newest checkpoint."""
    path = max((folder / "checkpoints").glob("step-*"))
    return torch.load(path, weights_only=True)["model"]


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert [name for name in found if not torch.equal(found[name], expected[name])] == []


def test_it_learns(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpt.main(["--steps", "60", "--every", "30", *TINY])

    lines = [line for line in capsys.readouterr().out.splitlines() if "held_loss" in line]
    first, last = (float(line.rpartition("=")[2]) for line in lines)
    assert [line.split()[1] for line in lines] == ["step=30", "step=60"]
    assert last < first - 0.1


class Killed(BaseException):
    """Instead of SIGKILL, which would end the tests as well."""


def test_killed_and_started_again_it_ends_with_the_weights_of_an_unbroken_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--steps", "14", "--every", "4", *TINY]
    gpt.main(words)
    unbroken = weights(folder)
    monkeypatch.setenv("DDP_RUN_DIR", str(tmp_path / "broken"))

    def metric(step: int, **_: object) -> None:
        seen.append(step)
        if seen == [4, 5, 8, 10]:
            raise Killed

    seen: list[int] = []
    monkeypatch.setattr(kit, "metric", metric)
    with pytest.raises(Killed):
        gpt.main(words)
    gpt.main(words)

    assert seen == [4, 5, 8, 10, 10, 12, 14]  # steps 9 and 10 are done twice
    assert_equal(weights(tmp_path / "broken"), unbroken)


def test_asked_to_leave_it_saves_at_once_and_loses_no_step(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--steps", "9", "--every", "100", *TINY]
    asked = iter([False, False, True])
    monkeypatch.setattr(kit, "should_stop", lambda: next(asked, False))

    with pytest.raises(SystemExit) as left:
        gpt.main(words)

    assert left.value.code == kit.AGAIN
    assert [path.name[:15] for path in (folder / "checkpoints").iterdir()] == ["step-0000000003"]
    gpt.main(words)
    assert max(path.name for path in (folder / "checkpoints").iterdir()).startswith("step-0000000009")


def test_without_a_launcher_it_trains_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DDP_RUN_DIR", raising=False)
    monkeypatch.chdir(tmp_path)

    gpt.main(["--steps", "3", "--every", "1", *TINY])

    assert list(tmp_path.iterdir()) == []


def test_every_rank_gets_texts_of_its_own_which_depend_on_the_step_alone() -> None:
    args = gpt.settings(TINY)
    letters = torch.arange(250, dtype=torch.uint8)

    parts = [gpt.batch(letters, step, args, rank, 2) for step in (0, 1) for rank in (0, 1)]

    assert len({tuple(part.flatten().tolist()) for part in parts}) == 4
    assert torch.equal(parts[3], gpt.batch(letters, 1, args, 1, 2))
