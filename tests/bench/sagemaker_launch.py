"""From the command to CreateTrainingJob: `python -m launch.sagemaker --detach` by each way against the SDK alone.

    make everything && .venv/bin/python -m tests.bench.sagemaker_launch

AWS is moto on this machine.  The SDK alone means: import it and PyTorch(...).fit(wait=False), with the trainer's folder
as its source_dir, and no check, look-up or price.  All in turn, after one of each that is not counted; ratios are of
the same round.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from launch.rehearse.aws.sagemaker.changes import complete
from tests.bench.report import machine, say
from tests.launch.sagemaker.account import SageMakerAccount
from tests.launch.sagemaker.agent import serving

ROUNDS = 7
ALONE = """
import sys, sagemaker
from sagemaker.pytorch import PyTorch
name, role, bucket, source = sys.argv[1:]
optout = {"SchemaVersion": "1.0", "SageMaker": {"PythonSDK": {"Modules": {"TelemetryOptOut": True}}}}
PyTorch(
    entry_point="sagemaker.py", source_dir=source, role=role, instance_type="ml.g5.12xlarge", instance_count=1,
    image_uri="763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-sagemaker",
    distribution={"pytorchddp": {"enabled": True}}, disable_profiler=True, debugger_hook_config=False,
    sagemaker_session=sagemaker.Session(default_bucket=bucket, sagemaker_config=optout),
).fit(wait=False, job_name=name)
"""


def main() -> None:
    with SageMakerAccount.opened() as account, serving() as url, tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "AWS_ENDPOINT_URL": url, "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1",
               "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "HOME": folder,
               "PYTHONPATH": str(Path.cwd()), "SAGEMAKER_VALIDATE_ROLE": "false"}  # fmt: skip
        source = str(Path("trainer").resolve())

        def ours(name: str, through: str) -> float:
            command = ["-m", "launch.sagemaker", "--instance-type", "ml.g5.12xlarge", "--detach", "--job-name", name,
                       "--through", through]  # fmt: skip
            return until_created(account, name, [sys.executable, *command], env)

        def alone(name: str) -> float:
            words = [sys.executable, "-c", ALONE, name, account.role, account.bucket, source]
            return until_created(account, name, words, env)

        def round_of(number: int) -> Mapping[str, float]:
            return {
                "estimator": ours(f"estimator-{number}", "estimator"),
                "boto3": ours(f"boto3-{number}", "boto3"),
                "the SDK alone": alone(f"alone-{number}"),
            }

        rounds = []
        for number in range(ROUNDS + 1):
            seconds = round_of(number)
            if number:
                rounds.append(seconds)
                say("   ".join(f"{name} {value:.1f} s" for name, value in seconds.items()))
        for way in ("boto3", "estimator"):
            ratio = statistics.median(seconds[way] / seconds["the SDK alone"] for seconds in rounds)
            say(f"median of {way} to the SDK alone: {ratio:.2f}")
        say(machine())


def until_created(account: SageMakerAccount, name: str, words: Sequence[str | Path], env: dict[str, str]) -> float:
    """Seconds from the start of the process until AWS has the job."""
    begun = time.time()
    subprocess.run(words, env=env, check=True, capture_output=True)
    job = account.jobs[name]
    created: float = job.described["CreationTime"].timestamp()
    complete(job)  # otherwise they come up against the account's quota
    return created - begun


if __name__ == "__main__":
    main()
