"""Small data sets: all images are kept on the device as bytes and augmented there; decoded images are cached on disk.

Every random draw belongs to a position of the epoch, not to a rank or a step: k ranks together see the same images as
one rank would, and a resumed run continues with exactly the batches it would have seen.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from trainer.datasets.base import Batch, Data, Normalisation, Request, Signature
from trainer.datasets.cache import Content, recall
from trainer.datasets.decode import Normaliser
from trainer.datasets.encoded import refuse_too_many
from trainer.datasets.order import Order
from trainer.errors import DataError

SHIFT = 4  # pixels, after He et al. 2015 (arXiv:1512.03385), section 4.2
AUGMENTATION = 1  # of Order's streams of random numbers; 0 is used for permutations
LARGEST_BYTES = 4 * 2**30


@dataclass(frozen=True)
class Images:
    """The decoded images of one half."""

    pixels: Tensor  # (N, S, S, 3) uint8
    labels: Tensor  # (N,) int64
    bad: Mapping[str, str] = field(default_factory=dict)  # unreadable files that were left out, and why


@dataclass(frozen=True)
class Decoded:
    """A whole data set in memory."""

    train: Images
    evaluation: Images
    classes: int


class ResidentSplit:
    """Split whose images are kept on the device.

    shift: maximum random shift in pixels; flip: mirror a random half of the images.
    """

    def __init__(self, images: Images, normaliser: Normaliser, device: torch.device, shift: int, flip: bool) -> None:
        self.size, self._side = images.pixels.shape[0], images.pixels.shape[1]
        self._shift, self._flip = shift, flip
        self._width = self._side + 2 * shift
        # With black borders, shifting an image is one gather; with one pixel per row, a fast one.
        self._pixels = pad(images.pixels.to(device), (0, 0, shift, shift, shift, shift)).view(-1, 3)
        self._labels = images.labels.to(device)
        self._along_a_side = torch.arange(self._side, device=device)
        self._normalise = normaliser
        self._bad = tuple(images.bad)

    def train_batches(self, order: Order, positions: Sequence[slice]) -> Generator[Batch]:
        """Shifted and mirrored batches: the images at `positions` of `order`."""
        draws = draw(order, self._shift, self._flip).to(self._labels.device)
        for position in positions:
            yield self._batch(draws[:, position])

    def eval_batches(self, indices: range, batch_size: int) -> Generator[Batch]:
        """The images `indices`, as they are."""
        for start in range(0, len(indices), batch_size):
            chunk = indices[start : start + batch_size]
            draws = self._along_a_side.new_full((4, len(chunk)), self._shift)
            draws[0] = torch.arange(chunk.start, chunk.stop, chunk.step, device=draws.device)
            draws[3] = 0
            yield self._batch(draws)

    @property
    def bad_images(self) -> Sequence[str]:
        """Names of the unreadable files that were left out."""
        return self._bad

    def _batch(self, draws: Tensor) -> Batch:
        """draws: (4, B) int64, as `draw` returns them."""
        image, top, left, mirrored = draws.unbind()
        rows = (image * self._width + top)[:, None] + self._along_a_side
        columns = left[:, None] + torch.where(
            mirrored[:, None] == 1, self._side - 1 - self._along_a_side, self._along_a_side
        )
        places = rows[:, :, None] * self._width + columns[:, None, :]
        pixels = self._pixels.index_select(0, places.view(-1)).view(*places.shape, 3)
        return Batch(self._normalise(pixels), self._labels.index_select(0, image))


def draw(order: Order, shift: int, flip: bool) -> Tensor:
    """(4, N) int64 on the CPU: image, top, left (0..2 * shift) and mirrored (0 or 1) at each position of the epoch."""
    generator = order.generator(AUGMENTATION)
    corners = torch.randint(0, 2 * shift + 1, (2, order.size), generator=generator)
    mirrored = torch.randint(0, 2, (1, order.size), generator=generator) * int(flip)
    return torch.cat([order.permutation[None], corners, mirrored])


def resident_data(
    decoded: Decoded, names: Sequence[str], normalisation: Normalisation, flip: bool, request: Request
) -> Data:
    """Put both splits on the device.  names: class names; flip: whether mirroring is a valid augmentation.

    Raises DataError for too many unreadable images.
    """
    side = decoded.train.pixels.shape[1]
    normaliser = Normaliser(normalisation, side, request.device, request.channels_last)
    for half in (decoded.train, decoded.evaluation):
        refuse_too_many(half.bad, request.max_bad_images)
    shift = SHIFT if request.augment else 0
    train = ResidentSplit(decoded.train, normaliser, request.device, shift, flip and request.augment)
    evaluation = ResidentSplit(decoded.evaluation, normaliser, request.device, 0, False)
    return Data(train, evaluation, Signature(tuple(names), side, normalisation.mean, normalisation.std))


def fits(images: int, side: int) -> bool:
    """Whether this many images of `side` pixels are kept in memory."""
    return images * side * side * 3 <= LARGEST_BYTES


def resized(pixels: Tensor, side: int) -> Tensor:
    """(N, S, S, 3) uint8 -> (N, side, side, 3) uint8, bilinear.  Raises DataError if the result is too large."""
    if not fits(len(pixels), side):
        allowed = int((LARGEST_BYTES / (3 * len(pixels))) ** 0.5)
        raise DataError(
            f"{len(pixels)} images of {side} pixels do not fit in memory; --image-size may be {allowed} at most."
        )
    if pixels.shape[1] == side:
        return pixels
    # In pieces: the intermediate results of a whole set would take several times its size.
    pieces = (piece.permute(0, 3, 1, 2) for piece in torch.split(pixels, 4096))
    done = [interpolate(piece, (side, side), mode="bilinear", antialias=True).permute(0, 2, 3, 1) for piece in pieces]
    return torch.cat(done).contiguous()


def recall_decoded(path: Path, fingerprint: str, decode: Callable[[], Decoded]) -> Decoded:
    """The data set cached at `path` if its fingerprint matches, else the result of `decode`, which is then cached."""
    content = recall(
        path,
        is_current=lambda found: found.get("fingerprint") == fingerprint,
        build=lambda: {"fingerprint": fingerprint} | _packed(decode()),
    )
    return Decoded(Images(**content["train"]), Images(**content["evaluation"]), content["classes"])


def _packed(decoded: Decoded) -> Content:
    halves = {"train": decoded.train, "evaluation": decoded.evaluation}
    packed = {k: {"pixels": v.pixels, "labels": v.labels, "bad": dict(v.bad)} for k, v in halves.items()}
    return {**packed, "classes": decoded.classes}
