"""Make an ext4 file system with the files of a folder, without root, and find its written blocks.

mke2fs does the work (e2fsprogs; `mkfs.ext4` is its usual name).  Equal files give equal bytes: identifiers follow from
the content, and owner, mode and times of the files are replaced.
"""

import hashlib
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.core import shell
from trainer.errors import FullDisk, MachineError, SettingsError, one_line
from trainer.files import below

BLOCK = 512 * 1024  # of the EBS direct APIs
GIB = 2**30
_MADE = "1700000000"  # s since 1970: the time of everything in the file system
# The name of a program -> its path, None if it is not installed.
Which = Callable[[str], str | None]
MISSING = (
    "mke2fs and debugfs make the snapshot's file system, and are not installed: install e2fsprogs (apt install "
    "e2fsprogs, dnf install e2fsprogs, brew install e2fsprogs), or publish to S3 only with --to s3."
)


@dataclass(frozen=True)
class Tools:
    """Paths of the programs."""

    mke2fs: str
    debugfs: str


@dataclass(frozen=True)
class Blocks:
    """The blocks of an image that must be written.  digests: SHA-256 by index, ascending."""

    digests: Mapping[int, bytes]

    @property
    def aggregate(self) -> bytes:
        """SHA-256 over all digests, in the order of their indexes: CompleteSnapshot's LINEAR method.

        https://docs.aws.amazon.com/ebs/latest/APIReference/API_CompleteSnapshot.html
        """
        whole = hashlib.sha256()
        for index in sorted(self.digests):
            whole.update(self.digests[index])
        return whole.digest()

    @property
    def tag(self) -> str:
        return f"{len(self.digests)} {self.aggregate.hex()}"


def find_tools(which: Which) -> Tools:
    """Find the programs, which Homebrew does not put into PATH.  Raises SettingsError if they are not installed."""
    found = []
    for name in ("mke2fs", "debugfs"):
        places = (name, f"/usr/sbin/{name}", f"/sbin/{name}", f"/opt/homebrew/opt/e2fsprogs/sbin/{name}",
                  f"/usr/local/opt/e2fsprogs/sbin/{name}")  # fmt: skip
        found.append(next((path for place in places if (path := which(place))), None))
    if found[0] is None or found[1] is None:
        raise SettingsError(MISSING)
    return Tools(found[0], found[1])


def volume_gib(sizes: Sequence[int]) -> int:
    """GiB of a volume for files of these sizes in bytes: blocks of 4 KiB, and 1.5 % and 32 MiB for ext4 itself."""
    data = sum(-(-size // 4096) * 4096 + 4096 for size in sizes)
    return -(-int(data * 1.015 + 32 * 2**20) // GIB)


def make(tools: Tools, folder: Path, image: Path, gib: int, digest: str, env: Mapping[str, str]) -> None:
    """Make `image` from the content of `folder`.  digest: of the content, hexadecimal.  Raises MachineError.

    Without a journal, as the volume is never written; with one inode per file.
    """
    partial = image.with_suffix(".partial")
    identity = str(uuid.UUID(digest[:32]))
    names = sorted(path.relative_to(folder).as_posix() for path in below(folder))
    fixed = {**env, "E2FSPROGS_FAKE_TIME": _MADE, "SOURCE_DATE_EPOCH": _MADE, "MKE2FS_CONFIG": os.devnull,
             "MKE2FS_SYNC": "0", "LC_ALL": "C"}  # fmt: skip
    with partial.open("wb") as file:
        file.truncate(gib * GIB)
    _run(_mke2fs(tools, folder, partial, identity, len(names)), fixed, image)
    commands = image.with_suffix(".debugfs")
    with commands.open("wb") as file:
        file.write("".join(_same_everywhere(folder, names)).encode())
    _run([tools.debugfs, "-w", "-f", str(commands), str(partial)], fixed, image)
    commands.unlink()
    partial.replace(image)


def _run(command: Sequence[str], env: Mapping[str, str], image: Path) -> None:
    """Run one of the programs, whose exit code does not always show a failure."""
    ended = shell.run_captured(command, env)
    errors = " ".join(line for line in ended.err.splitlines() if not re.match(r"(debugfs|mke2fs) \d", line)).strip()
    if "No space left" in errors:
        raise FullDisk(f"no room for {image}, which takes as much as the data; give another folder with --work-dir.")
    if ended.code or errors:
        raise MachineError(f"{Path(command[0]).name} could not make {image}: {errors or f'exit code {ended.code}'}")


def _mke2fs(tools: Tools, folder: Path, image: Path, identity: str, files: int) -> list[str]:
    extended = f"hash_seed={identity},root_owner=0:0,nodiscard,lazy_itable_init=1"
    features = (
        "none,ext_attr,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize,"
        "metadata_csum"
    )
    return [tools.mke2fs, "-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256", "-m", "0", "-N", str(files + 16),
            "-L", "data", "-U", identity, "-O", features, "-E", extended, "-d", str(folder), str(image)]  # fmt: skip


def _same_everywhere(folder: Path, names: Sequence[str]) -> Iterator[str]:
    """debugfs's commands that replace owner, mode and times of the files."""
    for name in ("", *names):
        is_folder = (folder / name).is_dir()
        fields = {"mode": "040755" if is_folder else "0100644", "uid": "0", "gid": "0"}
        fields |= dict.fromkeys(("atime", "ctime", "mtime", "crtime"), f"@{_MADE}")
        fields |= dict.fromkeys(("atime_extra", "ctime_extra", "mtime_extra", "crtime_extra"), "0")
        if re.search(r'["\n\r]', name):  # debugfs has no way to quote these
            raise SettingsError(
                f"{one_line(folder / name, 300)}: give it a name without quotation marks and line ends."
            )
        for field, value in fields.items():
            yield f'set_inode_field "/{name}" {field} {value}\n'


def scan(image: Path) -> Blocks:
    """The blocks that the file system has written.

    Includes written zeros, as blocks that an encrypted snapshot lacks need not read as zeros.  ext4 reads only what it
    has written, so holes do no harm.
    """
    digests = dict[int, bytes]()
    with image.open("rb", buffering=0) as file:
        for index in written(file.fileno(), image.stat().st_size):
            block = read_block(file.fileno(), index)
            digests[index] = hashlib.sha256(block).digest()
    return Blocks(digests)


def read_block(file: int, index: int) -> bytes:
    """Read one block; the last may be shorter in the file, and is padded with zeros."""
    return os.pread(file, BLOCK, index * BLOCK).ljust(BLOCK, b"\0")


def written(file: int, size: int) -> Iterator[int]:
    """The indexes of the blocks outside of the holes of a sparse file; all if the file system does not report holes."""
    at, last = 0, -1
    while at < size:
        try:
            begin = os.lseek(file, at, os.SEEK_DATA)
            end = os.lseek(file, begin, os.SEEK_HOLE)
        except OSError:  # only a hole follows
            return
        for index in range(max(last + 1, begin // BLOCK), -(-end // BLOCK)):
            last = index
            yield index
        at = end
