# PYTHON_ARGCOMPLETE_OK
"""`python -m trainer.predict RUN IMAGE...`: classify images with a trained model, on the screen or as CSV."""

import argparse
import csv
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainer.contract import Exit
from trainer.datasets.encoded import UnreadableError
from trainer.datasets.tree import SUFFIXES, is_image
from trainer.errors import DataError, SettingsError, exit_code_of, not_written, one_line, printable
from trainer.files import below, is_file, is_place_for_file, write_atomically
from trainer.settings.argparser import complete, home_path, plain_parser
from trainer.terminal import cell

ABOUT = """Classify images with a trained model, and print each image's class and its probability.

  python -m trainer.predict runs/RUN photo.jpg
  python -m trainer.predict runs/RUN photos/ --csv classes.csv"""

COLUMNS = ("image", "rank", "class", "probability")
SHOWN = 5  # most unreadable images to list


def main(argv: Sequence[str]) -> int:
    """Classify images and return the exit code."""
    try:
        return exit_code_of(lambda: _predict(_read(argv)))
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        sys.stdout = None
        return Exit.DONE


def _read(argv: Sequence[str]) -> argparse.Namespace:
    parser = plain_parser("python -m trainer.predict", ABOUT)
    parser.add_argument("run", metavar="RUN", type=home_path, help="folder of a run, its model.pt, or a checkpoint")
    parser.add_argument("images", metavar="IMAGE", nargs="+", type=home_path, help="image file, or a folder of them")
    parser.add_argument("--csv", metavar="FILE", type=home_path, help=f"write {','.join(COLUMNS)} to FILE instead")
    parser.add_argument("--top", metavar="N", type=_count, default=1, help="classes for each image (default: 1)")
    parser.add_argument(
        "--batch-size", metavar="N", type=_count, default=32, help="images in one forward pass (default: 32)"
    )
    parser.add_argument(
        "--device", choices=("auto", "cuda", "cpu"), default="auto", help="auto is a GPU if there is one"
    )
    complete(parser)
    return parser.parse_args(argv)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _predict(args: argparse.Namespace) -> None:
    images = find_images(args.images)
    if args.csv is not None:
        _check_csv_path(args.csv)
    from trainer.distributed.ranks import Ranks
    from trainer.process.machine import pick_device
    from trainer.trained import load  # torch takes seconds to import; wrong paths need not wait

    trained = load(args.run, pick_device(args.device, Ranks()))
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(COLUMNS)
    unreadable = []
    for path, guesses in trained.classify_all(images, args.batch_size):
        if isinstance(guesses, UnreadableError):
            unreadable.append(_shown(path))
            continue
        best = guesses[: args.top]
        if args.csv is None:
            print(_shown(path), *(f"{printable(guess.name)} {guess.probability:.1%}" for guess in best), sep="  ")
        rows.writerows(
            (cell(_shown(path)), rank, cell(printable(guess.name)), f"{guess.probability:.6f}")
            for rank, guess in enumerate(best, start=1)
        )
    if args.csv is not None:
        _write(args.csv, table.getvalue())
        print(f"{len(images) - len(unreadable):,} of {len(images):,} images: {args.csv}")
    if unreadable:
        raise DataError(_unreadable(unreadable, len(images)))


def find_images(paths: Sequence[Path]) -> list[Path]:
    """The files among `paths`, and for a folder all images below it, sorted.  Raises DataError."""
    found = [image for path in paths for image in _images_at(path)]
    if not found:
        raise DataError(f"no images ({' '.join(SUFFIXES)}) in {', '.join(map(_shown, paths))}.")
    return found


def _images_at(path: Path) -> Iterator[Path]:
    try:
        if path.is_dir():
            images = (found for found in below(path) if is_image(found.relative_to(path).as_posix()))
            yield from sorted(filter(is_file, images))
            return
        path.stat()
    except OSError as error:  # such as a name that is too long
        raise DataError(f"no image {one_line(path, 300)} ({error.strerror}); check the path.") from error
    yield path


def _check_csv_path(table: Path) -> None:
    if not is_place_for_file(table):
        raise SettingsError(f"--csv {one_line(table, 300)}: give the name of a file in a folder that exists.")


def _write(path: Path, text: str) -> None:
    try:
        write_atomically(path, text)
    except OSError as error:
        raise not_written(error, f"cannot write {path} ({error.strerror}); choose another --csv.") from error


def _unreadable(names: Sequence[str], images: int) -> str:
    shown = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
    return f"{len(names)} of {images} images could not be read: {shown}; replace them or leave them out."


def _shown(path: Path) -> str:
    return printable(str(path))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
