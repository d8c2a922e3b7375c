"""What SageMaker calls the starts of a job: it takes a name once and for all.  Pure."""

import re

BACKEND = "sagemaker"
_AGAIN = "--"


def run_name(job: str, number: int) -> str:
    """What SageMaker calls the job's `number`-th start, from 1: JOB, JOB--2, ..."""
    return job if number == 1 else f"{job}{_AGAIN}{number}"


def number_of(name: str, job: str) -> int | None:
    """The start of `job` that SageMaker calls `name`; None if it is another job's."""
    if name == job:
        return 1
    found = re.fullmatch(re.escape(job + _AGAIN) + r"(\d{1,4})", name)
    return int(found[1]) if found else None


def job_of(name: str) -> str:
    """The job whose start SageMaker calls `name`."""
    return re.sub(re.escape(_AGAIN) + r"\d{1,4}$", "", name)
