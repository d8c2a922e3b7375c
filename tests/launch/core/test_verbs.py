"""What a command tells the shell."""

import pytest

from launch.core.verbs import coded
from trainer.contract import Exit


@pytest.mark.parametrize("code", [256, -256, 2**31])
def test_no_exit_code_that_others_wrote_is_one_that_a_shell_takes_for_success(code: int) -> None:
    """Of a process's exit code a shell sees the last eight bits."""
    assert coded(lambda: code) == Exit.BUG


@pytest.mark.parametrize("code", [0, 3, 143, 255])
def test_every_other_is_told_as_it_is(code: int) -> None:
    assert coded(lambda: code) == code
