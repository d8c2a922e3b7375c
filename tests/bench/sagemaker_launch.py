"""From the command to CreateTrainingJob: `python -m launch.sagemaker --detach` against the SDK alone.

    python -m tests.bench.sagemaker_launch

AWS is moto on this machine.  The SDK alone means: import it, PyTorch(...).fit(wait=False) with the trainer's folder as
its source_dir, and no check, look-up or price of ours.  Both in turn, after one of each that is not counted.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

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
    entry_point="curves.py", source_dir=source, role=role, instance_type="ml.g5.12xlarge", instance_count=1,
    image_uri="763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-sagemaker",
    distribution={"pytorchddp": {"enabled": True}}, disable_profiler=True, debugger_hook_config=False,
    sagemaker_session=sagemaker.Session(default_bucket=bucket, sagemaker_config=optout),
).fit(wait=False, job_name=name)
"""


def main() -> None:
    with SageMakerAccount.opened() as account, serving() as url, tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "AWS_ENDPOINT_URL": url, "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1",
               "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "HOME": folder,
               "PYTHONPATH": str(Path.cwd())}  # fmt: skip
        source = str(Path("trainer").resolve())

        def ours(name: str) -> float:
            command = ["-m", "launch.sagemaker", "--instance-type", "ml.g5.12xlarge", "--detach", "--job-name", name]
            return until_created(account, name, command, env)

        def alone(name: str) -> float:
            return until_created(account, name, ["-c", ALONE, name, account.role, account.bucket, source], env)

        pairs = []
        for number in range(ROUNDS + 1):
            pair = ours(f"ours-{number}"), alone(f"alone-{number}")
            if number:
                pairs.append(pair)
                say(f"launch.sagemaker {pair[0]:.1f} s   the SDK alone {pair[1]:.1f} s   ratio {pair[0] / pair[1]:.2f}")
        ratio = statistics.median(mine / theirs for mine, theirs in pairs)
        say(f"median ratio {ratio:.2f}   ({machine()})")


def until_created(account: SageMakerAccount, name: str, words: Sequence[str], env: dict[str, str]) -> float:
    """Seconds from the start of the process until AWS has the job."""
    begun = time.time()
    subprocess.run([sys.executable, *words], env=env, check=True, capture_output=True)
    created: float = account.jobs[name].described["CreationTime"].timestamp()
    return created - begun


if __name__ == "__main__":
    main()
