"""How long a GPU waits for ImageNet-like images: raw files and prepared shards, beside torchvision's usual loader.

SRC is a folder of images with train/ and val/, of which links make a larger one.  Each way trains the same model at
224 pixels with every core of the machine; random images on the device show what the GPU could do.

    python -m tests.bench.gpu_feed SRC [--times 40] [--models resnet18 resnet50] [--batch-size 256]
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms
from torchvision.models import get_model

from tests.bench.gpu import train
from tests.bench.report import machine, say
from trainer.config import TrainConfig

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIDE = 224


def multiplied(source: Path, times: int, folder: Path) -> Path:
    """A folder with links to every training image of `source`, `times` over, and to one of each evaluation image."""
    for image in sorted(path for path in source.rglob("*") if path.is_file()):
        half, name = image.relative_to(source).parts[0], image.relative_to(source)
        for copy in range(times if half == "train" else 1):
            link = folder / name.with_name(f"{copy:04}-{name.name}")
            link.parent.mkdir(parents=True, exist_ok=True)
            os.link(image, link)
    return folder


def prepared(source: Path, target: Path) -> Path:
    """The shards of `source`, as trainer.prepare makes them by default."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "trainer.prepare", source, target], check=True, stdout=subprocess.DEVNULL)
    count = sum(1 for path in source.rglob("*") if path.is_file())
    took = time.perf_counter() - began
    say(f"trainer.prepare: {count:,} images in {took:.1f} s, {count / took:,.0f} a second")
    return target


def ours(name: str, **settings: object) -> None:
    """Prints the second of two epochs."""
    config = TrainConfig(
        image_size=SIDE, epochs=2, eval_every=2, precision="bf16" if torch.cuda.is_available() else "fp32", plot=False,
        lr=0.01, **settings,
    )  # fmt: skip
    last = train(config)[-1]
    waits = last["data_wait_ms"] / last["step_ms"]
    busy = last.get("gpu_utilization_percent")
    say(
        f"  {name:<38}{last['images_per_s']:8,.0f} images/s   step {last['step_ms']:7.1f} ms, of which it waits "
        f"{last['data_wait_ms']:6.1f} ms for data ({waits:5.1%})" + ("" if busy is None else f"   GPU busy {busy:.0f}%")
    )


def usual(source: Path, model: str, batch: int) -> None:
    """The same training as PyTorch's own example has it: ImageFolder, DataLoader, autocast, channels last."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    crop = transforms.Compose([
        transforms.RandomResizedCrop(SIDE), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize(MEAN, DEVIATION),
    ])  # fmt: skip
    cores = len(os.sched_getaffinity(0))
    loader = DataLoader(
        datasets.ImageFolder(str(source / "train"), crop), batch, shuffle=True, num_workers=cores, pin_memory=True,
        drop_last=True, persistent_workers=True,
    )  # fmt: skip
    network = get_model(model, num_classes=1000).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9)
    seconds = waited = 0.0
    steps = 0
    for epoch in range(2):
        began = last = time.perf_counter()
        for images, labels in loader:
            arrived = time.perf_counter()
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                output = network(images.to(device, non_blocking=True, memory_format=torch.channels_last))
                loss = torch.nn.functional.cross_entropy(output, labels.to(device, non_blocking=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if epoch == 1:
                waited, steps = waited + arrived - last, steps + 1
            loss.item()  # as PyTorch's own example does, which shows the loss
            last = time.perf_counter()
        seconds = time.perf_counter() - began
    say(
        f"  {'torchvision ImageFolder, DataLoader':<38}{steps * batch / seconds:8,.0f} images/s   "
        f"step {1000 * seconds / steps:7.1f} ms, of which it waits {1000 * waited / steps:6.1f} ms for data "
        f"({waited / seconds:5.1%})"
    )


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="folder of images")
    parser.add_argument("--times", type=int, default=40, help="links to each training image")
    parser.add_argument("--models", nargs="+", default=["resnet18", "resnet50"])
    parser.add_argument("--batch-size", type=int, default=256)
    given = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(dir=given.source.parent) as folder:
        raw = multiplied(given.source, given.times, Path(folder) / "raw")
        shards = prepared(raw, Path(folder) / "shards")
        for model in given.models:
            say(f"{model}, batch {given.batch_size}, {cores} cores")
            common = {"model": model, "batch_size": given.batch_size}
            images = 200 * given.times
            ours("random images on the device", dataset="synthetic", synthetic_images=images, synthetic_classes=1000,
                 **common)  # fmt: skip
            ours("ours, 256 px shards", dataset="imagefolder", data_dir=shards, **common)
            ours("ours, raw files", dataset="imagefolder", data_dir=raw, **common)
            usual(raw, model, given.batch_size)
    say(f"({machine()})")


if __name__ == "__main__":
    main()
