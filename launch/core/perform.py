"""Performs the requests of a plan, in order.  Only the removal of resources acts on AWS elsewhere."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launch.core.errors import AwsError
from launch.core.plan import Choice, FromAnswer, Request, Step
from launch.core.tables import table

Answer = Mapping[str, Any]
Call = Callable[[str, str, Mapping[str, Any]], Answer]
Say = Callable[[str], None]

# A new resource is visible to all of AWS within seconds.
AGAIN_S, AGAIN_TIMES = 3.0, 8

REMEDY = (
    "Try again later, or allow more: --instance-type TYPE,TYPE, other --zones, another --region, fewer --nodes, with "
    "or without --spot."
)


def perform(
    steps: Sequence[Step], call: Call, say: Say, sleep: Callable[[float], None] = time.sleep
) -> dict[str, Answer]:
    """Returns the answers by the requests' names.  Raises AwsError if AWS refuses; what was created until then remains.

    call: service, operation, parameters -> answer.
    """

    def patient(request: Request) -> Answer:
        return _call(request, answers, call, sleep)

    answers: dict[str, Answer] = {}
    for step in steps:
        say(step.why)
        answer = _choose(step, patient, say) if isinstance(step, Choice) else _ask(step, patient)
        if step.name and answer is not None:
            answers[step.name] = answer
    return answers


def _call(request: Request, answers: Mapping[str, Answer], call: Call, sleep: Callable[[float], None]) -> Answer:
    """The answer; retried while AWS does not yet know a resource that the request refers to."""
    params = filled(request.params, answers)
    for _ in range(AGAIN_TIMES):
        try:
            return call(request.service, request.operation, params)
        except AwsError as error:
            if error.aws_code not in request.retry_after:
                raise
        sleep(AGAIN_S)
    return call(request.service, request.operation, params)


def _ask(request: Request, call: Callable[[Request], Answer]) -> Answer | None:
    """The answer, or None if AWS says that nothing is left to do."""
    try:
        return call(request)
    except AwsError as error:
        if error.aws_code in request.done_already:
            return None
        raise


def _choose(choice: Choice, call: Callable[[Request], Answer], say: Say) -> Answer:
    """The answer to the first try that succeeds.  Raises AwsError with a table of what was tried."""
    tried: list[tuple[str, ...]] = []
    left_out: set[str] = set()
    for attempt in choice.tries:
        if attempt.kind in left_out:
            continue
        try:
            return call(attempt.request)
        except AwsError as error:
            words = choice.next_after.get(error.aws_code) or choice.next_kind_after.get(error.aws_code)
            if words is None:
                raise
            if error.aws_code in choice.next_kind_after:
                left_out.add(attempt.kind)
            tried.append((*attempt.label, words))
            say(f"  {', '.join(attempt.label)}: {words}")
    raise AwsError(f"no capacity:\n{table(choice.columns, tried)}\n{REMEDY}", "NothingLeftToTry")


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
