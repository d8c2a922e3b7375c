"""The folder of a run's results: found or made, for this run alone, and removed again if it stays empty."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from trainer.contract import CHECKPOINTS, CURVES, METRICS, OUTCOME, PLAIN_WEIGHTS, SETTINGS, SIGNATURE, WEIGHTS
from trainer.errors import SettingsError, not_writable, one_line
from trainer.files import is_file, is_folder
from trainer.process.folder_lock import IN_USE, FolderLock, Taken


class RunFolder:
    """path: where it is, or begins to be looked for.

    is_named: by the user, so that it is this folder or none; else one with a suffix is taken where it is in use.
    is_new: it must not be there yet.  checkpoint_dir: locked, too, where the user has named one.
    """

    def __init__(self, path: Path, *, is_named: bool, is_new: bool = False, checkpoint_dir: Path | None = None) -> None:
        self.path = path
        self._is_named, self._is_new, self._checkpoint_dir = is_named, is_new, checkpoint_dir
        self._locks: list[FolderLock] = []
        self._made: list[Path] = []

    def claim(self) -> Path:
        """Takes the folder for this run and returns it.

        Raises Taken; SettingsError or MachineError where it cannot be written to, or has something else than a file
        where one will be written: that would end the run when it is done.
        """
        self.path = self._take_first_free()
        if self._checkpoint_dir is not None:
            try:
                self._take(self._checkpoint_dir)
            except OSError as error:
                raise not_writable(self._checkpoint_dir, error) from error
        _refuse_no_files(self.path, self._checkpoint_dir or self.path / CHECKPOINTS)
        with suppress(OSError):  # of an earlier run
            (self.path / OUTCOME).unlink(missing_ok=True)
        return self.path

    def for_outcome(self) -> Path | None:
        """Where to write how the run ended: None where that would make a folder that the user did not name, or touch
        another run's.
        """
        if not self._locks:
            if not self._is_named:
                return None
            try:
                self._take(self.path)
            except (OSError, Taken):
                return None
        return self.path if self._is_named or _has_content(self.path) else None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for lock in self._locks:
            lock.release()
        for folder in self._made:
            with suppress(OSError):  # it has something in it
                folder.rmdir()

    def _take_first_free(self) -> Path:
        for folder in self._candidates():
            try:
                self._take(folder, is_new=self._is_new)
                return folder
            except Taken:
                if self._is_named:
                    raise
            except OSError as error:
                if self._is_new and isinstance(error, FileExistsError):
                    continue
                raise not_writable(folder, error) from error
        raise AssertionError("there is always another suffix")

    def _candidates(self) -> Iterator[Path]:
        yield self.path
        for number in itertools.count(2):
            yield self.path.with_name(f"{self.path.name}-{number}")

    def _take(self, folder: Path, *, is_new: bool = False) -> None:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(exist_ok=not is_new)
        self._made[:0] = missing
        lock = FolderLock(folder)
        lock.take()
        self._locks.append(lock)


def _refuse_no_files(run_dir: Path, checkpoint_dir: Path) -> None:
    """Raises SettingsError for what is no file where the run will write one."""
    weights = [WEIGHTS, f"{WEIGHTS}.sha256", PLAIN_WEIGHTS, f"{PLAIN_WEIGHTS}.sha256"]
    files = [run_dir / name for name in (METRICS, CURVES, SETTINGS, *weights, SIGNATURE, OUTCOME)]
    # As state/checkpoint.py names them, which takes torch and its seconds.
    for name in ("best.pt", "epoch-*-step-*.pt"):
        files += [*checkpoint_dir.glob(name), *checkpoint_dir.glob(f"{name}.sha256")]
    for path in files:
        if os.path.lexists(path) and not is_file(path):
            kind = "a folder" if is_folder(path) else "no ordinary file"
            raise SettingsError(
                f"{one_line(path, 300)} is {kind}, and the run would write a file of that name; move it away, or "
                f"choose another --run-dir{'' if path.parent == run_dir else ' or --checkpoint-dir'}."
            )


def _has_content(folder: Path) -> bool:
    return any(path.name != IN_USE for path in folder.iterdir())
