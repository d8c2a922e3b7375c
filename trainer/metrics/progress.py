"""The progress bar and the time left."""

from time import monotonic
from typing import Any

from trainer.metrics.counters import Totals

# tqdm shortens the bar itself first, so loss and accuracy stay on a narrow terminal.
FORMAT = "{desc} {percentage:3.0f}%{postfix} |{bar}|"


class Bar:
    """A progress bar on standard error, if `shown`."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown
        self._bar: Any = None
        self._later, self._began = 0, 0.0

    def start(self, epoch: int, first: int, last: int, later: int) -> None:
        """Start the bar of an epoch of updates `first` to `last`.  later: updates in later epochs."""
        if self._shown:
            from tqdm import tqdm

            self._later, self._began = later, monotonic()
            self._bar = tqdm(
                desc=f"epoch {epoch + 1}", initial=first, total=last, leave=False, dynamic_ncols=True, bar_format=FORMAT
            )

    def advance(self) -> None:
        """Count one update."""
        if self._bar is not None:
            self._bar.update()

    def close(self) -> None:
        """Remove the bar, so that the next output starts on a new line."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def show(self, totals: Totals) -> None:
        """Show this rank's running loss and accuracy, and the time left.  Waits for the device."""
        if self._bar is None:
            return
        loss, top1, images = totals.sums.tolist()
        done = self._bar.n - self._bar.initial
        seconds_each = (monotonic() - self._began) / max(1, done)
        left = seconds_each * (self._bar.total - self._bar.n + self._later)
        self._bar.set_postfix_str(
            f"loss {loss / max(1, images):.3f}, accuracy {top1 / max(1, images):.1%}, {duration(left)} left"
        )


def duration(seconds: float) -> str:
    """Format a remaining time with the precision of an estimate: '40 s', '12 min', '3 h 20 min'."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
