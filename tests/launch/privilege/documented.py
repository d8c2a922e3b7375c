"""The verbs of a launcher in the documentation and --help, and the flags shown with each."""

import re
from collections.abc import Iterable, Iterator

from launch.core.verbs import SHORT
from tests.conftest import ROOT

Words = tuple[str, ...]
# A verb, or "" for a launch, and one of its flags, or "" for none.
Use = tuple[str, str]

PAGES = ("README.md", "infra/account.md", "infra/data.md", "infra/container.md", "infra/ec2.md", "infra/queue.md",
         "infra/sagemaker.md", "notebooks/README.md", "trainer/README.md", "launch/rehearse/README.md")  # fmt: skip
# Rehearsals use an embedded account, not this one.
REHEARSED = {"--rehearse", "--inject"}


def documented(module: str) -> set[Use]:
    """The uses of `python -m MODULE ...` on all pages and in the module's --help, without rehearsals."""
    folder = ROOT / module.replace(".", "/")
    places = [*(ROOT / page for page in PAGES), folder / "__main__.py", folder / "verbs.py"]
    texts = [place.read_text() for place in places if place.is_file()]
    commands = [words for text in texts for words in _commands(text, module)]
    return uses(words for words in commands if not REHEARSED & {*words})


def uses(commands: Iterable[Words]) -> set[Use]:
    """The uses in command lines."""
    found = set[Use]()
    for words in commands:
        verb = words[0] if words and not words[0].startswith("-") else ""
        flags = [word.partition("=")[0] for word in words if re.match(r"-+[a-z]", word)]
        found |= {(verb, ""), *((verb, SHORT.get(flag, flag)) for flag in flags)}
    return found


def _commands(text: str, module: str) -> Iterator[Words]:
    """Words after the module, of each command; `status|logs JOB` is two."""
    for line in re.findall(rf"python -m {re.escape(module)}(?![\w.])([^`#\n\"]*)", text):
        first, *rest = line.partition(" -- ")[0].split() or [""]  # what follows is a script's
        yield from ((word, *rest) if word else () for word in first.split("|"))
