"""What pip puts into an image: only what the base lacks, and of that only what has a hash in the lock.

    python pins.py LOCK hold            the constraints: what the base has stays as it is, the rest as in the lock
    python pins.py LOCK take NAME...    the lock's lines for these packages
    python pins.py LOCK pick REPORT     the lock's lines for what `pip install --dry-run --report` would install

pip takes hashes only for a list that is complete, and nobody knows before what a base has.  So pip says first what
is missing, from versions alone, and installs exactly that with the lock's hashes.  A version that does not fit ends
the build, where pip would otherwise replace the base's torch by another.
"""

import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(text: str) -> dict[str, str]:
    """{name: its requirement, with the lines of hashes that belong to it}."""
    found = re.findall(r"^(([\w.-]+)==.*(?:\n[ \t]+--hash=.*)*)", text, re.MULTILINE)
    return {canonical(name): whole for whole, name in found}


def hold(lock: dict[str, str]) -> Iterator[str]:
    """The constraints.  Of what no lock has nothing is said: pip has no reason to touch it, and a distribution's own
    packages have versions that pip does not take.
    """
    here = dict[str, str]()
    for found in distributions():
        name, version = canonical(found.metadata["Name"] or ""), found.version
        if name in lock and version:  # what is damaged has neither
            here.setdefault(name, version)  # of two on the path Python takes the first
    yield from (f"{name}=={version}" for name, version in here.items())
    yield from (whole.split("\\")[0].strip() for name, whole in lock.items() if name not in here)


def pick(lock: dict[str, str], report: dict[str, Any]) -> Iterator[str]:
    """The lines for pip's plan, but for the wheel that was built here."""
    for item in report["install"]:
        name, version = canonical(item["metadata"]["name"]), item["metadata"]["version"]
        if item["is_direct"]:
            continue
        if not re.match(rf"\S+=={re.escape(version)}[ \\]", lock.get(name, "")):
            sys.exit(f"error: the base lacks {name}, and the lock has no {name} {version}; add it to the base, "
                     "or to pyproject.toml and run make lock.")  # fmt: skip
        yield lock[name]


def main(place: str, verb: str, *words: str) -> None:
    lock = read_lock(Path(place).read_text())
    if verb == "hold":
        lines = hold(lock)
    elif verb == "take":
        lines = (lock[name] for name in words)
    else:
        lines = pick(lock, json.loads(Path(words[0]).read_text()))
    print("\n".join(lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
