"""A rank that is stopped and continued trains on, and reports nothing: Ctrl-Z, `docker pause`, `scontrol suspend`."""

import pytest

from tests.bench.stops import Seen, try_stops


@pytest.mark.slow("a rank that is stopped and continued trains on and reports nothing")
@pytest.mark.parametrize(("ranks", "stop_s"), [(2, 3.0), (1, 13.0)])
def test_a_rank_that_is_stopped_and_continued_trains_on(ranks: int, stop_s: float) -> None:
    assert try_stops(1, ranks, stop_s) == Seen(stops=1, deaths=0, reports=0)
