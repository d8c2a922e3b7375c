"""What seats need of an AWS account: nothing but that there are enough of them."""

from collections.abc import Iterator

from launch.nothing.backend import NothingOptions

from launch.aws.examination.case import Case, Check, Examination, Verdict, missing, ok

MOST = 9


def _seats(case: Case[NothingOptions]) -> Iterator[Verdict]:
    seats = case.resolved.seats
    if seats > MOST:
        yield missing(f"{seats} seats, and the account has {MOST}", f"--seats {MOST}")
    else:
        yield ok(f"{seats} of {MOST}, free in {case.region}")


EXAMINATION = Examination(
    resolve=lambda job: job.where,
    machines=lambda options: f"{options.seats} seats",
    needs=(Check("seats", _seats),),
)
