"""The source of a user's training: unpacked once on this node, whole or not at all, however many ranks want it."""

import hashlib
import io
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path

from trainer.errors import MachineError, SettingsError, TrainerError, is_full, is_wrong_path, not_written, one_line
from trainer.script.config import ScriptConfig

# Of its digest, in the name of the folder.
DIGITS = 12


def source_folder(config: ScriptConfig) -> Path:
    """The top of the source, where it is unpacked; without an archive, the folder that this process was started in.

    What the script has written there before a restart is there again.  Raises SettingsError, MachineError.
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
    """Unpacks beside `goal` and takes its name at once: of several that do so the first counts."""
    if not archive.is_file():
        raise SettingsError(f"--source {one_line(archive, 300)} is no file; give the archive of the source.")
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
        part.chmod(0o755)  # mkdtemp keeps its folders to one user
        _take_name(part, goal)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _extract(archive: Path, content: bytes, folder: Path) -> None:
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
            tar.extractall(folder, filter="data")  # which refuses what would land outside, and devices
    except tarfile.FilterError as error:
        raise SettingsError(f"{one_line(archive, 300)} is refused: {one_line(error, 300)}.") from error
    except (tarfile.TarError, EOFError, zlib.error, KeyError) as error:  # KeyError: a hard link to nothing
        raise _damaged(archive, error) from error
    except OSError as error:
        if error.errno is None:  # gzip's own: what is no gzip file, or a wrong checksum
            raise _damaged(archive, error) from error
        raise


def _damaged(archive: Path, error: Exception) -> SettingsError:
    return SettingsError(f"{one_line(archive, 300)} is no whole .tar.gz ({one_line(error, 200)}); make it again.")


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
        if not goal.is_dir():  # else another rank, or node, was first: its folder holds the same
            raise
