"""A backend under the control of a test."""

from dataclasses import dataclass, field
from typing import Any, cast

from launch.rehearse.backend import RehearsedBackend

METRIC = "[METRIC] epoch={epoch} train_loss=1.5 eval_top1=0.75 images_per_s=1234.5"


@dataclass
class FakeRun:
    name: str
    address: str = "172.31.0.4"
    state: str = "boots"
    how: str = ""
    seconds: float = 3.0


@dataclass
class FakeBackend:
    """Change node_runs, places (ranks) and lines (by stream), and update again."""

    node_runs: dict[str, FakeRun] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)

    @property
    def account(self) -> Any:
        return self

    def logs(self) -> dict[str, list[str]]:
        return self.lines

    def ranks(self) -> dict[str, int]:
        return self.places

    def start(self, name: str, **settings: str) -> FakeRun:
        self.node_runs[name] = FakeRun(name, **settings)
        return self.node_runs[name]

    def train(self, epoch: int) -> None:
        """Rank 0 logs an epoch."""
        self.lines.setdefault("job/node-0", []).append(METRIC.format(epoch=epoch))

    @property
    def as_backend(self) -> RehearsedBackend:
        return cast(RehearsedBackend, self)
