"""What a rehearsal on SageMaker finds: what is installed here, and an account with all that the job names."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from launch.core import catalog
from launch.core.errors import NotSetUp
from launch.core.s3 import known_s3
from launch.rehearse.aws.sagemaker.account import SageMakerAccount
from launch.rehearse.aws.sagemaker.plans import TrainingPlan
from launch.rehearse.nodes.sagemaker.files import files_in
from launch.rehearse.stage.scene import RehearsedJob
from trainer.errors import SettingsError

NEEDED = ("sagemaker_training", "sagemaker_pytorch_container", "mpi4py")
RANKS_PER_CORE = 4


def gpus_of(job: RehearsedJob) -> int:
    """GPUs of an instance on AWS; the launcher itself refuses an unknown type."""
    instance = catalog.load().get(_first_type(job).removeprefix(catalog.SAGEMAKER_PREFIX))
    return instance.gpus if instance else 1


def _first_type(job: RehearsedJob) -> str:
    return str(job.options.get("instance_type")).partition(",")[0].strip()


def most_ranks() -> int:
    return RANKS_PER_CORE * (os.cpu_count() or 1)


def fill(account: SageMakerAccount, job: RehearsedJob) -> None:
    """Sets the account up as in infra/account.md, with everything that the command line names."""
    account.fill()
    if job.bucket and job.bucket not in account.buckets():
        account.make_bucket(job.bucket)
    account.make_secrets(job.options.get("secret") or ())
    if role := job.options.get("role"):
        account.make_known(str(role))
    if plan := job.options.get("training_plan"):
        account.rules.plans[str(plan)] = TrainingPlan(_first_type(job), job.nodes)
    for word in job.options.get("data") or ():
        _fill_channel(account, job, word)


def _fill_channel(account: SageMakerAccount, job: RehearsedJob, word: str) -> None:
    """Puts the job's data where `word`, [CHANNEL=]s3://..., says they are."""
    name, uri = "", word
    if "=" in word and not word.startswith(("s3:", "fsx:", "efs:")):
        name, uri = word.split("=", 1)
    if not uri.startswith("s3://"):
        raise SettingsError(f"--data {word}: only data in S3 can be rehearsed.")
    if job.data is None:
        raise SettingsError(f"--data {word}: a rehearsal has no data there; add --rehearse-data FOLDER.")
    _put_data(account, uri, job.data / name)


def _put_data(account: SageMakerAccount, uri: str, folder: Path) -> None:
    """Puts the files of `folder` under `uri`."""
    place = known_s3(uri)
    if place.bucket not in account.buckets():
        account.make_bucket(place.bucket)
    for file in files_in(folder):
        key = "/".join(part for part in (place.key.rstrip("/"), file.relative_to(folder).as_posix()) if part)
        account.put(place.bucket, key, file.read_bytes())


def check_toolkit(job: RehearsedJob) -> None:
    """Raises NotSetUp with the command that installs what is missing."""
    needed = ("sagemaker", *NEEDED) if job.options.get("through") == "estimator" else NEEDED
    missing = [name for name in needed if find_spec(name) is None]
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    if shutil.which("mpirun", path=path) is None:
        missing.append("mpirun")
    if missing:
        raise NotSetUp(
            f"a rehearsal on SageMaker needs {', '.join(missing)}; "
            "run pip install -c constraints.txt -e '.[rehearse-sagemaker]'"
        )
