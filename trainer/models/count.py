"""What training a model costs, counted rather than timed: `python -m trainer.models.count > infra/models.yaml`.

A forward and a backward pass run on shapes alone (the meta device), and for every operation the floating-point
operations and the numbers read and written are added up.  Launchers use the table for forecasts without torch.
"""

import sys
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, UntypedStorage, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from trainer import models
from trainer.errors import SettingsError, import_function, look_up
from trainer.settings.argparser import plain_parser

# Image sizes of the trainer's own models; all others are counted at 224 px.  CLASSES: by image size.
SIZES = {"cnn": (32, 224), "resnet18": (32, 224), "vgg11": (32, 224)}
CLASSES = {32: 10, 224: 1000}

ABOUT = """Count the operations of training models, and print them as YAML.

  python -m trainer.models.count > infra/models.yaml
  python -m trainer.models.count resnet18 vit_b_16"""

HEAD = """\
# What training costs, a model and an image size at a time.  Counts the operations of one forward and one backward pass.
# Written by `python -m trainer.models.count > infra/models.yaml`; tests/trainer/models/test_count.py counts some again.
#
#   classes      of the last layer;  parameters: weights with it;  gradients are 4 bytes each
#   gflop        10^9 floating-point operations of training on one image: forward, and twice that backward
#   matmul       10^6 numbers that convolutions and matrix products read and write for one image
#   other        10^6 numbers that everything else does, such as normalisation and activations
#   operators    operations of one pass forward and backward, however many images it takes
#   kept         10^6 numbers of one image that the forward pass keeps for the backward pass;  largest: of one of them
"""


@dataclass(frozen=True)
class Cost:
    """The columns of the table above."""

    classes: int
    parameters: int
    gflop: float
    matmul: float
    other: float
    operators: int
    kept: float
    largest: float

    def as_yaml(self) -> str:
        return (
            f"{{classes: {self.classes}, parameters: {self.parameters}, gflop: {self.gflop:.4g}, "
            f"matmul: {self.matmul:.4g}, other: {self.other:.4g}, operators: {self.operators}, kept: {self.kept:.4g}, "
            f"largest: {self.largest:.4g}}}"
        )


def cost(name: str, image_size: int, classes: int) -> Cost:
    """The cost per image of `image_size` px of the model `name`.  Raises SettingsError for an unsupported size."""
    model = _on_meta(name, image_size, classes)
    # The difference of two batch sizes excludes costs per pass, such as reading the weights.
    two, four = _counted(model, image_size, 2), _counted(model, image_size, 4)
    return Cost(
        classes,
        sum(weight.numel() for weight in model.parameters()),
        (four.flop - two.flop) / 2 / 1e9,
        (four.matmul - two.matmul) / 2 / 1e6,
        (four.other - two.other) / 2 / 1e6,
        four.operators,
        (sum(four.kept) - sum(two.kept)) / 2 / 1e6,
        (max(four.kept) - max(two.kept)) / 2 / 1e6,
    )


def _on_meta(name: str, image_size: int, classes: int) -> nn.Module:
    build = import_function(look_up("model", name, models.TABLE))
    try:
        with torch.device("meta"):
            model: nn.Module = build(name, classes, image_size)
    except NotImplementedError:  # regnets compute their widths with tensors
        model = build(name, classes, image_size).to("meta")
    return model.train()


def _counted(model: nn.Module, image_size: int, batch: int) -> "_Counter":
    images = torch.empty(batch, 3, image_size, image_size, device="meta")
    labels = torch.zeros(batch, dtype=torch.long, device="meta")
    counter = _Counter({_storage_id(weight) for weight in model.parameters()})
    with counter, saved_tensors_hooks(counter.keep, lambda kept: kept):
        nn.functional.cross_entropy(model(images), labels).backward()
    model.zero_grad(set_to_none=True)
    return counter


class _Counter(TorchDispatchMode):
    """Count the operations inside the context.

    torch's FlopCounterMode would count the backward pass of a grouped convolution as that of a dense one,
    which gives MobileNetV2 seven times its operations.
    """

    def __init__(self, weights: Set[int] = frozenset()) -> None:
        """weights: ids of their storages, which do not count as kept."""
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self.flop, self.matmul, self.other, self.operators = 0, 0, 0, 0
        self._weights = weights
        self._kept: dict[int, UntypedStorage] = {}  # by id: several operations may keep the same

    def keep(self, tensor: Tensor) -> Tensor:
        """Record a tensor that is kept for the backward pass, other than weights, which exist anyway."""
        if _storage_id(tensor) not in self._weights and tensor.is_floating_point():
            self._kept[_storage_id(tensor)] = tensor.untyped_storage()
        return tensor

    @property
    def kept(self) -> list[int]:
        """The sizes of the kept tensors, in numbers of four bytes."""
        return [storage.nbytes() // 4 for storage in self._kept.values()]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.is_view or func.overloadpacket.__name__ in ("detach", "empty", "empty_like", "_unsafe_view"):
            return out
        numbers = sum(leaf.numel() for leaf in tree_leaves((args, kwargs, out)) if isinstance(leaf, Tensor))
        flop = _flop(func, args, kwargs or {}, out)
        self.operators += 1
        self.flop += flop
        if flop:
            self.matmul += numbers
        else:
            self.other += numbers
        return out


def _storage_id(tensor: Tensor) -> int:
    """An id that is equal for tensors that share memory."""
    return int(tensor.untyped_storage()._cdata)


def _flop(func: Any, args: Any, kwargs: Any, out: Any) -> int:
    """Floating-point operations of one call; a multiplication and an addition are two."""
    match func.overloadpacket.__name__:
        case "convolution":
            return 2 * int(out.numel()) * int(prod(args[1].shape[1:]))
        case "convolution_backward":
            gradients = sum(args[-1][:2])  # how many of those of images and weights are computed
            return 2 * int(args[0].numel()) * int(prod(args[2].shape[1:])) * int(gradients)
    counted = flop_registry.get(func.overloadpacket)
    return int(counted(*args, **kwargs, out_val=out)) if counted else 0


def lines(names: Sequence[str]) -> Iterator[str]:
    """The table's entries for `names`, as YAML."""
    for name in names:
        yield f"{name}:"
        for size in SIZES.get(name, (224,)):
            yield f"  {size}: {cost(name, size, CLASSES[size]).as_yaml()}"


if __name__ == "__main__":
    parser = plain_parser("python -m trainer.models.count", ABOUT)
    parser.add_argument("models", metavar="MODEL", nargs="*", help="model to count (default: all)")
    try:
        names = parser.parse_args().models or sorted(models.NAMES)
        print(HEAD)
        for line in lines(names):
            print(line, flush=True)
    except SettingsError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.code)
