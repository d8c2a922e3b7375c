"""What a rehearsal says at its end."""

from launch.rehearse.receipt import kinds, spans


def test_a_phase_lasts_until_the_next_that_began() -> None:
    assert spans([0.0, 2.0, 5.0], end=9.0) == [2.0, 3.0, 4.0]


def test_a_phase_that_never_began_took_no_time() -> None:
    assert spans([0.0, None, 5.0, None], end=9.0) == [5.0, 0.0, 4.0, 0.0]


def test_resources_are_counted_by_kind() -> None:
    assert kinds({"instance i-1", "instance i-2", "security group sg-1"}) == {"instance": 2, "security group": 1}
