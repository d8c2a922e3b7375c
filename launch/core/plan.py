"""Plan: the exact requests of a launch, in order, each with its purpose; the cost; and any problems.

A plan is data.  --dry-run prints it and launch.core.perform carries it out, so the two cannot differ.
"""

import hashlib
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Generic, TypeVar

from launch.core.errors import NotSetUp
from launch.core.quote import Quote, price_lines
from launch.core.terminal import columns, harmless
from trainer.contract import Exit
from trainer.errors import TrainerError


@dataclass(frozen=True)
class FromAnswer:
    """A placeholder for the field `path` of the answer to the earlier request named `request`."""

    request: str
    path: str

    def __str__(self) -> str:
        return f"<{self.path} of {self.request}>"


# S3's error codes for conditional writes.
TAKEN = "PreconditionFailed"  # the object exists, or has changed
CONFLICT = "ConditionalRequestConflict"  # two writes at once


@dataclass(frozen=True)
class Request:
    """One call to AWS."""

    service: str
    operation: str
    params: Mapping[str, Any]
    why: str  # a sentence without its full stop
    done_already: tuple[str, ...] = ()  # error codes that mean that nothing is left to do
    name: str = ""  # under which later requests find its answer
    # Error codes that mean that AWS does not yet know a resource of an earlier request.
    retry_after: tuple[str, ...] = ()
    if_taken: str = "Choose another --job-name."  # the remedy if the object exists with other content
    taken: str = TAKEN  # the error code in that case


def put_once(bucket: str, key: str, content: bytes, why: str, **more: str) -> Request:
    """The request that writes an object which a job executes; S3 refuses to replace it.

    infra/iam grants the write with this header only.  perform() compares the content if the object exists.
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
    """
    params = {"Bucket": bucket, "Key": key, "Body": content, **more, "IfNoneMatch": "*"}
    return Request("s3", "PutObject", params, why, retry_after=(CONFLICT,))


def unless_changed(put: Request, known_as: str) -> Request:
    """Make `put` fail if another command has written the object meanwhile.

    known_as: the ETag of the version to replace, "" for none.
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html: 412 if the object is another version,
    409 if two write at once.
    """
    condition = {"IfMatch": known_as} if known_as else {"IfNoneMatch": "*"}
    return replace(put, params={**put.params, **condition}, retry_after=(CONFLICT,))


@dataclass(frozen=True)
class Try:
    """One of the alternatives of a Choice."""

    request: Request
    label: tuple[str, ...]  # the columns of the table of attempts
    kind: str  # shared by requests that fail alike
    lesser: Request | None = None  # a smaller request, made if AWS refuses only what this one adds to it


@dataclass(frozen=True)
class Choice:
    """Requests tried in turn until one succeeds.

    The mappings are from AWS's error codes to words for the table of attempts, in which {error} is AWS's own sentence.
    """

    tries: tuple[Try, ...]
    why: str
    columns: tuple[str, ...]
    next_after: Mapping[str, str]  # the next is tried
    next_kind_after: Mapping[str, str]  # others of the same kind are skipped
    name: str = ""
    # Or words of AWS's sentence: the lesser request is tried.
    lesser_after: Mapping[str, str] = field(default_factory=dict)


Step = Request | Choice


@dataclass(frozen=True)
class Fact:
    """A fact that a plan is based on."""

    name: str  # with underscores and a unit, such as time_limit_h
    value: Any  # for programs: anything that JSON can hold
    text: str | tuple[str, ...] = ""  # for readers, one or several lines; empty: the value
    label: str = ""  # for readers; empty: the name without underscores
    is_detail: bool = False  # left out of the short form

    @property
    def lines(self) -> list[tuple[str, str]]:
        """A label and a text per line."""
        texts = (self.text or str(self.value),) if isinstance(self.text, str) else self.text
        return [(self.label or self.name.replace("_", " "), text) for text in texts]


Payload = TypeVar("Payload")


@dataclass(frozen=True)
class Plan(Generic[Payload]):
    """What a launch would do, and what it would cost."""

    title: str
    payload: Payload = field(repr=False)  # what the backend needs to carry it out
    facts: tuple[Fact, ...] = ()
    steps: tuple[Step, ...] = ()
    quotes: tuple[Quote, ...] = ()  # one per candidate; the first with capacity is used
    not_counted: str = ""  # what no quote includes
    rates: tuple[Fact, ...] = ()  # prices of what is billed by use; each value maps units to amounts
    warnings: tuple[str, ...] = ()
    problems: tuple[TrainerError, ...] = ()  # why it cannot be performed
    # By heading: requests that depend on the results of the steps.
    later: tuple[tuple[str, tuple[Request, ...]], ...] = ()
    # By heading: arguments of a library that makes the requests.
    arguments: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    command: tuple[str, ...] = ()  # what is run on this machine, if anything
    files: tuple[tuple[str, str], ...] = ()  # name and text of each file that is written
    spent_usd: float | None = None  # cost of earlier, ended starts of the job, where known

    def __str__(self) -> str:
        return as_text(self)

    @property
    def brief(self) -> str:
        """What is started, the price, and any problems."""
        return harmless(_joined([[self.title], *_closing(self, BRIEF_QUOTES)]))

    @property
    def problem(self) -> TrainerError | None:
        """The first reason why it cannot be performed; a missing account comes last, as it is no fault of the job."""
        return min(self.problems, key=lambda problem: isinstance(problem, NotSetUp), default=None)

    @property
    def requests(self) -> Iterator[Request]:
        """Every request that may be made."""
        for step in self.steps:
            if isinstance(step, Request):
                yield step
            else:
                for attempt in step.tries:
                    yield attempt.request
                    if attempt.lesser is not None:
                        yield attempt.lesser


BRIEF_QUOTES, BRIEF_STEPS = 1, 3  # more of them are counted in the short form


def short_text(plan: Plan[Any]) -> str:
    """The plan on one screen."""
    facts = columns(_lines([fact for fact in plan.facts if not fact.is_detail]))
    return harmless(_joined([[plan.title], facts, _short_steps(plan), *_closing(plan, BRIEF_QUOTES)]))


def _short_steps(plan: Plan[Any]) -> list[str]:
    """What is run and written here, and a line per request, if there are few."""
    lines = [f"  $ {shlex.join(plan.command)}"] if plan.command else []
    lines += [f"  writes {name}" for name, _ in plan.files]
    if len(plan.steps) > BRIEF_STEPS:
        return [*lines, f"requests: {len(plan.steps)}; --dry-run=full shows them"]
    return [*lines, *(_step(number, step)[0] for number, step in enumerate(plan.steps, 1))]


def as_text(plan: Plan[Any]) -> str:
    """The plan for a reader, with every request."""
    paragraphs = [[plan.title], columns(_lines(plan.facts))]
    if plan.command:
        paragraphs.append([f"  $ {shlex.join(plan.command)}"])
    for name, text in plan.files:
        paragraphs.append([f"{name}:", *(f"  {line}".rstrip() for line in text.splitlines())])
    if plan.steps or not plan.command:
        paragraphs.append(_steps(plan.steps))
    paragraphs += [_later(heading, requests) for heading, requests in plan.later]
    paragraphs += [[heading, *_shown(arguments)] for heading, arguments in plan.arguments]
    return harmless(_joined([*paragraphs, *_closing(plan)]))


def _lines(facts: Sequence[Fact]) -> list[tuple[str, str]]:
    return [line for fact in facts for line in fact.lines]


def _later(heading: str, requests: Sequence[Request]) -> list[str]:
    lines = [heading]
    for request in requests:
        lines += _request(" ", request)
    return lines


def _joined(paragraphs: Iterable[Sequence[str]]) -> str:
    return "\n\n".join("\n".join(lines) for lines in paragraphs if lines)


def _closing(plan: Plan[Any], quotes: int | None = None) -> list[list[str]]:
    """Price, warnings and problems, each sentence once.  quotes: how many prices are shown; None: all."""
    more = [("", f"and {len(plan.quotes) - quotes} more")] if quotes and len(plan.quotes) > quotes else []
    prices = columns(price_lines(plan.quotes[:quotes], plan.not_counted) + more + _lines(plan.rates))
    return [
        ["price:", *prices] if prices else [],
        [f"warning: {sentence}" for sentence in dict.fromkeys(plan.warnings)],
        [f"problem: {problem}" for problem in dict.fromkeys(map(str, plan.problems))],
    ]


def _steps(steps: Sequence[Step]) -> list[str]:
    lines = ["requests, in this order:" if steps else "requests: none"]
    for number, step in enumerate(steps, 1):
        lines += _step(number, step)
    return lines


def as_json(plan: Plan[Any]) -> str:
    """The plan for a program: every request with all its parameters, every price as a number."""
    return json_text(as_data(plan))


def json_text(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, indent=2, default=_as_word)
    return text.replace("\x7f", "\\u007f")  # JSON leaves DEL unescaped, and a terminal would act on it


def as_data(plan: Plan[Any]) -> dict[str, Any]:
    """The content of as_json()."""
    content: dict[str, Any] = {
        "title": plan.title,
        "facts": {fact.name: fact.value for fact in plan.facts},
        "steps": [_plain_step(step) for step in plan.steps],
        "later": {heading: [_plain_step(request) for request in requests] for heading, requests in plan.later},
        "quotes": [quote.as_json() for quote in plan.quotes],
        "not_counted": plan.not_counted,
        "warnings": list(plan.warnings),
        "problems": [{"exit_code": int(problem.code), "sentence": str(problem)} for problem in plan.problems],
    }
    optional = {
        "rates": {rate.name: rate.value for rate in plan.rates},
        "command": list(plan.command),
        "files": dict(plan.files),
        "arguments": dict(plan.arguments),
        "spent_usd": plan.spent_usd,
    }
    content |= {name: value for name, value in optional.items() if value not in ({}, [], None)}
    return content


# By the values of --dry-run.
FORMS: Mapping[bool | str, Callable[[Plan[Any]], str]] = {True: short_text, "full": as_text, "json": as_json}


def dry_run(plan: Plan[Any], form: bool | str, say: Callable[[str], None]) -> int:
    """Print the plan in a form of FORMS; return the exit code."""
    say(FORMS[form](plan))
    return dry_run_code(plan.problem)


def dry_run_code(problem: TrainerError | None) -> int:
    """The exit code of every dry run: that of the first problem.

    Without an account nothing was looked up, which the plan says, and which is no failure.
    """
    return Exit.DONE if problem is None or isinstance(problem, NotSetUp) else problem.code


def _as_word(value: Any) -> str:
    """A value that JSON cannot hold, as text; bytes as their size and digest."""
    if isinstance(value, bytes):
        return f"{len(value):,} bytes, SHA-256 {hashlib.sha256(value).hexdigest()}"
    return str(value)


def _step(number: int, step: Step) -> list[str]:
    if isinstance(step, Request):
        return _request(f"{number}.", step)
    first = step.tries[0].request
    head = f"{number:3}. {first.service}:{first.operation}  {step.why}"
    rows = [f"       {place}. {', '.join(attempt.label)}" for place, attempt in enumerate(step.tries, 1)]
    return [head, *rows, "     the first of them:", *_shown(first.params)]


def _request(place: str, request: Request) -> list[str]:
    return [f"{place:>4} {request.service}:{request.operation}  {request.why}", *_shown(request.params)]


LONG = 300


def _shown(params: Mapping[str, Any]) -> list[str]:
    """One line per parameter; long texts, such as the boot script, as their size, and tags as the resource types."""
    lines = []
    for name, value in params.items():
        text = _plain(value)
        if name == "TagSpecifications":
            text = "on " + ", ".join(specification["ResourceType"] for specification in value)
        elif isinstance(value, str) and len(text) > LONG:
            text = f"({len(text):,} characters; --dry-run=json shows them)"
        lines.append(f"       {name}: {text}")
    return lines


def _plain(value: Any) -> str:
    """Nested values on one line, without the quotes of JSON; of a long list only its length."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_plain(item)}" for name, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        text = "[" + ", ".join(map(_plain, value)) + "]"
        return text if len(text) < LONG else f"({len(value)} items; --dry-run=json shows them)"
    return _as_word(value)


def _plain_step(step: Step) -> dict[str, Any]:
    if isinstance(step, Request):
        return {"call": f"{step.service}:{step.operation}", "why": step.why, "params": step.params}
    return {"first_that_succeeds": [_plain_step(attempt.request) for attempt in step.tries], "why": step.why}


SHARED_QUOTAS = "shared_quotas"


@dataclass(frozen=True)
class Need:
    """What one job takes of a quota."""

    name: str
    needed: float
    running: float  # in use by all jobs; 0 if not known
    limit: float
    held: float = 0  # of that, by this very job, left running by a sweep that was killed


def fact_of(needs: Sequence[Need]) -> Fact:
    """The needs for programs; each backend words its own quotas in the plan's text."""
    return Fact(SHARED_QUOTAS, [asdict(need) for need in needs], ())


def needs_in(plan: Mapping[str, Any]) -> tuple[Need, ...]:
    """The needs in a plan that was written as JSON."""
    facts = plan.get("facts") or {}
    return tuple(Need(**need) for need in facts.get(SHARED_QUOTAS) or ())


def shortage(jobs: Sequence[Sequence[Need]], at_once: int) -> tuple[str, int] | None:
    """Why a quota is too small for `at_once` jobs, and how many jobs fit; None if no quota is.

    Counts the largest jobs, and not twice what they hold already.  A quota that is too small for a single job is
    reported by that job's own plan.
    """
    needs = [need for job in jobs for need in job]
    for name in dict.fromkeys(need.name for need in needs):
        known = sorted((need for need in needs if need.name == name), key=lambda need: -need.needed)
        alike, first = known[:at_once], known[0]
        others, needed, fitting = max(0, first.running - sum(need.held for need in known)), 0.0, 0
        for need in alike:
            needed += need.needed
            fitting += needed + others <= first.limit
        if 0 < fitting < len(alike):
            sentence = (
                f"{len(alike)} runs at a time need {needed:g} of {name!r}, {others:g} are in use, and the quota is "
                f"{first.limit:g}"
            )
            return sentence, fitting
    return None
