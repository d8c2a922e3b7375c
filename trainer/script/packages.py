"""Install the packages that a user's source requires into a folder on top of the image's, once per node.

pip reports which requirements are missing, and exactly those are installed into a separate folder; nothing in the
image is replaced.  The folder's name is a hash of the source, the interpreter and the installed packages.
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
# Options that say where to find packages: also needed for the final installation.
_WHERE = re.compile(
    r"\s*(-i|-f|--index-url|--extra-index-url|--find-links|--no-index|--trusted-host|--pre|--prefer-binary"
    r"|--only-binary|--no-binary)\b"
)
_NO_NETWORK = re.compile(
    r"connection broken by|Failed to establish a new connection|Temporary failure in name resolution|ProxyError"
    r"|Connection (refused|reset)|Network is unreachable|Read timed out|ReadTimeoutError|ConnectTimeout"
)
# Messages of pip after the index has answered: retrying would give the same result.
_ANSWERED = re.compile(r"\(from versions: (?!none\))|ResolutionImpossible|DO NOT MATCH THE HASHES")


def run_pip(words: Sequence[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run pip in `folder`, to which paths in requirements files are relative."""
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, errors="replace", check=False)


def layer_for(listed: Path, work: Path, source_digest: str, began: float, run: Run = run_pip) -> Path:
    """The folder with the packages in the requirements file `listed` that the image lacks; created if needed.

    Ranks of one node wait for the one that creates it.  began: when this process was started, by time.time(); a
    failure since then is not retried.  Raises SettingsError, MachineError.
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
    """Hash of the source, the installed packages and the interpreter."""
    parts = [sys.executable, sys.version, *_installed(), source_digest]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _texts(listed: Path, seen: set[Path]) -> Iterator[str]:
    """The text of a requirements file and of those it includes."""
    file = listed.resolve()
    if file in seen or not file.is_file():  # pip reports missing files
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
            found |= {name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info"))}  # noqa: PTH208  # twice as fast
    return sorted(found)


def exactly(report: Mapping[str, Any], listed: Path) -> str:
    """A requirements file for exactly what a report of pip's would install; empty if nothing is missing.

    https://pip.pypa.io/en/stable/reference/installation-report/
    """
    rows = report["install"]
    if not rows:
        return ""
    texts = list(_texts(listed, set()))
    where = [line for text in texts for line in lines_of(text) if _WHERE.match(line)]
    pins = [
        _pin(row) + hashes for row, hashes in zip(rows, _hash_options(rows, hashes_in(texts), listed.name), strict=True)
    ]
    return "\n".join([*where, *pins]) + "\n"


def _pin(row: Mapping[str, Any]) -> str:
    metadata = row["metadata"]
    # Also packages found in a folder: --find-links in an included file is relative to that file.
    is_placed = row["is_direct"] or row["download_info"]["url"].startswith("file:")
    place = f" @ {_place(row['download_info'])}" if is_placed else f"=={metadata['version']}"
    return str(metadata["name"]) + place


def _hash_options(
    rows: Sequence[Mapping[str, Any]], demanded: Mapping[str, Sequence[str]] | None, listed: str
) -> list[str]:
    """pip's options for the hashes of each row: those that the user demands, else what pip has found.

    pip requires hashes for all packages or for none, and a VCS repository has none.
    """
    if demanded is not None:
        hashes = [hashes_of(row, demanded, listed) for row in rows]
    else:
        found = [row["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256") for row in rows]
        hashes = [[f"sha256:{digest}"] if all(found) else [] for digest in found]
    return ["".join(f" --hash={one}" for one in each) for each in hashes]


def _place(found: Mapping[str, Any]) -> str:
    """The URL of a package that was given by URL; for a VCS repository, with the commit that pip resolved.

    https://packaging.python.org/en/latest/specifications/direct-url-data-structure/
    """
    url, control = str(found["url"]), found.get("vcs_info")
    if control:
        url = f"{control['vcs']}+{url}@{control['commit_id']}"
    return f"{url}#subdirectory={found['subdirectory']}" if found.get("subdirectory") else url


def _named(report: Mapping[str, Any]) -> str:
    """The packages to install, such as 'numpy 2.1, attrs 25.1'."""
    return ", ".join(f"{row['metadata']['name']} {row['metadata']['version']}" for row in report["install"])


def failure(listed: Path, ended: "subprocess.CompletedProcess[str]") -> TrainerError:
    """The error for a failed pip run: its last error in one sentence, its last lines as a note."""
    lines = [line for line in (ended.stdout + ended.stderr).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR: ")]
    why = one_line((errors or lines or ["pip printed nothing"])[-1], 300).removeprefix("ERROR: ").rstrip(".")
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
    prefix = f".{layer.name}.{socket.gethostname()}."
    for left in layer.parent.glob(f"{prefix}*"):  # left by a killed process: the lock excludes others on this host
        shutil.rmtree(left, ignore_errors=True)
    part = Path(tempfile.mkdtemp(prefix=prefix, dir=layer.parent))  # unique, as an orphaned pip may still be writing
    try:
        part.chmod(0o755)
        report, pins = part / "report.json", part / "exactly.txt"
        _checked(run([*PIP, "--dry-run", "--report", str(report), "-r", str(listed)], listed.parent), listed, layer)
        lacking = json.loads(report.read_text())
        if text := exactly(lacking, listed):
            pins.write_text(text, "utf-8-sig")  # with BOM, or an older pip would use the locale's encoding
            say(f"{listed.name}: installing {_named(lacking)}")
            words = [*PIP, "--no-deps", "--target", str(part), "-r", str(pins)]
            _checked(run(words, listed.parent), listed, layer)
        with suppress(OSError):
            part.rename(layer)
        if not layer.is_dir():  # otherwise another node created it first
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
    """Raise the error of another rank that failed to install since `began`, and has reported it."""
    with suppress(FileNotFoundError):
        if _failed(layer).stat().st_mtime >= began:
            with suppress(ValueError, TypeError):  # damaged: pip reports it again
                code, sentence = read_json(_failed(layer))
                error = error_with(Exit(code), str(sentence))
                error.is_reported = True
                raise error
        _failed(layer).unlink()
