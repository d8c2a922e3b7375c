"""The progress bar."""

from typing import Any

from trainer.metrics.counters import Totals


class Bar:
    """A progress bar on standard error, or nothing at all."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown
        self._bar: Any = None

    def start(self, epoch: int, first: int, last: int) -> None:
        """A new epoch of updates `first` to `last`."""
        if self._shown:
            from tqdm import tqdm

            self._bar = tqdm(desc=f"epoch {epoch + 1}", initial=first, total=last, unit="update", leave=False)

    def advance(self) -> None:
        """One update more."""
        if self._bar is not None:
            self._bar.update()

    def close(self) -> None:
        """Takes the bar off the screen, so that what is said next has a line of its own."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def show(self, totals: Totals) -> None:
        """This rank's running loss and accuracy; reading them waits for the device."""
        if self._bar is not None:
            loss, top1, images = totals.sums.tolist()
            self._bar.set_postfix(loss=f"{loss / max(1, images):.3f}", accuracy=f"{top1 / max(1, images):.1%}")
