"""Perform the requests of a plan, in order.  Only the removal of resources acts on AWS elsewhere."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launch.core.errors import AwsError, NotYetAllowed
from launch.core.plan import TAKEN, Choice, FromAnswer, Request, Step, Try
from launch.core.terminal import Say, table

Answer = Mapping[str, Any]
Call = Callable[[str, str, Mapping[str, Any]], Answer]

# A new resource is visible to all of AWS within seconds.  Its tags arrive later, and until then policies with a
# condition on them deny: github.com/hashicorp/terraform-provider-aws/issues/6055.  So do new roles and permissions.
RETRY_DELAY_S, AGAIN_TIMES = 3.0, 10

REMEDY = (
    "Try again later, or allow more: --instance-type TYPE,TYPE, other --zones, another --region, fewer --nodes, with "
    "or without --spot."
)


class NothingLeft(AwsError):
    """All attempts of a choice failed.  tried: rows of the table of attempts; codes: AWS's, of all attempts."""

    def __init__(
        self, columns: tuple[str, ...], tried: Sequence[tuple[str, ...]], codes: frozenset[str] = frozenset()
    ) -> None:
        self.columns, self.tried, self.codes = columns, tuple(tried), codes
        super().__init__(self.table_and(REMEDY), "NothingLeftToTry")

    def table_and(self, remedy: str) -> str:
        """The table of attempts, followed by `remedy`."""
        return f"no capacity:\n{table(self.columns, self.tried)}\n{remedy}"


def perform(
    steps: Sequence[Step], call: Call, say: Say, sleep: Callable[[float], None] = time.sleep
) -> dict[str, Answer]:
    """Return the answers by the requests' names.  Raises AwsError if AWS refuses; what was created until then remains.

    call: service, operation, parameters -> answer.
    """

    def retrying(request: Request) -> Answer:
        return _call(request, answers, call, say, sleep)

    answers: dict[str, Answer] = {}
    for step in steps:
        say(step.why)
        answer = _choose(step, retrying, say) if isinstance(step, Choice) else _ask(step, retrying)
        if step.name and answer is not None:
            answers[step.name] = answer
    return answers


def _call(
    request: Request, answers: Mapping[str, Answer], call: Call, say: Say, sleep: Callable[[float], None]
) -> Answer:
    """The answer; retried while AWS does not yet know, or allow, a resource that the request refers to."""
    params = filled(request.params, answers)
    for attempt in range(AGAIN_TIMES):
        try:
            return call(request.service, request.operation, params)
        except AwsError as error:
            if error.aws_code not in request.retry_after and not isinstance(error, NotYetAllowed):
                raise
            if attempt == 0 and isinstance(error, NotYetAllowed):
                limit = f"{RETRY_DELAY_S * AGAIN_TIMES:g} s"
                say(f"  {error}\n  retrying for {limit}: new permissions, roles and tags take effect late")
        sleep(RETRY_DELAY_S)
    return call(request.service, request.operation, params)


def _ask(request: Request, call: Callable[[Request], Answer]) -> Answer | None:
    """The answer, or None if AWS says that nothing is left to do."""
    try:
        return call(request)
    except AwsError as error:
        if error.aws_code in request.done_already:
            return None
        if error.aws_code != TAKEN:
            raise
    _compare(request, call)
    return None


def _compare(request: Request, call: Callable[[Request], Answer]) -> None:
    """Raise AwsError unless the existing object has the same content, as after an earlier start."""
    bucket, key, content = (request.params[name] for name in ("Bucket", "Key", "Body"))
    content = content.encode() if isinstance(content, str) else content
    place = {"Bucket": bucket, "Key": key, "Range": f"bytes=0-{len(content)}"}  # one byte more shows a longer object
    try:
        there = call(Request("s3", "GetObject", place, "look at what is there"))["Body"].read()
    except AwsError as error:
        if error.aws_code != "InvalidRange":  # S3's for an empty object
            raise
        there = b""
    if there != content:
        raise AwsError(
            f"s3://{bucket}/{key} has other content than this command would write.  {request.if_taken}",
            request.taken,
        )


def _choose(choice: Choice, call: Callable[[Request], Answer], say: Say) -> Answer:
    """The answer to the first try that succeeds.  Raises NothingLeft with a table of the attempts."""
    tried: list[tuple[str, ...]] = []
    left_out, codes = set[str](), set[str]()
    for attempt in choice.tries:
        if attempt.kind in left_out:
            continue
        try:
            return _try(choice, attempt, call, say)
        except AwsError as error:
            words = choice.next_after.get(error.aws_code) or choice.next_kind_after.get(error.aws_code)
            if words is None:
                raise
            if error.aws_code in choice.next_kind_after:
                left_out.add(attempt.kind)
            codes.add(error.aws_code)
            words = words.replace("{error}", str(error))
            tried.append((*attempt.label, words))
            say(f"  {', '.join(attempt.label)}: {words}")
    raise NothingLeft(choice.columns, tried, frozenset(codes))


def _try(choice: Choice, attempt: Try, call: Callable[[Request], Answer], say: Say) -> Answer:
    """The answer to a try or to its lesser request."""
    try:
        return call(attempt.request)
    except AwsError as error:
        reason = f"{error.aws_code} {error}"
        words = next((words for part, words in choice.lesser_after.items() if part in reason), "")
        if attempt.lesser is None or not words:
            raise
        say(f"  {', '.join(attempt.label)}: {words}")
        return call(attempt.lesser)


def filled(params: Any, answers: Mapping[str, Answer]) -> Any:
    """`params` with every FromAnswer replaced by the value in `answers`."""
    if isinstance(params, FromAnswer):
        import jmespath  # comes with boto3, which is an extra

        return jmespath.search(params.path, answers[params.request])
    if isinstance(params, Mapping):
        return {name: filled(value, answers) for name, value in params.items()}
    if isinstance(params, (list, tuple)):
        return [filled(value, answers) for value in params]
    return params
