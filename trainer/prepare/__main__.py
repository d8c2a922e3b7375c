# PYTHON_ARGCOMPLETE_OK
"""`python -m trainer.prepare SRC DST`: convert images to shards that a training reads from disk or from S3."""

from __future__ import annotations

import argparse
import re
import signal
import sys
from collections.abc import Sequence
from shlex import quote
from types import FrameType
from typing import NoReturn

from trainer.errors import Interrupted, SettingsError, exit_code_of
from trainer.process.libraries import usable_cores
from trainer.settings.argparser import complete, home_path, plain_parser
from trainer.terminal import say

ABOUT = """Convert images into shards for training, once, and limit their shorter side.

  python -m trainer.prepare photos/ prepared/                    # photos/train/CLASS/..., photos/val/CLASS/...
  python -m trainer.prepare ILSVRC/ imagenet/                    # the three files of ILSVRC 2012, unpacked or not
  python -m trainer.prepare cifar-10-python.tar.gz cifar10/
  python -m trainer --dataset imagefolder --data-dir prepared/   # trains on them

SRC may also be a tar or zip with images in train/CLASS/ and val/CLASS/.
After an interruption, the same command resumes.  The shards depend on the images and the flags only."""

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
AGAIN = "run the same command again to resume."


def main(argv: Sequence[str]) -> int:
    """Prepare a data set and return the exit code."""
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        return exit_code_of(lambda: _prepare(_read(argv)), f"stopped; finished shards are kept: {AGAIN}")
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    raise Interrupted(f"asked to stop; finished shards are kept: {AGAIN}")


def _read(argv: Sequence[str]) -> argparse.Namespace:
    parser = plain_parser("python -m trainer.prepare", ABOUT)
    parser.add_argument("source", metavar="SRC", type=home_path, help="folder or archive of images")
    parser.add_argument("target", metavar="DST", type=home_path, help="new folder for the shards")
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--resize", metavar="PX", type=_number(32, 4096), default=256,
        help="limit the shorter side to PX pixels (default: 256); smaller images are not changed",
    )  # fmt: skip
    size.add_argument(
        "--no-resize", dest="resize", action="store_const", const=None, help="keep every image byte for byte"
    )
    parser.add_argument(
        "--quality", metavar="Q", type=_number(50, 100), default=92, help="quality of resized JPEGs (default: 92)"
    )
    parser.add_argument("--name", metavar="NAME", type=_name, help="name of the data set (default: SRC's)")
    parser.add_argument(
        "--shard-mb", metavar="MB", type=_number(1, 10_000), default=64, help="approximate shard size (default: 64)"
    )
    parser.add_argument(
        "--max-bad-images", metavar="N", type=_number(0, 10**9), default=0,
        help="unreadable images to skip before this fails (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--workers",
        metavar="N",
        type=_number(1, 1024),
        default=usable_cores(),
        help="processes (default: one per core)",
    )
    complete(parser)
    return parser.parse_args(argv)


def _number(least: int, most: int) -> type[int]:
    """An argparse type for whole numbers from `least` to `most`."""

    def convert(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least:,} to {most:,}")
        return int(text)

    return convert  # type: ignore[return-value]


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} may have only lower-case letters, digits, dots and hyphens")
    return text


def _prepare(args: argparse.Namespace) -> None:
    source, target = args.source, args.target
    if not source.exists():
        raise SettingsError(f"no {source}; give a folder or an archive of images as SRC.")
    if target.resolve() == source.resolve():
        raise SettingsError(f"{target} cannot be SRC and DST; give a new folder as DST.")
    from trainer.prepare.pipeline import Options, Screen, prepare  # slow to import; report wrong paths first
    from trainer.prepare.shard import Recipe

    recipe = Recipe(args.resize, args.quality)
    options = Options(source, target, args.name, recipe, args.shard_mb * 10**6, args.max_bad_images, args.workers)
    manifest = prepare(options, Screen(say, sys.stderr.isatty()))
    train, val = manifest.splits.train, manifest.splits.val
    before, after = manifest.source["bytes"], train.bytes + val.bytes
    left_out = f", {manifest.bad_images:,} unreadable left out" if manifest.bad_images else ""
    say(
        f"{manifest.name}: {train.images:,} images to train on, {val.images:,} to evaluate on, "
        f"{len(manifest.classes):,} classes{left_out}; {_size(before)} in {_size(after)}, "
        f"{len(train.shards) + len(val.shards):,} shards"
    )
    say(f"  python -m trainer --dataset imagefolder --data-dir {quote(str(target))}")


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
