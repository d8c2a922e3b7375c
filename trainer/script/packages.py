"""Packages that a user's source asks for: a layer over those of the image, made once per node and kept.

pip says what a requirements.txt lacks here, and exactly that is installed, into a folder of its own; nothing of the
image is replaced.  The folder's name says for which source, interpreter and installed packages it was made.
"""

import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainer.contract import Exit
from trainer.errors import MachineError, SettingsError, TrainerError, error_with, not_writable, one_line
from trainer.files import locked, read_json, write_atomically
from trainer.script.ending import SHOWN_LINES
from trainer.script.requirements import files_in, hashes_in, hashes_of, lines_of, text_of
from trainer.terminal import say

Run = Callable[[Sequence[str], Path], "subprocess.CompletedProcess[str]"]

PIP = (sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off")
# Lines that say where packages are, rather than which: they count for what is installed in the end, too.
_WHERE = re.compile(
    r"\s*(-i|-f|--index-url|--extra-index-url|--find-links|--no-index|--trusted-host|--pre|--prefer-binary"
    r"|--only-binary|--no-binary)\b"
)
_NO_NETWORK = re.compile(
    r"connection broken by|Failed to establish a new connection|Temporary failure in name resolution|ProxyError"
    r"|Connection (refused|reset)|Network is unreachable|Read timed out|ReadTimeoutError|ConnectTimeout"
)
# What pip says once the index has answered: it may have waited for that, but another try ends in the same way.
_ANSWERED = re.compile(r"\(from versions: (?!none\))|ResolutionImpossible|DO NOT MATCH THE HASHES")


def run_pip(words: Sequence[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """What pip says, started in `folder`: paths in its files are relative to it."""
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, errors="replace", check=False)


def layer_for(listed: Path, work: Path, source_digest: str, began: float, run: Run = run_pip) -> Path:
    """The folder with what the requirements file `listed` asks for and the image lacks; made if it is not there.

    Ranks of one node wait for the one that makes it.  began: when this process was started, by time.time(); a failure
    since then is not tried again.  Raises SettingsError, MachineError.
    """
    if not listed.is_file():
        raise SettingsError(f"--requirements {one_line(listed.name)} is not in the source; drop it, or add the file.")
    work = work.absolute()
    try:
        layer = work / f"packages-{_key(source_digest)}"
        work.mkdir(parents=True, exist_ok=True)
        with locked(layer.with_suffix(".lock")):
            if not layer.is_dir():
                _refuse_failed(layer, began)
                _make(layer, listed, run)
    except OSError as error:
        raise not_writable(work, error) from error
    return layer


def variables(layer: Path, env: Mapping[str, str]) -> dict[str, str]:
    """The variables that put `layer` before the image's own packages, and its programs before the image's."""
    behind = {"PYTHONPATH": "", "PATH": os.defpath} | dict(env)
    paths = {"PYTHONPATH": str(layer), "PATH": str(layer / "bin")}
    return {name: os.pathsep.join(filter(None, (path, behind[name]))) for name, path in paths.items()}


# ---- pure, but for reading files


def _key(source_digest: str) -> str:
    """Names what is to be installed, over which packages, for which interpreter."""
    parts = [sys.executable, sys.version, *_installed(), source_digest]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _texts(listed: Path, seen: set[Path]) -> Iterator[str]:
    """The text of a requirements file, and of those that it names."""
    file = listed.resolve()
    if file in seen or not file.is_file():  # pip says what it misses
        return
    seen.add(file)
    text = text_of(file.read_bytes())
    yield text
    for line in lines_of(text):
        for nested in files_in(line):
            yield from _texts(file.parent / nested, seen)


def _installed() -> list[str]:
    """The packages here, as the names of their folders: name-1.0.dist-info."""
    found: set[str] = set()
    for folder in sys.path:
        with suppress(OSError):
            found |= {name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info"))}  # noqa: PTH208  # twice as quick
    return sorted(found)


def exactly(report: Mapping[str, Any], listed: Path) -> str:
    """A requirements file for exactly what a report of pip's would install; empty where nothing lacks.

    https://pip.pypa.io/en/stable/reference/installation-report/
    """
    rows = report["install"]
    if not rows:
        return ""
    texts = list(_texts(listed, set()))
    where = [line for text in texts for line in lines_of(text) if _WHERE.match(line)]
    wanted = [_wanted(row) + held for row, held in zip(rows, _held(rows, hashes_in(texts), listed.name), strict=True)]
    return "\n".join([*where, *wanted]) + "\n"


def _wanted(row: Mapping[str, Any]) -> str:
    metadata = row["metadata"]
    # Also what was found in a folder: --find-links of a file that is named with -r is relative to that.
    is_placed = row["is_direct"] or row["download_info"]["url"].startswith("file:")
    place = f" @ {_place(row['download_info'])}" if is_placed else f"=={metadata['version']}"
    return str(metadata["name"]) + place


def _held(rows: Sequence[Mapping[str, Any]], demanded: Mapping[str, Sequence[str]] | None, listed: str) -> list[str]:
    """pip's options for the hashes of each row: those that the user demands, else what pip has found.

    pip takes hashes of all or of none, and a repository has none.
    """
    if demanded is not None:
        hashes = [hashes_of(row, demanded, listed) for row in rows]
    else:
        found = [row["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256") for row in rows]
        hashes = [[f"sha256:{digest}"] if all(found) else [] for digest in found]
    return ["".join(f" --hash={one}" for one in each) for each in hashes]


def _place(found: Mapping[str, Any]) -> str:
    """The address of what was named by its address; of a repository, the commit that pip has found there.

    https://packaging.python.org/en/latest/specifications/direct-url-data-structure/
    """
    url, control = str(found["url"]), found.get("vcs_info")
    if control:
        url = f"{control['vcs']}+{url}@{control['commit_id']}"
    return f"{url}#subdirectory={found['subdirectory']}" if found.get("subdirectory") else url


def _named(report: Mapping[str, Any]) -> str:
    """'numpy 2.1, attrs 25.1', for the user, who waits."""
    return ", ".join(f"{row['metadata']['name']} {row['metadata']['version']}" for row in report["install"])


def failure(listed: Path, ended: "subprocess.CompletedProcess[str]") -> TrainerError:
    """What pip's end means: its last error in one sentence, its last lines beside."""
    lines = [line for line in (ended.stdout + ended.stderr).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR: ")]
    why = one_line((errors or lines or ["pip says nothing"])[-1], 300).removeprefix("ERROR: ").rstrip(".")
    code, remedy = Exit.SETTINGS, "correct it"
    if "No space left on device" in ended.stderr:
        code, remedy = Exit.DISK, "make room, then start again"
    elif _NO_NETWORK.search(ended.stderr) and not _ANSWERED.search(ended.stderr):
        code, remedy = (
            Exit.MACHINE,
            "this node cannot reach the package index; start again, or put the packages into the image",
        )
    error = error_with(code, f"{listed.name} cannot be installed: {why}; {remedy}.")
    error.add_note("\n".join(lines[-SHOWN_LINES:]))
    return error


# ---- effects


def _make(layer: Path, listed: Path, run: Run) -> None:
    mine = f".{layer.name}.{socket.gethostname()}."
    for left in layer.parent.glob(f"{mine}*"):  # by one that was killed: no other process of this host is here
        shutil.rmtree(left, ignore_errors=True)
    part = Path(tempfile.mkdtemp(prefix=mine, dir=layer.parent))  # a pip that outlived its parent has another
    try:
        part.chmod(0o755)
        report, pins = part / "report.json", part / "exactly.txt"
        _checked(run([*PIP, "--dry-run", "--report", str(report), "-r", str(listed)], listed.parent), listed, layer)
        lacking = json.loads(report.read_text())
        if text := exactly(lacking, listed):
            pins.write_text(text, "utf-8-sig")  # with the mark, or an older pip would go by the locale
            say(f"{listed.name}: installing {_named(lacking)}")
            words = [*PIP, "--no-deps", "--target", str(part), "-r", str(pins)]
            _checked(run(words, listed.parent), listed, layer)
        with suppress(OSError):
            part.rename(layer)
        if not layer.is_dir():  # else another node, on a file system without locks, was first
            raise MachineError(f"cannot make {one_line(layer, 300)}; choose another --work.")
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _checked(ended: "subprocess.CompletedProcess[str]", listed: Path, layer: Path) -> None:
    if ended.returncode != 0:
        error = failure(listed, ended)
        with suppress(OSError):
            write_atomically(_failed(layer), json.dumps([error.code, str(error)]))
        raise error


def _failed(layer: Path) -> Path:
    return layer.with_suffix(".failed")


def _refuse_failed(layer: Path, began: float) -> None:
    """Raises the error that another rank has just met and reported."""
    with suppress(FileNotFoundError):
        if _failed(layer).stat().st_mtime >= began:
            with suppress(ValueError, TypeError):  # damaged: pip reports it again
                code, sentence = read_json(_failed(layer))
                error = error_with(Exit(code), str(sentence))
                error.is_reported = True
                raise error
        _failed(layer).unlink()
