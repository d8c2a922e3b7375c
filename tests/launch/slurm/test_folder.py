"""A job's log is read as far as it can be shown."""

import os
from pathlib import Path

from launch.slurm.follow import MOST_SHOWN, FileTail
from launch.slurm.names import LOG
from tests.launch.slurm.jobs import left


def test_of_a_log_without_end_the_last_is_shown_and_no_more_is_read(tmp_path: Path) -> None:
    log = left(tmp_path / "job") / LOG
    with log.open("wb") as file:
        file.truncate(10**13)
        file.seek(0, os.SEEK_END)
        file.write(b"\nits end\n")

    tail = FileTail(log)
    first, *_, last = tail.new_lines(to_end=True)

    assert (first, last) == (f"{10**13 + 9 - MOST_SHOWN:,} bytes are not shown; they are in {log}", "its end")
    assert tail.new_lines(to_end=True) == []
