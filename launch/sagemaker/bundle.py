"""What SageMaker's toolkit fetches into /opt/ml/code: the trainer, its entry point, and what the image lacks.

The same code gives the same bytes, so the digest says which code a job ran.  Nothing of the user's is in it.
"""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.abc import Traversable
from importlib.resources import files

from trainer.contract import SAGEMAKER_SCRIPT, SAGEMAKER_SCRIPT_TEXT


@dataclass(frozen=True)
class Bundle:
    """A tar.gz, and the SHA-256 of what is in it."""

    content: bytes
    digest: str
    names: tuple[str, ...]


def make_bundle(requirements: str) -> Bundle:
    """The source of a job.  requirements: the text of requirements.txt; none is added if it is empty."""
    members = dict(sorted({SAGEMAKER_SCRIPT: SAGEMAKER_SCRIPT_TEXT.encode(), **dict(_package())}.items()))
    if requirements:
        members["requirements.txt"] = requirements.encode()
    plain = _tar(members)
    packed = io.BytesIO()
    # No name and no time in the header.  The digest is of the tar, for zlib's versions pack differently.
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as file:
        file.write(plain)
    return Bundle(packed.getvalue(), hashlib.sha256(plain).hexdigest(), tuple(members))


def _package() -> Iterator[tuple[str, bytes]]:
    yield from _python_files(files("trainer"), "trainer")


def _python_files(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for item in folder.iterdir():
        inside = f"{name}/{item.name}"
        if item.is_dir():
            yield from _python_files(item, inside)
        elif item.name.endswith(".py"):
            yield inside, item.read_bytes()


def _tar(members: dict[str, bytes]) -> bytes:
    whole = io.BytesIO()
    # USTAR: no header that depends on the machine.
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)  # of nobody, from 1970
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return whole.getvalue()
