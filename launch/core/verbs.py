"""Verbs, such as status and stop: commands for a job that was started."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

from pydantic import BaseModel

from launch.core import user_file
from launch.core.terminal import OutputLost, complain, say
from trainer.contract import STOPPED, Exit
from trainer.errors import SettingsError, TrainerError, did_you_mean
from trainer.settings import argparser, flags
from trainer.settings.argparser import version

# Switches that may stand before the job, and what they stand for.
SHORT = {"-f": "--follow=true", "--follow": "--follow=true", "--json": "--format=json"}
MOST_CODE = 255
# Options that may be given without their flags, in this order: of each row the first that a verb has.
BARE_WORDS = (("job", "source", "name"), ("port",))

Table = Mapping[str, tuple[str, type[BaseModel]]]  # of verbs by name: their texts and options


@dataclass(frozen=True)
class Verb:
    """A command for a started job, such as status.  act returns the exit code and may raise TrainerError.

    about: one line and an example.  First words without hyphens are the option `job`, and others of BARE_WORDS.
    """

    about: str
    options: type[BaseModel]
    act: Callable[[Any], int]


def verbs_of(commands: Callable[[], object], table: Table) -> dict[str, Verb]:
    """The verbs in `table`, which are methods of what `commands` returns.

    commands: called when a verb runs, so that it may import what --help does not need.
    """

    def act(name: str, options: BaseModel) -> int:
        exit_code: int = getattr(commands(), name)(options)
        return exit_code

    return {name: Verb(about, options, partial(act, name)) for name, (about, options) in table.items()}


def main_of_verbs(prog: str, about: str, verbs: Mapping[str, Verb], argv: Sequence[str]) -> int:
    """Run a command that has only verbs; return the exit code."""

    def act() -> int:
        verb = verb_of(verbs, argv)
        if verb:
            return run_verb(prog, verbs, verb, argv[1:])
        if argv == ["--version"]:
            say(version())
            return Exit.DONE
        if not argv or argv[0] in ("-h", "--help"):
            say(f"usage: {prog} VERB [-h] ...\n\n{about}\nverbs:\n{verb_list(prog, verbs)}")
            return Exit.DONE if argv else Exit.SETTINGS
        raise unknown_verb(argv[0], verbs)

    return coded(act)


def verb_of(verbs: Mapping[str, Verb], argv: Sequence[str]) -> str:
    """The verb that the command line begins with, or empty."""
    if not argparser.is_asked():
        return argv[0] if argv and argv[0] in verbs else ""
    if verbs and argparser.is_at_first_word():
        argparser.offer(verbs)
    words = argparser.typed_words()
    if not words or words[0] not in verbs:
        return ""
    argparser.skip_word()
    return words[0]


def run_verb(prog: str, verbs: Mapping[str, Verb], name: str, argv: Sequence[str]) -> int:
    """Run the verb `name` with the words after it; return its exit code."""
    verb = verbs[name]
    words, bare = [SHORT.get(word, word) for word in job_first(argv)], _bare_words(verb.options)
    named = list(takewhile(lambda word: not word.startswith("-"), words[: len(bare)]))
    flagged = [part for option, word in zip(bare, named, strict=False) for part in (f"--{option}", word)]
    prog = " ".join([prog, name, *(f"[{option.upper()}]" for option in bare)])
    rest = words[len(named) :]
    given = flags.read([*flagged, *rest], [verb.options], prog=prog, about=verb.about, sections={})
    usual = user_file.for_verb(verb.options.model_fields)
    (options,) = flags.build({**usual, **given}, [verb.options])
    return verb.act(options)


def job_first(argv: Sequence[str]) -> list[str]:
    """The words of a verb with leading switches behind the others: -f JOB -> JOB -f."""
    leading = list(takewhile(lambda word: word in SHORT, argv))
    return [*argv[len(leading) :], *leading]


def _bare_words(options: type[BaseModel]) -> list[str]:
    """The options that may be given as the first words, without their flags."""
    rows = ([name for name in row if name in options.model_fields] for row in BARE_WORDS)
    return [row[0] for row in rows if row]


def unknown_verb(word: str, verbs: Mapping[str, Verb]) -> SettingsError:
    """The error for an unknown verb, with the nearest known one."""
    return SettingsError(f"unknown verb {word!r}{did_you_mean(word, verbs) or '.'}")


def verb_list(prog: str, verbs: Mapping[str, Verb]) -> str:
    """One line per verb, for --help."""
    width = max(map(len, verbs))
    return "\n".join(f"  {prog} {name:<{width}}  {verb.about.splitlines()[0]}" for name, verb in verbs.items())


def coded(act: Callable[[], int]) -> int:
    """Run `act`; print a TrainerError as one line and return its exit code."""
    code = _coded(act)
    # A job's exit code comes from a file: a shell would see 256 as 0, which is success.
    return code if 0 <= code <= MOST_CODE else Exit.BUG


def _coded(act: Callable[[], int]) -> int:
    try:
        return act()
    except TrainerError as error:
        complain(f"error: {error}")
        return error.code
    except KeyboardInterrupt:
        return STOPPED
    except OutputLost as error:
        sys.stdout = None  # otherwise Python reports it again at exit
        complain(f"error: standard output cannot be written ({error.strerror}); free some space, then start again.")
        return Exit.DISK
    except BrokenPipeError:  # `... status | head` has read enough
        sys.stdout = None
        return Exit.DONE
