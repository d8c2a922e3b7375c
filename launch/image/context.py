"""The build context as a zip, for a machine without a checkout.  The same files give the same bytes and key."""

import hashlib
import stat
from dataclasses import dataclass
from io import BytesIO
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from launch.image.source import Source

# infra/cloudformation/account.yaml expires these; infra/iam names the prefix, too.
PREFIX = "aws-ddp-toolkit-builds/"  # expires after a week, so no name that data may have


@dataclass(frozen=True)
class Context:
    """content: the zip; key: its place in the account's bucket."""

    content: bytes
    key: str


def pack(source: Source) -> Context:
    """The files of `source`."""
    buffer = BytesIO()
    # Stored, because versions of zlib compress differently.
    with ZipFile(buffer, "w", ZIP_STORED) as file:
        for name in source.names:
            entry = ZipInfo(name)  # dated 1980, as in the Dockerfile
            entry.create_system, entry.external_attr = 3, (stat.S_IFREG | 0o644) << 16
            file.writestr(entry, (source.folder / name).read_bytes())
    content = buffer.getvalue()
    return Context(content, f"{PREFIX}{hashlib.sha256(content).hexdigest()[:16]}.zip")
