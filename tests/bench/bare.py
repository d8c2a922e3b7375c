"""What a bare PyTorch script does for one step on the digits: start_up.py's measure, with DDP under torchrun."""

import os
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy, interpolate


def digits(cache: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """images: (N, 3, 32, 32) float; labels: (N,) int64."""
    if not cache.exists():
        from sklearn.datasets import load_digits

        found = load_digits()
        grey = torch.from_numpy(found.images).float()[:, None].expand(-1, 3, -1, -1) / 16
        torch.save((interpolate(grey, (32, 32), mode="bilinear"), torch.from_numpy(found.target)), cache)
    images, labels = torch.load(cache, mmap=True)
    return images, labels


def network() -> nn.Module:
    """The trainer's cnn."""
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(before, after, 4, stride=2, padding=1), nn.GroupNorm(4, after), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 16, 10))


def main(folder: Path) -> None:
    """One update with 128 images, one evaluation with 360, and the weights saved."""
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks))
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
    images, labels = digits(folder / f"digits-{rank}.pt")
    plain = network().to(memory_format=torch.channels_last)
    model = nn.parallel.DistributedDataParallel(plain) if ranks > 1 else plain
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    chosen = torch.randperm(len(images) - 360)[:128]
    loss = cross_entropy(model(images[chosen].contiguous(memory_format=torch.channels_last)), labels[chosen])
    loss.backward()
    optimizer.step()
    with torch.inference_mode():
        right = (plain(images[-360:]).argmax(dim=1) == labels[-360:]).float().mean()
    if rank == 0:
        torch.save(plain.state_dict(), folder / "model.pt")
        print(f"loss {loss.item():.4f}, accuracy {right:.1%}")
    if ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
