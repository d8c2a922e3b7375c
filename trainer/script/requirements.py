"""Parse requirements files: lines, included files and required hashes.  Pure.

https://pip.pypa.io/en/stable/reference/requirements-file-format/
"""

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from trainer.errors import SettingsError, one_line

_CONTINUED = re.compile(r"\\\r?\n")
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*")
_INCLUDED = re.compile(r"\s*(?:-r|-c|--requirement|--constraint)[\s=]*(\S+)")
_DEMANDS = re.compile(r"(?<!\S)--(?:hash|require-hashes)\b")
_HASH = re.compile(r"--hash[\s=]+(\w+:[0-9A-Fa-f]+)")
# `demo==1.0`, `demo[extra]`, `demo @ https://...`, and neither `https://...` nor `./demo`.
_NAME = re.compile(r"\s*([A-Za-z0-9][\w.-]*)(?![\w.:/-])")


def text_of(content: bytes) -> str:
    """The text of a file in UTF-8, or in UTF-16 as PowerShell writes it; pip reports other encodings."""
    encoding = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    return content.decode(encoding, errors="replace")


def lines_of(text: str) -> list[str]:
    """The lines without comments, with backslash continuations joined as pip does."""
    return [_COMMENT.sub("", line) for line in _CONTINUED.sub(" ", text).splitlines()]


def files_in(line: str) -> Iterator[str]:
    """The file that a line includes with -r or -c, if any."""
    if included := _INCLUDED.match(line):
        yield included[1]


def hashes_in(texts: Iterable[str]) -> Mapping[str, Sequence[str]] | None:
    """The hashes in requirements files, such as sha256:12ab, by package or file name.

    None if there are none: with a single hash pip requires them for all packages.
    """
    demanded, found = False, dict[str, list[str]]()
    for text in texts:
        for line in lines_of(text):
            if _DEMANDS.search(line):
                demanded = True
                found.setdefault(_first(line), []).extend(_HASH.findall(line))
    return found if demanded else None


def hashes_of(row: Mapping[str, Any], demanded: Mapping[str, Sequence[str]], listed: str) -> Sequence[str]:
    """The required hashes for a row of pip's report.  Raises SettingsError if none; listed: file name for the error.

    The hashes in the report come from the index, and pip does not check them if the file has required ones.
    """
    name = row["metadata"]["name"]
    hashes = demanded.get(_plain(name)) or demanded.get(_plain(_file(str(row["download_info"]["url"]))))
    if not hashes:
        raise SettingsError(
            f"{listed} requires hashes, but has none for {one_line(name, 100)}; write it as "
            "NAME==VERSION --hash=sha256:..."
        )
    return hashes


def _first(line: str) -> str:
    """The normalized name of the package or file on a line."""
    named = _NAME.match(line)
    return _plain(named[1] if named else _file(line.split()[0]))


def _file(address: str) -> str:
    return unquote(urlsplit(address).path).rpartition("/")[2]


def _plain(name: str) -> str:
    """The normalized name: https://packaging.python.org/en/latest/specifications/name-normalization/"""
    return re.sub(r"[-_.]+", "-", name).lower()
