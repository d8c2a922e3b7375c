"""How often the values of a pickle stand in each other, told from its steps without following them.  Torch-free."""

import pickletools  # nosec B403  # which only lists the steps of a pickle
from collections.abc import Iterator
from typing import IO

MOST_VALUES = 2**22  # in all, and in one that is part of others; a large model's state has a hundred thousand
_GETS, _PUTS = ("GET", "BINGET", "LONG_BINGET"), ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE")


def check_tuples(stream: IO[bytes]) -> None:
    """Raises ValueError for a value of more than MOST_VALUES, each counted as often as it stands there.

    Where a tuple is the key of a dictionary, Python goes over all of them.
    """
    stack, remembered = list[int | None](), dict[int, int | None]()  # values in each; None: a mark
    for step, at, _ in pickletools.genops(stream):
        if step.name in _PUTS:
            remembered[len(remembered) if at is None else int(at)] = stack[-1]
        elif step.name in _GETS:
            stack.append(remembered[int(at or 0)])
        else:
            count = 1 + sum(_taken(step, stack))
            if count > MOST_VALUES:
                raise ValueError("values that stand in each other too often")
            stack.extend(None if one is pickletools.markobject else count for one in step.stack_after)


def _taken(step: pickletools.OpcodeInfo, stack: list[int | None]) -> Iterator[int]:
    """What a step takes from the stack."""
    left = len(step.stack_before)
    if pickletools.markobject in step.stack_before:
        left -= 2  # the mark, and all that is above it
        while (top := stack.pop()) is not None:
            yield top
    for _ in range(left):
        yield stack.pop() or 0
