"""Folders that all ranks of a training use, or know of: agreed on, made and tried out before it begins."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from trainer.distributed.session import Session
from trainer.errors import not_writable


def agree_on_folder(joined: Session, claim_folder: Callable[[], Path]) -> Path:
    """The run's folder, as soon as rank 0 has claimed it.

    Collective.  It may take half a minute, until it is certain that the folder's last owner is dead.
    """
    claimed = joined.once_per_node(lambda: str(claim_folder()) if joined.ranks.is_head else "")
    return Path(joined.gather(claimed)[0])


def make_folders(joined: Session, *folders: Path) -> list[Path]:
    """Makes sure that `folders` can be written to; returns those that this rank made, the innermost first.  Collective.

    Called before the data is loaded, so that a folder that cannot be written to fails the run at once.
    """
    made: list[Path] = []

    def make() -> None:
        for folder in folders:
            missing = [path for path in (folder, *folder.parents) if not path.exists()]
            try:
                folder.mkdir(parents=True, exist_ok=True)
                made[:0] = missing
                trial = folder / f".writable-{joined.ranks.rank}"
                trial.touch()
                trial.unlink()
            except OSError as error:
                raise not_writable(folder, error) from error

    joined.once_per_node(make)
    return made


def remove_empty(folders: list[Path]) -> None:
    """Removes the folders that are still empty, as after an error in the data."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()
