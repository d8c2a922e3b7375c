"""The table of a sweep's runs, whatever their records hold."""

from pathlib import Path
from typing import Any

import pytest

from launch.core.runs import Run
from launch.sweep import table


@pytest.mark.parametrize("odd", ["x", [1], float("nan")])
def test_what_is_no_number_ends_no_sweep(odd: Any, tmp_path: Path) -> None:
    good = {"epoch": 1, "epoch_s": 2.0, "eval_top1": 0.5, "peak_memory_mib": 100, "train_loss": 1, "images_per_s": 9.0}
    bad = dict.fromkeys(("eval_top1", "peak_memory_mib", "train_loss", "images_per_s"), odd)
    run = Run("a", tmp_path, {"model": "cnn"}, (good, {**good, "epoch": 2, **bad}))

    assert table.outcome(run).startswith("done after")
    assert "a    done" in table.closing_table([run])
    table.write_csv([run], tmp_path)
    assert str(odd) not in (tmp_path / table.CSV).read_text().splitlines()[1].split(",")
