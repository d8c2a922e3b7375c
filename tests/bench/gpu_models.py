"""What models make of a GPU, beside what launch.forecast says of it: images per second, and memory.

Each trains as `python -m trainer` does, on random images that are on the GPU from the start.

    python -m tests.bench.gpu_models --instance-type p5.4xlarge [--models resnet50:256 ...] [--precisions bf16 fp32]
"""

import argparse
import json
import subprocess
import sys
from typing import Any

from tests.bench.gpu import train
from tests.bench.report import machine, say
from trainer.config import TrainConfig
from trainer.errors import TrainerError

MODELS = ("resnet18:256", "resnet50:64", "resnet50:256", "resnet152:128", "vgg16:128", "mobilenet_v3_large:256",
          "convnext_tiny:128", "vit_b_16:128")  # fmt: skip
# Updates of an epoch.  The first epoch, in which kernels are chosen, is left out.
UPDATES = 40


def settings(model: str, batch: int, precision: str, side: int) -> TrainConfig:
    """Two epochs of random images."""
    return TrainConfig(
        model=model, dataset="synthetic", image_size=side, batch_size=batch, synthetic_images=UPDATES * batch,
        synthetic_classes=1000, precision=precision, epochs=2, eval_every=2, plot=False, lr=0.001,
    )  # fmt: skip


def forecast(config: TrainConfig, instance_type: str) -> dict[str, Any]:
    """What launch.forecast says of the same training."""
    words = [sys.executable, "-m", "launch.forecast", "--instance-type", instance_type, "--nodes", "1", "--json"]
    names = ("model", "dataset", "image_size", "batch_size", "synthetic_images", "synthetic_classes", "precision")
    for name in names:
        words += [f"--{name.replace('_', '-')}", str(getattr(config, name))]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    (candidate,) = json.loads(said)["candidates"]
    found: dict[str, Any] = candidate
    return found


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instance-type", required=True, help="the type that has this GPU")
    parser.add_argument("--models", nargs="+", default=MODELS, help="NAME:BATCH")
    parser.add_argument("--precisions", nargs="+", default=["bf16"])
    parser.add_argument("--image-size", type=int, default=224)
    given = parser.parse_args()
    for words in given.models:
        name, _, batch = words.partition(":")
        for precision in given.precisions:
            config = settings(name, int(batch), precision, given.image_size)
            expected = forecast(config, given.instance_type)["images_per_s"]
            try:
                last = train(config)[-1]
            except TrainerError as error:
                say(f"{name:<20}{batch:>5} {precision}  {error}")
                continue
            measured = last["images_per_s"]
            say(
                f"{name:<20}{batch:>5} {precision}  measured {measured:8,.0f} images/s, forecast {expected:8,.0f} "
                f"({expected / measured - 1:+.0%}), peak memory {last['peak_memory_mib']:7,.0f} MiB"
            )
    say(f"({machine()}, random images of {given.image_size} px, forecast for {given.instance_type})")


if __name__ == "__main__":
    main()
