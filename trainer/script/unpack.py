"""Unpack the source archive of a user's training, atomically and once per node."""

import hashlib
import io
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path

from trainer.errors import MachineError, SettingsError, TrainerError, is_full, is_wrong_path, not_written, one_line
from trainer.script.config import ScriptConfig

# Digits of the digest in the folder's name.
DIGITS = 12


def source_folder(config: ScriptConfig) -> Path:
    """The top folder of the unpacked source; without an archive, the current folder.

    Files that the script wrote there survive a restart.  Raises SettingsError, MachineError.
    """
    if config.source is None:
        return Path.cwd()
    assert config.work is not None
    goal = config.work.absolute() / config.digest[:DIGITS]
    if not goal.is_dir():
        try:
            _unpack(config.source, config.digest, goal)
        except OSError as error:
            raise _not_unpacked(config.source, goal, error) from error
    return goal


def _unpack(archive: Path, digest: str, goal: Path) -> None:
    """Unpack to a temporary folder and rename it to `goal`; if several ranks do, the first wins."""
    if not archive.is_file():
        raise SettingsError(f"--source {one_line(archive, 300)} is not a file; give the archive of the source.")
    content = archive.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise MachineError(
            f"{one_line(archive, 300)} is not the source that was sent (its SHA-256 begins with {found[:DIGITS]}, not "
            f"with {digest[:DIGITS]}); it is damaged, so send it again."
        )
    goal.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{goal.name}.", dir=goal.parent))
    try:
        _extract(archive, content, part)
        part.chmod(0o755)  # mkdtemp creates folders for one user only
        _take_name(part, goal)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _extract(archive: Path, content: bytes, folder: Path) -> None:
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
            tar.extractall(folder, filter="data")  # rejects devices and paths outside the folder
    except tarfile.FilterError as error:
        raise SettingsError(f"{one_line(archive, 300)} is refused: {one_line(error, 300)}.") from error
    except (tarfile.TarError, EOFError, zlib.error, KeyError) as error:  # KeyError: a hard link to nothing
        raise _damaged(archive, error) from error
    except OSError as error:
        if error.errno is None:  # from gzip: not a gzip file, or a wrong checksum
            raise _damaged(archive, error) from error
        raise


def _damaged(archive: Path, error: Exception) -> SettingsError:
    return SettingsError(f"{one_line(archive, 300)} is not a complete .tar.gz ({one_line(error, 200)}); make it again.")


def _not_unpacked(archive: Path, goal: Path, error: OSError) -> TrainerError:
    sentence = f"cannot unpack {one_line(archive, 300)} to {one_line(goal, 300)} ({error.strerror})"
    if is_wrong_path(error):
        return SettingsError(f"{sentence}; choose another --work.")
    remedy = "make room, then start again" if is_full(error) else "start again"
    return not_written(error, f"{sentence}; {remedy}.")


def _take_name(part: Path, goal: Path) -> None:
    try:
        part.rename(goal)
    except OSError:
        if not goal.is_dir():  # otherwise another rank or node created the same folder first
            raise
