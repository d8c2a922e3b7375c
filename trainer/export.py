# PYTHON_ARGCOMPLETE_OK
"""`python -m trainer.export RUN --to onnx|torch`: a trained model as one file, independent of this project.

The exported model takes images (batch, 3, S, S) float32, RGB from 0 to 1, normalises them, and returns probabilities
(batch, classes).  It is compared with the original before the file is written.
"""

import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from trainer.contract import SIGNATURE
from trainer.errors import SettingsError, exit_code_of, not_written, one_line
from trainer.files import is_place_for_file, write_atomically
from trainer.settings.argparser import complete, home_path, plain_parser
from trainer.terminal import say

if TYPE_CHECKING:
    from torch import Tensor
    from torch.export import ExportedProgram

    from trainer.trained import Trained

    Exported = Callable[[Tensor], Tensor]

ABOUT = """Write a trained model as one file, for programs that do not have this project.

  python -m trainer.export runs/RUN --to onnx       # RUN/model.onnx, for ONNX Runtime and others
  python -m trainer.export runs/RUN --to torch      # RUN/model.pt2, for torch.export.load"""

TOLERANCE = 1e-4  # of a probability: float32 kernels of different libraries may differ by this much
LARGEST_ONNX = 2**31 - 2**20  # bytes: protobuf's limit, less the graph
CHECKED = (1, 3)  # sizes of the batches that are compared


def main(argv: Sequence[str]) -> int:
    """Export a model and return the exit code."""
    parser = plain_parser("python -m trainer.export", ABOUT)
    parser.add_argument("run", metavar="RUN", type=home_path, help="folder of a run, its model.pt, or a checkpoint")
    parser.add_argument("--to", choices=tuple(FORMATS), required=True, help="format of the file")
    parser.add_argument(
        "--out", metavar="FILE", type=home_path, help="the file (default: model.onnx or model.pt2 in RUN)"
    )
    complete(parser)
    args = parser.parse_args(argv)
    return exit_code_of(lambda: _export(args.run, args.to, args.out))


def _export(run: Path, to: str, out: Path | None) -> None:
    _check_packages(to)
    from trainer.trained import load  # torch takes seconds to import; missing packages need not wait

    trained = load(run)
    say(export(trained, to, out or trained.source.parent / FORMATS[to].file_name))


def _check_packages(to: str) -> None:
    missing = [name for name in FORMATS[to].packages if find_spec(name) is None]
    if missing:
        raise SettingsError(
            f"--to {to} needs {' and '.join(missing)}; pip install -c constraints.txt -e '.[onnx]' brings it, "
            "and --to torch needs nothing more."
        )


def export(trained: "Trained", to: str, path: Path) -> str:
    """Write the model to `path`, in a format of FORMATS, and return a summary for the user.

    Raises SettingsError, and writes nothing, if the model cannot be exported or the result differs from it.
    """
    if not is_place_for_file(path):
        raise SettingsError(f"--out {one_line(path, 300)}: give the name of a file in a folder that exists.")
    data = FORMATS[to].write(trained)
    difference = _largest_difference(trained, FORMATS[to].read(data))
    if not difference <= TOLERANCE:  # also true for NaN
        raise SettingsError(
            f"--to {to}: the exported {trained.name} differs from the original by {difference:.1e} in probability, "
            "so it is not kept; use another format."
        )
    try:
        write_atomically(path, data)
    except OSError as error:
        raise not_written(error, f"cannot write {path} ({error.strerror}); choose another --out.") from error
    size = trained.signature.image_size
    return (
        f"{path}: images (batch, 3, {size}, {size}), RGB from 0 to 1 -> probabilities (batch, "
        f"{len(trained.signature.classes)}); compared with the model on {sum(CHECKED)} images, "
        f"largest difference {difference:.1e}"
    )


def _largest_difference(trained: "Trained", exported: "Exported") -> float:
    """The largest difference in probability between the model and its export, over random images."""
    import torch

    size, generator = trained.signature.image_size, torch.Generator().manual_seed(0)
    differences = []
    for count in CHECKED:
        images = torch.rand(count, 3, size, size, generator=generator)
        with torch.inference_mode():
            differences.append((exported(images) - trained.classifier(images)).abs().max())
    return float(torch.stack(differences).max())  # NaN if there is one


def _write_torch(trained: "Trained") -> bytes:
    import torch

    buffer = io.BytesIO()
    torch.export.save(_traced(trained), buffer, extra_files={SIGNATURE: trained.signature.as_json(trained.name)})
    return buffer.getvalue()


def _read_torch(data: bytes) -> "Exported":
    import torch

    with _without_torchs_warnings():
        exported: Exported = torch.export.load(io.BytesIO(data)).module()
    return exported


def _write_onnx(trained: "Trained") -> bytes:
    import torch

    size = sum(weight.numel() * weight.element_size() for weight in trained.classifier.parameters())
    if size > LARGEST_ONNX:
        raise SettingsError(
            f"--to onnx: {trained.name} has {size / 2**30:.1f} GiB of weights, "
            "and an ONNX file takes 2; use --to torch."
        )
    traced = _traced(trained)
    with _without_torchs_warnings():
        program = torch.onnx.export(
            traced, input_names=["images"], output_names=["probabilities"], dynamo=True, verbose=False
        )
    assert program is not None
    program.model.metadata_props[SIGNATURE] = trained.signature.as_json(trained.name)
    data: bytes = program.model_proto.SerializeToString()
    return data


def _read_onnx(data: bytes) -> "Exported":
    # From 1.29 on it sends names and hashes of models to Microsoft, and waits for a pipe at /tmp/.ses.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime
    import torch

    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


@contextmanager
def _without_torchs_warnings() -> Iterator[None]:
    """Silence torch 2.11's warnings about its own code in export and load, which a user cannot act on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _traced(trained: "Trained") -> "ExportedProgram":
    """The model as a graph that takes any batch size."""
    import torch

    size = trained.signature.image_size
    try:
        return torch.export.export(
            trained.classifier,
            (torch.zeros(2, 3, size, size),),
            dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
        )
    except (RuntimeError, ValueError, AssertionError) as error:
        problem = str(error).strip().splitlines()[0]
        raise SettingsError(f"torch cannot export {trained.name} ({problem}); use another model.") from error


@dataclass(frozen=True)
class Format:
    """A file format to export to."""

    file_name: str
    packages: tuple[str, ...]  # required in addition to the trainer's own
    write: "Callable[[Trained], bytes]"
    read: "Callable[[bytes], Exported]"  # returns a function from images to probabilities


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "onnx": Format("model.onnx", ("onnx", "onnxscript", "onnxruntime"), _write_onnx, _read_onnx),
        "torch": Format("model.pt2", (), _write_torch, _read_torch),
    }
)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
