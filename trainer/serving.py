"""A trained model behind an endpoint: what AWS's PyTorch inference toolkit calls, and how it comes into model.tar.gz.

The archive then has, beside the weights, code/inference.py, this package, and requirements.txt with the versions that
the training ran with.  https://sagemaker.readthedocs.io/en/stable/frameworks/pytorch/using_pytorch.html#serve-a-pytorch-model
"""

import json
import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any

CODE = "code"
SCRIPT, SCRIPT_TEXT = "inference.py", "from trainer.serving import model_fn, transform_fn\n"
# What trained.py imports and AWS's inference images may lack; torch, torchvision and pillow they have.
REQUIRED = ("pydantic", "simplejpeg", "nvidia-ml-py", "tqdm")
JSON = "application/json"
# What SageMaker's batch transform and clients call an image whose kind they do not know.
IMAGES = ("image/", "application/x-image", "application/octet-stream")


# ---- in the training's container


def write_code(model: PurePosixPath) -> None:
    """Writes the folder code/ into the folder of the model.  Raises OSError."""
    code, package = Path(model, CODE), Path(__file__).parent
    shutil.copytree(package, code / package.name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    (code / SCRIPT).write_text(SCRIPT_TEXT)
    (code / "requirements.txt").write_text("".join(map(_requirement, REQUIRED)))


def _requirement(name: str) -> str:
    try:
        return f"{name}=={version(name)}\n"
    except PackageNotFoundError:
        return f"{name}\n"


# ---- in the endpoint's container


def model_fn(model_dir: str) -> Any:
    """The model of the archive that was unpacked in `model_dir`, on the GPU if there is one."""
    import torch

    from trainer.trained import load

    return load(model_dir, "cuda" if torch.cuda.is_available() else "cpu")


def transform_fn(model: Any, data: bytes, content_type: str, accept: str) -> tuple[str, str]:
    """The classes of an image, the most probable first, as JSON: [{"class": "cat", "probability": 0.9}, ...].

    Raises the toolkit's errors: 415 for what is no image, 406 for an answer other than JSON, 400 for a broken image.
    """
    from sagemaker_inference.errors import BaseInferenceToolkitError

    from trainer.datasets.encoded import UnreadableError

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
