"""`python -m tests.live.spy MODULE WORDS...`: runs a command, and notes each of AWS's answers to it.

A line of JSON per answer in the file that ACCEPTANCE_ANSWERS names: the operation, its error code, and which fields
the answer had; no values, so that no secret and no account's name is in it.
"""

import json
import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ANSWERS = "ACCEPTANCE_ANSWERS"
DEEPEST = 4
OK = "ok"


def fields_of(answer: Any, prefix: str = "", depth: int = 0) -> Iterator[str]:
    """Reservations.Instances.State: the names in an answer, of lists those of any entry."""
    if depth >= DEEPEST:
        return
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name != "ResponseMetadata":
                yield f"{prefix}{name}"
                yield from fields_of(value, f"{prefix}{name}.", depth + 1)
    elif isinstance(answer, list):
        for entry in answer:
            yield from fields_of(entry, prefix, depth)


def note(model: Any, parsed: Any, **_: Any) -> None:
    """botocore's handler of `after-call`."""
    code = parsed.get("Error", {}).get("Code", OK) if isinstance(parsed, dict) else OK
    status = parsed.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) if isinstance(parsed, dict) else 0
    row = {
        "operation": f"{model.service_model.service_name}:{model.name}",
        "code": code if status >= 300 else OK,
        "fields": [] if status >= 300 else sorted(set(fields_of(parsed))),
    }
    with Path(os.environ[ANSWERS]).open("a") as file:
        file.write(json.dumps(row) + "\n")


def main() -> None:
    """Runs the module as __main__."""
    from botocore.handlers import BUILTIN_HANDLERS

    BUILTIN_HANDLERS.append(("after-call", note))
    module, *sys.argv[1:] = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
