"""What stands in a requirements file, as pip reads it: its lines, and the hashes that it demands.  Pure.

https://pip.pypa.io/en/stable/reference/requirements-file-format/
"""

import codecs
import locale
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

from trainer.errors import SettingsError, one_line

# The longer first: that of UTF-16 is the beginning of one of UTF-32.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    *((mark, "utf-32") for mark in (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)),
    *((mark, "utf-16") for mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)),
)
_CODING = re.compile(rb"(?:.*\n)?#.*coding[:=]\s*([-\w.]+)")  # PEP 263, in one of the first two lines
_CONTINUED = re.compile(r"\\\r?\n")
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*")
# https://pip.pypa.io/en/stable/reference/requirements-file-format/#using-environment-variables
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
# pip takes the beginning of an option for the whole.
_DEMANDS = re.compile(r"(?<!\S)[\"']?--(?:ha(?:sh?)?|req(?:uire-hashes)?)\b")
_HASH = re.compile(r"--ha(?:sh?)?[\s=]+[\"']?(\w+:[0-9A-Fa-f]+)")
# `demo==1.0`, `demo[extra]`, `demo @ https://...`, and neither `https://...` nor `./demo`.
_NAME = re.compile(r"\s*([A-Za-z0-9][\w.-]*)(?![\w.:/-])")


def text_of(content: bytes) -> str:
    """The text of a file, decoded as by pip: by its mark, by its line on coding, as UTF-8, or as the locale has it."""
    coding = _CODING.match(content)
    named = [coding[1].decode("ascii")] if coding else ["utf-8", locale.getpreferredencoding(False)]
    for encoding in [name for mark, name in _MARKS if content.startswith(mark)][:1] or named:
        with suppress(UnicodeDecodeError, LookupError):
            return content.decode(encoding)
    return content.decode("utf-8", errors="replace")  # pip refuses it


def lines_of(text: str) -> list[str]:
    """The lines without comments, as pip joins those that end with a backslash."""
    return [_COMMENT.sub("", line) for line in _CONTINUED.sub(" ", text).splitlines()]


def files_in(line: str, env: Mapping[str, str]) -> Iterator[str]:
    """The files that a line names with -r or -c, as pip knows them: quoted, cut short, or behind other options, too."""
    if not line.lstrip().startswith("-"):
        return
    expanded = _VARIABLE.sub(lambda found: env.get(found[1]) or found[0], line)
    try:
        words = shlex.split(expanded)
    except ValueError:  # an open quote, which pip refuses
        return
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, is_given, value = word.partition("=") if word.startswith("--") else (word[:2], word[2:], word[2:])
        if _names_file(name):
            place = value if is_given else following
            yield unquote(urlsplit(place).path) if place.startswith("file:") else place


def _names_file(option: str) -> bool:
    """`--require` could be `--require-hashes` as well, so that pip refuses it."""
    is_requirement = option.startswith("--requirem") and "--requirement".startswith(option)
    return option in ("-r", "-c") or is_requirement or (len(option) > 2 and "--constraint".startswith(option))


def hashes_in(texts: Iterable[str]) -> Mapping[str, Sequence[str]] | None:
    """The hashes that requirements files demand, such as sha256:12ab, of each package or file that they name.

    None where they demand none: with one hash pip demands them of all.
    """
    demanded, found = False, dict[str, list[str]]()
    for text in texts:
        for line in lines_of(text):
            if _DEMANDS.search(line):
                demanded = True
                found.setdefault(_first(line), []).extend(_HASH.findall(line))
    return found if demanded else None


def hashes_of(row: Mapping[str, Any], demanded: Mapping[str, Sequence[str]], listed: str) -> Sequence[str]:
    """Those of a row of pip's report.  Raises SettingsError where there is none.  listed: the file's name, for that.

    The report's own are what the index says, which pip does not compare with a file that has another hash to fit.
    """
    name = row["metadata"]["name"]
    hashes = demanded.get(_plain(name)) or demanded.get(_plain(_file(str(row["download_info"]["url"]))))
    if not hashes:
        raise SettingsError(
            f"{listed} demands hashes, and none can be read for {one_line(name, 100)}; write it as "
            "NAME==VERSION --hash=sha256:..."
        )
    return hashes


def _first(line: str) -> str:
    """What a line is about: the name of a package, or of a file."""
    named = _NAME.match(line)
    return _plain(named[1] if named else _file(line.split()[0]))


def _file(address: str) -> str:
    return unquote(urlsplit(address).path).rpartition("/")[2]


def _plain(name: str) -> str:
    """https://packaging.python.org/en/latest/specifications/name-normalization/"""
    return re.sub(r"[-_.]+", "-", name).lower()
