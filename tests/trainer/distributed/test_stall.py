"""A training that stands still says where, soon and once."""

import io
import re
import sys
import threading
import time

from tests.trainer.ranks_here import on_ranks
from trainer.distributed import stall
from trainer.distributed.session import Session
from trainer.distributed.stall import FIRST, Pace, Place, StallWatch, watched


def pace(*times: float, at_least_s: float = 30.0) -> Pace:
    """After batches at these times."""
    made = Pace(at_least_s)
    for now in times:
        made.step(now)
    return made


def test_a_stall_is_many_times_the_usual_and_never_less_than_the_setting() -> None:
    quick = pace(*(0.1 * number for number in range(20)))
    slow = pace(*(10.0 * number for number in range(20)))
    assert (quick.limit_s, slow.limit_s) == (30, 200)
    assert not quick.is_stalled(1.9 + 29.9)
    assert quick.is_stalled(1.9 + 30.1)
    assert not slow.is_stalled(190 + 199)
    assert slow.is_stalled(190 + 201)


def test_the_first_batches_may_take_as_long_as_they_like() -> None:
    assert not pace(0, 1, 2, 3).is_stalled(1e6)
    assert pace(*range(FIRST + 1)).is_stalled(1e6)


def test_an_evaluation_is_no_stall() -> None:
    made = pace(*range(10))
    made.rest()
    assert not made.is_stalled(1e6)
    made.step(1e6)
    assert made.usual_s == 1  # the evaluation is no batch


def stand_still_here(until: threading.Event) -> None:
    until.wait(20)


def test_a_process_that_stands_still_shows_where_and_says_when_it_goes_on() -> None:
    said, shown, over = list[str](), threading.Event(), threading.Event()

    def say(text: str) -> None:
        said.append(text)
        (over if "continues" in text else shown).set()

    watch = StallWatch(0.3, Place(0, 1), say)
    for _ in range(FIRST + 1):
        watch.step()
    stand_still_here(shown)
    watch.step()
    watch.rest()
    assert over.wait(20)
    watch.stop()

    assert len(said) == 2
    first, *stack = said[0].splitlines()
    assert re.fullmatch(
        r"warning: rank 0 of 1: no new batch for \d s, where one usually takes .* s; it is here:", first
    )
    assert any("test_stall.py" in line and "in stand_still_here: until.wait(20)" in line for line in stack[:6])
    assert said[1] == "rank 0 of 1 continues.\n"


def ranks_that_hang(session: Session) -> str:
    """What this rank writes; rank 1 hangs on its way to a batch that the others have."""
    written = sys.stderr = io.StringIO()
    stall.LOOK_EVERY_S = 0.2
    place = Place(session.ranks.rank, 3, lambda: {0: 9, 1: 8, 2: 9})
    with watched(0.5, place) as watch:
        assert watch is not None
        for _ in range(FIRST + 1):
            watch.step()
        session.barrier()
        time.sleep(1.5)
    return written.getvalue()


def test_of_several_ranks_the_one_behind_shows_its_stack_and_one_names_it() -> None:
    names, shows, waits = on_ranks(3, ranks_that_hang)

    assert "rank 1 of 3 fell behind the others, which wait." in names
    assert names.count("\n") <= 2
    assert "warning: rank 1 of 3: no new batch for " in shows
    assert "in ranks_that_hang" in shows
    assert waits == ""
