"""A trained model for inference, loaded from a run's folder without its data set.

from trainer.trained import load
model = load("runs/RUN")
print(model.classify("photo.jpg")[0])
"""

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from trainer import models
from trainer.contract import CHECKPOINTS, PLAIN_WEIGHTS, SIGNATURE, WEIGHTS
from trainer.datasets.base import Signature, from_json, from_values
from trainer.datasets.decode import read_crop
from trainer.datasets.encoded import Pixels, UnreadableError
from trainer.datasets.order import middle_crop
from trainer.errors import SettingsError, check_name, import_function, one_line
from trainer.files import is_file, is_folder
from trainer.settings.argparser import home_path
from trainer.state import checkpoint

Weights = dict[str, Tensor]


class Guess(NamedTuple):
    """A class and its probability, 0 to 1."""

    name: str
    probability: float


class Classifier(nn.Module):
    """A model with the normalisation before it and the softmax after it."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, signature: Signature) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("mean", torch.tensor(signature.mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(signature.std).view(1, 3, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """images (B, 3, S, S) float32, RGB from 0 to 1 -> probabilities (B, classes)."""
        logits: Tensor = self.model((images - self.mean) / self.std)
        return logits.softmax(dim=1)


@dataclass(frozen=True)
class Trained:
    """A trained model, ready to classify images."""

    name: str  # of the model, such as resnet18
    signature: Signature
    source: Path  # the file of the weights
    classifier: Classifier  # in evaluation mode, on its device

    def classify(self, image: str | Path) -> list[Guess]:
        """All classes, the most probable first.  Raises UnreadableError for a file that is not an image."""
        return self.guesses([self.pixels(home_path(image))])[0]

    def pixels(self, image: Path) -> Pixels:
        """The crop of an image file that the model gets, as in the run's evaluation: (S, S, 3) uint8."""
        return read_crop(image, partial(middle_crop, share=self.signature.middle), self.signature.image_size)

    def guesses(self, images: Sequence[Pixels]) -> list[list[Guess]]:
        """For each of `images`, as returned by pixels(): all classes, the most probable first."""
        device = self.classifier.mean.device
        stacked = torch.from_numpy(np.stack(images)).to(device).permute(0, 3, 1, 2).float() / 255
        with torch.inference_mode():
            probabilities = self.classifier(stacked).cpu()
        order = probabilities.argsort(dim=1, descending=True).tolist()
        return [
            [Guess(self.signature.classes[label], float(row[label])) for label in best]
            for row, best in zip(probabilities, order, strict=True)
        ]

    def classify_all(
        self, images: Iterable[Path], batch_size: int = 32
    ) -> Iterator[tuple[Path, list[Guess] | UnreadableError]]:
        """Each of `images` in order, with its classes or with the error if it cannot be read."""
        left = iter(images)
        while paths := list(islice(left, batch_size)):
            found = [self._try_pixels(path) for path in paths]
            readable = [pixels for pixels in found if not isinstance(pixels, UnreadableError)]
            guessed = iter(self.guesses(readable) if readable else [])
            for path, pixels in zip(paths, found, strict=True):
                yield path, pixels if isinstance(pixels, UnreadableError) else next(guessed)

    def _try_pixels(self, image: Path) -> Pixels | UnreadableError:
        try:
            return self.pixels(image)
        except UnreadableError as error:
            return error


def load(run: str | Path, device: torch.device | str = "cpu") -> Trained:
    """Load the model from a run's folder, a model.pt or a checkpoint.  Raises SettingsError for anything else."""
    source = _weights_file(home_path(run))
    content = checkpoint.content_of(source, "give the folder of a run.")
    if {"format", "model"} <= content.keys():
        name, signature, weights = _of_checkpoint(content, source)
    else:
        name, signature = _settings_next_to(source)
        weights = content
    check_name("model", name, models.NAMES)
    try:
        model: nn.Module = import_function(models.TABLE[name])(name, len(signature.classes), signature.image_size)
        model.load_state_dict(weights)
    except (RuntimeError, ValueError, TypeError, AttributeError) as error:
        raise SettingsError(
            f"{source} does not fit the model {name} for {len(signature.classes)} classes that its {SIGNATURE} "
            "describes; give the folder of the run that made both."
        ) from error
    if not checkpoint.are_finite(model.state_dict()):
        raise SettingsError(
            f"{source} has weights that are not finite, so it cannot classify; give another checkpoint of "
            "the run, or train again with a lower --lr."
        )
    return Trained(name, signature, source, Classifier(model, signature).eval().to(device))


def _weights_file(run: Path) -> Path:
    if is_file(run):
        return run
    if not is_folder(run):
        raise SettingsError(f"no run {one_line(run, 300)}; give the folder of a run, its {WEIGHTS} or a checkpoint.")
    for name in (PLAIN_WEIGHTS, WEIGHTS, f"{CHECKPOINTS}/{checkpoint.BEST}", checkpoint.BEST):
        if is_file(run / name):
            return run / name
    raise SettingsError(f"{run} has no {WEIGHTS} and no {CHECKPOINTS}/{checkpoint.BEST}; give the folder of a run.")


def _of_checkpoint(content: dict[str, Any], source: Path) -> tuple[str, Signature, Weights]:
    """Name, signature and weights in a checkpoint; averaged weights if there are any, as in the run's evaluation."""
    signature = from_values(content.get("signature"), source)
    try:
        name, weights = str(content["config"]["model"]), {**content["model"]}
        weights |= (content.get("ema") or {}).get("weights", {})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SettingsError(f"{source} is not a checkpoint of this trainer; give the folder of a run.") from error
    return name, signature, weights


def _settings_next_to(weights: Path) -> tuple[str, Signature]:
    """The model's name and signature in the model.json beside `weights`."""
    path = weights.with_name(SIGNATURE)
    try:
        return from_json(path.read_bytes(), path)
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be read ({error.strerror}): it names the model and its classes; "
            f"copy it from the run beside {weights.name}, or give a checkpoint, which holds it."
        ) from error


# ---- SageMaker endpoints: the functions that AWS's PyTorch inference toolkit calls, and the code for model.tar.gz

# Beside the weights, the archive has code/inference.py, this package, and requirements.txt with the versions that the
# training used.
# https://sagemaker.readthedocs.io/en/stable/frameworks/pytorch/using_pytorch.html#serve-a-pytorch-model
CODE = "code"
SCRIPT, SCRIPT_TEXT = "inference.py", "from trainer.trained import model_fn, transform_fn\n"
# Packages that this module imports and AWS's inference images may lack; they have torch, torchvision and pillow.
REQUIRED = ("pydantic", "simplejpeg", "nvidia-ml-py", "tqdm")
JSON = "application/json"
# Content types of images; SageMaker's batch transform and some clients send the generic ones.
IMAGES = ("image/", "application/x-image", "application/octet-stream")


def write_code(model: PurePosixPath) -> None:
    """Write the folder code/ into the folder of the model.  Raises OSError."""
    code, package = Path(model, CODE), Path(__file__).parent
    shutil.copytree(package, code / package.name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    (code / SCRIPT).write_text(SCRIPT_TEXT)
    (code / "requirements.txt").write_text("".join(map(_requirement, REQUIRED)))


def _requirement(name: str) -> str:
    try:
        return f"{name}=={version(name)}\n"
    except PackageNotFoundError:
        return f"{name}\n"


def model_fn(model_dir: str) -> Any:
    """Load the model from the archive unpacked in `model_dir`, onto the GPU if there is one."""
    return load(model_dir, "cuda" if torch.cuda.is_available() else "cpu")


def transform_fn(model: Any, data: bytes, content_type: str, accept: str) -> tuple[str, str]:
    """The classes of an image, the most probable first, as JSON: [{"class": "cat", "probability": 0.9}, ...].

    Raises the toolkit's errors: 415 if `data` is not an image, 406 if `accept` excludes JSON, 400 for a broken image.
    """
    from sagemaker_inference.errors import BaseInferenceToolkitError

    if not content_type.startswith(IMAGES):
        raise BaseInferenceToolkitError(415, f"send an image, such as image/jpeg, not {content_type}", "Unsupported")
    if accept not in (JSON, "*/*", "application/*"):
        raise BaseInferenceToolkitError(406, f"the answer is {JSON}, not {accept}", "Not acceptable")
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        try:
            guesses = model.classify(file.name)
        except UnreadableError as error:
            raise BaseInferenceToolkitError(400, f"the image cannot be read: {error}", "Bad request") from error
    return json.dumps([{"class": guess.name, "probability": guess.probability} for guess in guesses]), JSON
