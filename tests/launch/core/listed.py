"""Jobs of a backend that does nothing, for the verbs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launch.core.clock import Clock
from launch.core.jobs import Choice, Connection, Leak, Line, Log, Overview, Results, Show, State, Summary
from launch.core.terminal import Say
from trainer.errors import SettingsError
from trainer.outcome import Outcome


@dataclass
class ListedJobs:
    """A backend's jobs, in a list.  fails: those that cannot be removed; incomplete: a region did not answer."""

    leak_columns = ("job", "region")

    there: list[Leak] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    agrees: bool = True
    fails: Sequence[str] = ()
    is_complete: bool = True
    lines: Sequence[str] = ("epoch 1",)
    is_running: bool = True
    follow: Callable[[], str] = lambda: "one has ended"
    removed: list[str] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)
    say: Say = field(init=False)

    def __post_init__(self) -> None:
        self.say = self.said.append

    def confirm(self, what: str) -> None:
        if not self.agrees:
            raise SettingsError(f"{what}; add --yes to confirm.")

    def overview(self, options: Any) -> list[Overview]:
        return [Overview(f"{len(self.there)} jobs", [Summary(one.job, "running") for one in self.there])]

    def state(self, options: Any) -> State:
        summary = Summary(options.job, "running", next=(f"python -m launch.tests stop {options.job}",))
        return State(summary, f"job {options.job}", (("cost", "1 USD"),), ("a  b",), ("note",))

    def log(self, options: Any) -> Log:
        def show_all(show: Show) -> int:
            for line in self.lines:
                show(Line(line))
            return len(self.lines)

        return Log(
            self.is_running,
            show_all,
            lambda show: self.follow(),
            lambda: "nothing yet",
            "python -m launch.tests stop one",
        )

    def stop(self, options: Any) -> None:
        self.removed.append(options.job)

    def attach(self, options: Any) -> Outcome | None:
        return Outcome("failed", 5, "the loss is not finite")

    def leaks(self, options: Any) -> tuple[Sequence[Leak], bool]:
        return tuple(self.there), self.is_complete

    active = leaks

    def remove(self, leaks: Sequence[Leak]) -> Sequence[str]:
        gone = [one.job for one in leaks if one.job not in self.fails]
        self.removed += gone
        self.there = [one for one in self.there if one.job not in gone]
        return [f"{one.job}: AWS refused" for one in leaks if one.job in self.fails]

    def fetch(self, options: Any, choice: Choice) -> Results:
        return Results(Path(options.job))

    def shell(self, options: Any) -> Connection:
        return Connection(("ssh", f"node-{options.node}"), {})

    def forward(self, options: Any) -> Connection:
        return Connection(("ssh", "-L", f"{options.port}:localhost:{options.port}", f"node-{options.node}"), {})
