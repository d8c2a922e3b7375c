"""What happens to images that cannot be read: skipped up to a limit, then named."""

from collections.abc import Sequence

from trainer.errors import DataError

SHOWN = 5


class UnreadableError(Exception):
    """This file is not an image, or a damaged one."""


def refuse_too_many(names: Sequence[str], limit: int) -> None:
    """Raises DataError naming the first of `names` when there are more than `limit`."""
    if len(names) <= limit:
        return
    shown = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
    images = "1 image" if len(names) == 1 else f"{len(names)} images"
    raise DataError(
        f"{images} could not be read ({limit} allowed): {shown}; "
        f"replace or delete them, or skip them with --max-bad-images {len(names)}."
    )
