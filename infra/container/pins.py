"""Print the requirements of an image: only packages that the base lacks, with the hashes of the lock.

    python pins.py LOCK hold            constraints: the base's packages at their versions, others as in the lock
    python pins.py LOCK take NAME...    the lock's lines for these packages
    python pins.py LOCK pick REPORT     the lock's lines for the packages in a report of `pip install --dry-run`

pip checks hashes only if every requirement has one, and which packages a base lacks is not known in advance.  So pip
first resolves by version, in a dry run, and then installs exactly that with the lock's hashes.  A version conflict ends
the build; without constraints pip would replace the base's torch.
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
    """Map the name of each package to its requirement, including the lines of hashes."""
    rows = re.findall(r"^(([\w.-]+)==.*(?:\n[ \t]+--hash=.*)*)", text, re.MULTILINE)
    return {canonical(name): requirement for requirement, name in rows}


def hold(lock: dict[str, str]) -> Iterator[str]:
    """The constraints, without packages outside the lock.

    pip does not touch those, and a Linux distribution's packages may have versions that are invalid for pip.
    """
    installed = dict[str, str]()
    for distribution in distributions():
        name, version = canonical(distribution.metadata["Name"] or ""), distribution.version
        if name in lock and version:  # a damaged distribution has neither
            installed.setdefault(name, version)  # if there are two, Python imports the first
    for name, version in installed.items():
        yield f"{name}=={version}"
    for name, requirement in lock.items():
        if name not in installed:
            yield requirement.split("\\")[0].strip()


def pick(lock: dict[str, str], report: dict[str, Any]) -> Iterator[str]:
    """The lock's lines for the packages in pip's report, except the wheel built here."""
    for item in report["install"]:
        name, version = canonical(item["metadata"]["name"]), item["metadata"]["version"]
        if item["is_direct"]:
            continue
        if not re.match(rf"\S+=={re.escape(version)}[ \\]", lock.get(name, "")):
            sys.exit(f"error: the base lacks {name}, and the lock has no {name} {version}; add it to the base, "
                     "or to pyproject.toml and run make lock.")  # fmt: skip
        yield lock[name]


def main(path: str, verb: str, *words: str) -> None:
    lock = read_lock(Path(path).read_text())
    if verb == "hold":
        lines = hold(lock)
    elif verb == "take":
        lines = (lock[name] for name in words)
    else:
        lines = pick(lock, json.loads(Path(words[0]).read_text()))
    print("\n".join(lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
