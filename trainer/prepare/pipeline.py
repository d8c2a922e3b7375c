"""The steps of a preparation, from finding the source to manifest.json.  It can be killed and resumed at any time."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from trainer.datasets.encoded import refuse_too_many
from trainer.datasets.manifest import (
    MANIFEST,
    SPLITS,
    UNFINISHED,
    Manifest,
    Splits,
    find_manifest,
)
from trainer.datasets.tree import find_tree, images_by_class
from trainer.errors import DataError, FullDisk, MachineError, SettingsError, is_full, is_wrong_path, one_line
from trainer.files import write_atomically
from trainer.prepare import cifar, tars
from trainer.prepare.listing import Item, Listing, Origin, Source
from trainer.prepare.shard import PART, HalfWork, Recipe, check, make
from trainer.process.parent import end_with_starter
from trainer.process.run_folder import IN_USE, FolderLock

BAD_IMAGES = "bad-images.txt"
REPORT_EVERY_S = 0.25
LINE_EVERY_S = 30.0
AHEAD = 2  # tasks created in advance for each worker

Count = Callable[[int], object]  # called with the number of images just done
Work = Callable[[Any, Count], Any]  # (task, count) -> result

_shared: dict[str, Any] = {}  # in a worker: set by _init_worker()


@dataclass(frozen=True)
class Options:
    """The options of a preparation."""

    source: Path
    target: Path
    name: str | None
    recipe: Recipe
    shard_bytes: int  # approximate size of a shard
    max_bad_images: int  # unreadable images to skip before it fails
    workers: int


@dataclass(frozen=True)
class Screen:
    """Output to the user."""

    say: Callable[[str], None]  # prints a line
    interactive: bool  # show a progress bar


def prepare(options: Options, screen: Screen) -> Manifest:
    """Write the shards, or check that they are written already.  Raises TrainerError."""
    target, work_dir = options.target, options.target / UNFINISHED
    with _translate_errors(target):
        _take_target(target)
        with _removed_if_empty(target), FolderLock(target):
            is_done = (target / MANIFEST).exists()
            with _work_dir(work_dir):
                found = find_source(options.source, work_dir)
                return _checked(options, found) if is_done else _made(options, found, screen)


@contextmanager
def _work_dir(work_dir: Path) -> Iterator[None]:
    """Create the folder for unfinished work, and remove it at the end, or after an error if it is empty."""
    work_dir.mkdir(exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # not empty
            work_dir.rmdir()
        raise
    shutil.rmtree(work_dir)


def _checked(options: Options, found: Source) -> Manifest:
    """The existing manifest.  Raises SettingsError if it is from other images or other flags."""
    manifest, recipe = find_manifest(options.target), options.recipe
    flags = (recipe.resize, recipe.quality if recipe.resize else None)
    name = options.name or _usual_name(found.name)
    asked = (_source(found), name, *flags)
    # An earlier version did not store eval_split.
    source = manifest and {"eval_split": found.eval_split, **manifest.source}
    if manifest is None or (source, manifest.name, manifest.resize, manifest.quality) != asked:
        raise SettingsError(
            f"{one_line(options.target, 300)} was already prepared from other images or with other flags; "
            "give another DST, or delete it."
        )
    return manifest


def _made(options: Options, found: Source, screen: Screen) -> Manifest:
    target, recipe = options.target, options.recipe
    for name in SPLITS:
        (target / name).mkdir(exist_ok=True)
    halves = [HalfWork(name, listing, target, recipe, options.shard_bytes) for name, listing in found.halves()]
    _make_shards(halves, options, screen)
    bad = {name: why for half in halves for name, why in sorted(half.bad.items())}
    _refuse_bad(options, bad)
    _verify(halves, options, screen)
    splits = Splits(**{half.name: half.finish() for half in halves})
    _remove_leftovers(target, splits)
    manifest = Manifest(
        name=options.name or _usual_name(found.name),
        classes=tuple(found.classes),
        resize=recipe.resize,
        quality=recipe.quality if recipe.resize else None,
        splits=splits,
        source=_source(found),
        bad_images=len(bad),
    )
    write_atomically(target / MANIFEST, manifest.as_json())
    return manifest


def _make_shards(halves: Sequence[HalfWork], options: Options, screen: Screen) -> None:
    of_name = {half.name: half for half in halves}
    tasks = chain.from_iterable(half.tasks() for half in halves)
    with shown("preparing", sum(half.images for half in halves), screen.interactive, screen.say) as count:
        for task, made in run_all(tasks, make, options.workers, count):
            of_name[task.half].take(task, made)


def _verify(halves: Sequence[HalfWork], options: Options, screen: Screen) -> None:
    """Read every shard back.  Raises MachineError if one differs from what was written."""
    checks = chain.from_iterable(half.checks() for half in halves)
    with shown("verifying", sum(map(len, halves)), screen.interactive, screen.say) as count:
        for shard, wrong in run_all(checks, check, options.workers, count):
            if wrong:
                raise MachineError(
                    f"{shard.path}: {wrong}; the disk may be failing. Run the same command to try again."
                )


def _source(found: Source) -> dict[str, Any]:
    """The manifest's description of the source.  eval_split: see Source; sha256: over names, labels and sizes."""
    halves = [half for _, half in found.halves()]
    return {
        "kind": found.kind,
        "name": found.name,
        "eval_split": found.eval_split,
        "images": sum(map(len, halves)),
        "bytes": sum(half.total_bytes() for half in halves),
        "sha256": found.digest(),
    }


def _usual_name(source: str) -> str:
    """The default name of the data set: ILSVRC2012 -> ilsvrc2012, my photos.tar.gz -> my-photos."""
    stem = re.sub(r"(\.tar)?(\.\w+)?$", "", source) or source
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-") or "images"


def _refuse_bad(options: Options, bad: dict[str, str]) -> None:
    """Write the report on unreadable images.  Raises DataError if there are too many."""
    report = options.target / BAD_IMAGES
    if not bad:
        report.unlink(missing_ok=True)
        return
    write_atomically(report, "".join(f"{one_line(name, 300)}: {why}\n" for name, why in bad.items()))
    refuse_too_many(bad, options.max_bad_images)


def _take_target(target: Path) -> None:
    """Create the target folder.  Raises SettingsError if it contains files of anything else."""
    target.mkdir(parents=True, exist_ok=True)
    names = {path.name for path in target.iterdir()} - {IN_USE}
    if names and not names & {MANIFEST, UNFINISHED}:
        raise SettingsError(
            f"{one_line(target, 300)} holds other files, such as {one_line(min(names))}; give a new folder as DST."
        )


def _remove_leftovers(target: Path, splits: Splits) -> None:
    """Remove shards of an interrupted run with other flags, and incomplete shards."""
    current = {shard.file for half in (splits.train, splits.val) for shard in half.shards}
    for name in SPLITS:
        for path in (target / name).iterdir():
            if path.suffix == PART or (path.suffix == ".tar" and f"{name}/{path.name}" not in current):
                path.unlink()


@contextmanager
def _removed_if_empty(target: Path) -> Iterator[None]:
    try:
        yield
    finally:
        with suppress(OSError):  # not empty
            target.rmdir()


@contextmanager
def _translate_errors(target: Path) -> Iterator[None]:
    """Translate OSError into a TrainerError with an explanation and the right exit code."""
    try:
        yield
    except OSError as error:
        again = "run the same command again to resume"
        if is_full(error):
            raise FullDisk(f"the disk of {one_line(target, 300)} is full; free some space, and {again}.") from error
        path = one_line(error.filename or target, 300)
        if is_wrong_path(error):
            raise SettingsError(
                f"cannot use {path} ({error.strerror}); fix that, or give another SRC or DST."
            ) from error
        why = one_line(error.strerror or error)
        raise MachineError(f"cannot use {path} ({why}); fix that, and {again}.") from error


def find_source(source: Path, work_dir: Path) -> Source:
    """The images in `source`.  work_dir: a folder for unpacking compressed archives.  Raises DataError."""
    if source.is_file():
        return _archive(source, work_dir)
    if (source / tars.TRAIN).exists() or (source / tars.VAL).exists():
        return tars.ilsvrc(source)
    if archive := next((source / name for name in cifar.ARCHIVES if (source / name).is_file()), None):
        return cifar.cifar(archive, work_dir)
    if find_manifest(source) is not None:
        raise DataError(f"{one_line(source, 300)} is already prepared: it has a {MANIFEST}; prepare its source.")
    return _folder(source)


def _archive(source: Path, work_dir: Path) -> Source:
    if source.name in (tars.TRAIN, tars.VAL):
        return tars.ilsvrc(source.parent)
    if source.name in cifar.ARCHIVES:
        return cifar.cifar(source, work_dir)
    return tars.tar_of_folders(source, work_dir)


def _folder(source: Path) -> Source:
    try:
        tree = find_tree(source)
    except DataError as error:
        raise DataError(str(error).replace("point --data-dir at", "give as SRC")) from error
    train, val = (_listing(root, tree.classes) for root in (tree.train, tree.evaluation))
    return Source("folder", source.resolve().name, tree.classes, train, val, tree.evaluation.name)


def _listing(root: Path, classes: Sequence[str]) -> Listing:
    listing = Listing(Origin(root))
    for label, files in enumerate(images_by_class(root, classes, {})):
        for file in files:
            listing.add(_item(root, file, label))
    return listing


def _item(root: Path, name: str, label: int) -> Item:
    try:
        status = os.stat(f"{root}{os.sep}{name}")  # a Path for each file would double the time
    except OSError:
        return Item(name, label, 0)  # the error is reported when it is read
    return Item(name, label, status.st_size, status.st_mtime_ns)


# ---- worker processes, which end with this one even if it is killed, and their progress


def run_all(tasks: Iterable[Any], work: Work, workers: int, count: Count) -> Iterator[tuple[Any, Any]]:
    """Yield each task with its result, in order of completion.  Raises what `work` raises.

    work: a module-level function, because it is pickled.  A single worker runs in this process.  Closing the generator
    stops the workers.
    """
    if workers == 1:
        for task in tasks:
            yield task, work(task, count)
        return
    context = multiprocessing.get_context("spawn")
    done, cancelled = context.Value("Q"), context.Event()
    pool = ProcessPoolExecutor(workers, context, _init_worker, (done, cancelled))
    remaining, pending = iter(tasks), dict[Future[Any], Any]()
    try:
        while True:
            added = islice(remaining, AHEAD * workers - len(pending))
            pending |= {pool.submit(_do, work, task): task for task in added}
            if not pending:
                return
            ready, _ = wait(pending, REPORT_EVERY_S, FIRST_COMPLETED)
            count(_take_count(done))
            for future in ready:
                yield pending.pop(future), future.result()
    except BrokenProcessPool as error:
        raise MachineError(
            "a worker was killed, probably for lack of memory; run the same command again with fewer --workers to "
            "resume."
        ) from error
    finally:
        cancelled.set()
        pool.shutdown(cancel_futures=True)


def _take_count(done: Any) -> int:
    """The number of images counted since the last call."""
    with done.get_lock():
        taken, done.value = int(done.value), 0
    return taken


def _init_worker(done: Any, cancelled: Any) -> None:
    """Initialise a worker.  done: shared counter of images; cancelled: event that is set to stop all workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent handles it
    parent = multiprocessing.parent_process()
    assert parent is not None
    end_with_starter(parent.sentinel)
    _shared.update(done=done, cancelled=cancelled)


def _do(work: Work, task: Any) -> Any:
    return work(task, _count)


def _count(images: int) -> None:
    if _shared["cancelled"].is_set():
        raise CancelledError
    with _shared["done"].get_lock():
        _shared["done"].value += images


@contextmanager
def shown(what: str, total: int, interactive: bool, say: Callable[[str], None]) -> Iterator[Count]:
    """Yield a function to call with each number of images done: it updates a progress bar, or prints lines."""
    if not interactive:
        yield _Lines(what, total, say)
        return
    from tqdm import tqdm

    form = "{desc} |{bar}| {n_fmt}/{total_fmt} {rate_noinv_fmt} {remaining} left"
    with tqdm(desc=what, total=total, unit="", leave=False, dynamic_ncols=True, bar_format=form) as bar:
        yield bar.update


class _Lines:
    def __init__(self, what: str, total: int, say: Callable[[str], None]) -> None:
        self._what, self._total, self._say = what, total, say
        self._done, self._began = 0, time.monotonic()
        self._said_at = self._began

    def __call__(self, done: int) -> None:
        self._done += done
        now = time.monotonic()
        if now - self._said_at >= LINE_EVERY_S:
            self._said_at = now
            rate = self._done / (now - self._began)
            left_s = (self._total - self._done) / max(rate, 1e-9)
            self._say(
                f"{self._what}: {self._done:,} of {self._total:,}, {rate:,.0f}/s, about {left_s / 60:.0f} min left"
            )
