"""What happens to images that cannot be read: skipped up to a limit, then named."""

from collections.abc import Mapping

from trainer.errors import DataError

SHOWN = 5


class UnreadableError(Exception):
    """This file is not an image that can be used; the text says why in a few words."""


def refuse_none_readable(readable: float, part: str) -> None:
    """Raises DataError where no image of a `part`, such as an epoch of training, could be read."""
    if not readable:
        raise DataError(f"not one image of {part} could be read; lower --max-bad-images to see which, and why.")


def refuse_too_many(bad: Mapping[str, str], limit: int) -> None:
    """Raises DataError with the first names and reasons in `bad` when there are more than `limit`."""
    if len(bad) <= limit:
        return
    shown = ", ".join(f"{name} ({reason})" for name, reason in [*bad.items()][:SHOWN])
    shown += ", ..." if len(bad) > SHOWN else ""
    images = "1 image" if len(bad) == 1 else f"{len(bad)} images"
    raise DataError(
        f"{images} could not be read ({limit} allowed): {shown}; "
        f"replace or delete them, or skip them with --max-bad-images {len(bad)}."
    )
