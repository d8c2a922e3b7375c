"""A job from its first epoch to its last, in seconds.  Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, inf

from launch.core.estimate.figure import Side, figure
from launch.core.estimate.formulas import FORWARD, Layout, Speeds, Step, step
from launch.core.estimate.tables import DataSet, table
from launch.core.estimate.training import Training
from launch.core.estimate.volume import Filling


def evaluation_s(data: DataSet, speeds: Speeds, layout: Layout) -> float:
    """Seconds to evaluate each image once, divided among the replicas: forward only."""
    share = data.evaluation / layout.nodes
    image_bytes = data.image_bytes if data.format == "jpeg" else 0.0
    computed_s = share / layout.gpus * speeds.image_s * FORWARD
    return max(computed_s, share / speeds.decoded_per_s, share * image_bytes / speeds.read_per_s)


@dataclass(frozen=True)
class Timeline:
    """A job from its first epoch to its last, at one side of the figures."""

    training: Training
    speeds: Speeds
    side: Side
    caches: bool

    def step(self, epoch: int, uncached: float) -> Step:
        work = self.training.work(epoch)
        return step(work, self.speeds, self.training.layout, uncached=uncached, side=self.side)

    def paced(self, epoch: int, uncached: float) -> float:
        """Seconds of an update of that epoch: the model's, not the disk's, become fewer with an image's pixels.

        Decoding is taken to last as long, although smaller crops often decode at half the size.
        """
        smaller = replace(self.speeds, image_s=self.speeds.image_s * self.training.share_of_pixels(epoch))
        work = self.training.work(epoch)
        return step(work, smaller, self.training.layout, uncached=uncached, side=self.side).step_s

    def training_s(self, epoch: int, uncached: float) -> float:
        return self.training.updates(epoch) * self.step(epoch, uncached).step_s

    def evaluation_s(self) -> float:
        data = replace(self.training.data, image_bytes=0.0) if self.caches else self.training.data
        return evaluation_s(data, self.speeds, self.training.layout)

    def epoch_s(self) -> float:
        """Training and its share of evaluation at the first batch, once memory caches what fits."""
        return self.training_s(0, 0.0 if self.caches else 1.0) + self.training.evaluating * self.evaluation_s()

    def job_s(self) -> float:
        """All epochs, or the updates of --max-steps, and what filling the volumes takes."""
        filling = self.filling()
        return self.settled_s() + (filling.lost_s if filling else 0.0)

    def filling(self) -> Filling | None:
        """While the nodes' volumes, or that of all, are filled from their snapshot; None where they are not."""
        volume, data = self.training.volume, self.training.data
        if volume is None or not data.image_bytes:
            return None
        per_s = volume.bytes_per_s.at(self.side)
        full_s = volume.full_after_s(data.gib_in_all, per_s, figure(table("rates")["boot_hours"]).at(self.side) * 3600)
        volumes = 1 if volume.is_shared else self.training.layout.nodes
        images_per_s = per_s / data.image_bytes * volumes
        return Filling(images_per_s, full_s, self._lost_s(images_per_s, full_s), volume)

    def _lost_s(self, images_per_s: float, full_s: float) -> float:
        """Seconds that the job is longer because the volumes give no more than so many images/s until they are full."""
        work, config = self.training.work(), self.training.config
        slow_s = work.batch * work.accumulate * self.training.layout.replicas / images_per_s
        usual_s = self.paced(0, self.uncached(0))
        updates = min(config.epochs * self.training.updates(), inf if config.max_steps is None else config.max_steps)
        return max(0.0, slow_s - usual_s) * min(updates, full_s / slow_s)

    def settled_s(self) -> float:
        """All epochs, or the updates of --max-steps, from volumes that are full."""
        config, total = self.training.config, 0.0
        left = inf if config.max_steps is None else float(config.max_steps)
        for begin, end in pairwise([*self._begins(), config.epochs]):
            updates = self.training.updates(begin)
            for epochs, step_s in self._paces(begin, end):
                done = min(left, epochs * updates)
                evaluations = min(epochs, ceil(done / updates)) * self.training.evaluating
                total += done * step_s + evaluations * self.evaluation_s()
                left -= done
        return total

    def _begins(self) -> list[int]:
        """The epochs with which another global batch or another image size begins, the first of them 0."""
        config, share = self.training.config, self.training.share_of_pixels
        ramp = {epoch for epoch in config.batch_ramp or {} if 0 < epoch < config.epochs}
        grown = range(1, config.epochs if self.training.grows else 1)
        return [0, *sorted(ramp | {epoch for epoch in grown if share(epoch) != share(epoch - 1)})]

    def _paces(self, begin: int, end: int) -> Iterator[tuple[int, float]]:
        """How many of the epochs from `begin` to before `end`, of one batch and size, have updates of so many seconds.

        One by one while disks are slower than all else, for the memory's caches then fill from epoch to epoch; all
        that remain at once.
        """
        settled_s = self.paced(begin, 0.0 if self.caches else 1.0)
        while begin < end and (step_s := self.paced(begin, self.uncached(begin))) > settled_s:
            yield 1, step_s
            begin += 1
        if begin < end:
            yield end - begin, settled_s

    def uncached(self, epoch: int) -> float:
        """Share of an epoch's images that this node has not read yet: it gets different ones every epoch."""
        if not self.caches:
            return 1.0
        return float((1 - 1 / self.training.layout.nodes) ** epoch)
