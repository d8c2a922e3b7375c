"""Errors that a user of a launcher can meet, beside the trainer's.  The tree, with exit codes:

* TrainerError
  + SettingsError        2  see trainer.errors
    - NotSetUp           2  no credentials, no region: this machine cannot call AWS
  + AwsError             4  AWS refused or could not be reached
    - NoAnswer           4  a request was sent, and whether it took effect is not known
    - Forbidden          4  the organization's policies forbid it in the whole account
    - NotYetAllowed      4  denied, perhaps as a permission, tag or role is too new
  + Ended                   a job failed or was stopped; its exit code is that of the training, or 130
    - LeftRunning           its launcher ended, and the job did not
"""

from trainer.contract import Exit
from trainer.errors import SettingsError, TrainerError
from trainer.outcome import Outcome


class NotSetUp(SettingsError):
    pass


class AwsError(TrainerError):
    """AWS refused a request or could not be reached.

    aws_code: such as InsufficientInstanceCapacity; operation: such as RunInstances; reason: what some services add to
    the code, such as CONFLICTING_BLOCK_UPDATE of the EBS direct APIs.
    """

    code = Exit.AWS

    def __init__(self, sentence: str, aws_code: str = "", operation: str = "", reason: str = "") -> None:
        super().__init__(sentence)
        self.aws_code, self.operation, self.reason = aws_code, operation, reason


class NoAnswer(AwsError):
    pass


class Forbidden(AwsError):
    pass


class NotYetAllowed(AwsError):
    pass


class Ended(TrainerError):
    """A job failed or was stopped.  outcome: with the job's time and price, if known."""

    def __init__(self, sentence: str, code: int, outcome: Outcome | None = None) -> None:
        super().__init__(sentence)
        self.code, self.outcome = code, outcome


class LeftRunning(Ended):
    """The launcher ends while the job goes on.  A sweep must not count the job as failed."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence, code, Outcome("interrupted", code, sentence))
