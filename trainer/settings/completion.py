"""Tab completion of every command's flags, by argcomplete: README says how to switch it on.

The shell runs the command with _ARGCOMPLETE set, which is read here because argcomplete reads it, too.
"""

import argparse
import os
from collections.abc import Iterable

STARTED_BY = "_ARGCOMPLETE"


def is_asked() -> bool:
    """Whether a shell has started this process to complete a line."""
    return STARTED_BY in os.environ


def typed_words() -> list[str]:
    """The words after the command on the line that is completed, with the one being typed."""
    first = int(os.environ[STARTED_BY])
    words = os.environ.get("COMP_LINE", "").split()
    return words[first:]


def is_at_first_word() -> bool:
    """Whether the word being typed is the first after the command, and not a flag."""
    words, is_new = typed_words(), os.environ.get("COMP_LINE", "").endswith(" ")
    return not words or (len(words) == 1 and not is_new and not words[0].startswith("-"))


def skip_word() -> None:
    """Completes as if the first word after the command, a verb, belonged to the command."""
    os.environ[STARTED_BY] = str(int(os.environ[STARTED_BY]) + 1)


def offer(names: Iterable[str]) -> None:
    """Completes the word being typed as one of `names`, and exits."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("name", choices=list(names))
    complete(parser)


def complete(parser: argparse.ArgumentParser) -> None:
    """Answers the shell and exits, if it asked; otherwise does nothing."""
    if is_asked():
        import argcomplete

        argcomplete.autocomplete(parser)
