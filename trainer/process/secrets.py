"""Reads the secrets of a SageMaker job, such as a key for wandb, from where its environment says that AWS keeps them.

Each rank reads them when it starts, so that they are in no request, description or log of the job.  No other part of
the trainer talks to AWS.  This needs boto3, which AWS's training images have and another base image may lack.
"""

from collections.abc import Mapping
from typing import Any

from trainer.contract import SAGEMAKER_SECRET
from trainer.errors import MachineError, SettingsError, TrainerError

ATTEMPTS = 10  # all ranks ask at once, and Systems Manager answers 40 questions a second
# Parts of error codes after which a retry would fail again.
_REFUSED = ("AccessDenied", "NotFound", "Invalid", "Validation", "Decryption")


def read_secrets(env: Mapping[str, str]) -> dict[str, str]:
    """{variable: value} for each DDP_SECRET_variable of `env`.  Raises SettingsError, MachineError."""
    start = len(SAGEMAKER_SECRET)
    wanted = {name[start:]: where for name, where in env.items() if name.startswith(SAGEMAKER_SECRET)}
    if not wanted:
        return {}
    try:
        import boto3
        from botocore.config import Config
    except ModuleNotFoundError as error:
        raise SettingsError("--secret needs boto3, which this image lacks; add it, or drop --secret.") from error
    config = Config(retries={"mode": "standard", "total_max_attempts": ATTEMPTS})
    session = boto3.session.Session(region_name=env.get("AWS_REGION"))
    return {name: _value(session, config, name, where) for name, where in wanted.items()}


def _value(session: Any, config: Any, name: str, where: str) -> str:
    from botocore.exceptions import BotoCoreError, ClientError

    service, _, key = where.partition(":")
    try:
        client = session.client(service, config=config)
        if service == "ssm":
            found = client.get_parameter(Name=key, WithDecryption=True)["Parameter"]["Value"]
        else:
            found = client.get_secret_value(SecretId=key).get("SecretString")
    except ClientError as error:
        raise _refusal(name, where, error.response["Error"].get("Code", "")) from error
    except BotoCoreError as error:
        raise MachineError(f"cannot read {where} for {name} ({type(error).__name__}); start again.") from error
    if found is None:
        raise SettingsError(f"--secret {name}: {where} is binary; store it as text.")
    # As the nodes of launch.ec2 read it: most ways to store a file keep the newline at its end.
    return str(found).rstrip("\n")


def _refusal(name: str, where: str, code: str) -> TrainerError:
    """The error without AWS's own message, which may contain part of the secret."""
    if any(part in code for part in _REFUSED):
        return SettingsError(
            f"--secret {name}: cannot read {where} ({code}); create it in the job's region, and allow the role to read "
            "it: see infra/account.md."
        )
    return MachineError(f"cannot read {where} for {name} ({code}); start again.")
