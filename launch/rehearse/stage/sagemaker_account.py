"""What a rehearsal on SageMaker finds: what is installed here, and an account with all that the job names."""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from launch.aws.ecr import PLACE
from launch.core import catalog
from launch.core.errors import NotSetUp
from launch.rehearse.aws.sagemaker.account import SageMakerAccount
from launch.rehearse.aws.sagemaker.plans import TrainingPlan
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
    if job.bucket:
        account.make_bucket(job.bucket)
    account.make_secrets(job.options.get("secret") or ())
    if role := job.options.get("role"):
        account.make_known(str(role))
    if plan := job.options.get("training_plan"):
        account.rules.plans[str(plan)] = TrainingPlan(_first_type(job), job.nodes)
    _make_image(account, PLACE.fullmatch(job.options.get("image") or ""))
    if job.train.data_url and job.data:
        account.put_folder(job.train.data_url, job.data)
    for word in job.options.get("data") or ():
        _fill_channel(account, job, word)


def _make_image(account: SageMakerAccount, place: re.Match[str] | None) -> None:
    if place and place["account"] == account.id:
        SageMakerAccount(place["region"]).make_image(place["name"], place["tag"] or "latest", place["digest"] or "")


def _fill_channel(account: SageMakerAccount, job: RehearsedJob, word: str) -> None:
    """Puts the job's data where `word`, [CHANNEL=]s3://... or fsx:// or efs://, says they are."""
    name, uri = "", word
    if "=" in word and not word.startswith(("s3:", "fsx:", "efs:")):
        name, uri = word.split("=", 1)
    if job.data is None:
        raise SettingsError(f"--data {word}: a rehearsal has no data there; add --rehearse-data FOLDER.")
    folder = job.data / name
    if not folder.is_dir():
        raise SettingsError(f"--data {word}: a rehearsal takes these from {folder}, which is no folder; add it.")
    if uri.startswith("s3://"):
        account.put_folder(uri, folder)
    else:
        system, _, path = uri.partition("://")[2].partition("/")
        account.rules.file_systems[system, f"/{path.rstrip('/')}"] = folder


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
            "run pip install -c constraints.txt -e '.[rehearse-sagemaker]' in the checkout"
        )
