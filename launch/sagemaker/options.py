"""Options of launch.sagemaker besides the trainer's settings; flags, YAML keys and help are derived from them."""

import warnings
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from launch.core.catalog import SAGEMAKER_PREFIX as PREFIX
from launch.core.jobs import AttachOptions, LogsOptions, SshOptions
from launch.core.options import ANYWAY, NEW, Options, Pairs, WordList, split
from launch.core.secrets import References

MOST_HOURS = 672  # 28 days: SageMaker's own limit

# pydantic warns of the field, as classes (but not instances) have a method of that name, from ABCMeta.
warnings.filterwarnings("ignore", 'Field name "register"')

Through = Literal["estimator", "boto3"]


def _sagemaker_names(value: Any) -> Any:
    """Instance types by SageMaker's names: g5.2xlarge, as EC2 calls it, is ml.g5.2xlarge."""
    names = split(value) if isinstance(value, (str, list, tuple)) else ()
    return ",".join(PREFIX + str(name).removeprefix(PREFIX) for name in names) if names else value


class SageMakerOptions(Options):
    """Which instances, for how long, with which data and image, and at what price."""

    instance_type: Annotated[str, BeforeValidator(_sagemaker_names)] = Field(
        "ml.g5.2xlarge",
        description="instance type, or up to five; SageMaker uses the first that has capacity",
        json_schema_extra={"metavar": "TYPE,..."},
    )
    nodes: int = Field(1, ge=1, description="number of instances")
    max_nodes: int = Field(64, ge=1, description="refuse more --nodes than this")
    allow_cpu: bool = Field(False, description="allow instance types without a GPU")
    job_name: str | None = Field(
        None, description="letters, digits and hyphens (default: from data set, model and time)"
    )
    new: bool = NEW
    region: str | None = Field(None, description="AWS region (default: from your AWS configuration)")

    distribution: Literal["pytorchddp", "torch_distributed"] = Field(
        "pytorchddp", description="start the ranks with mpirun or with torchrun"
    )
    through: Through | None = Field(
        None,
        description="library that sends the request: SageMaker's SDK 2 or boto3 alone (default: SDK 2 if installed)",
    )
    image: str | None = Field(None, description="training container (default: AWS's PyTorch image for the GPU)")
    role: str | None = Field(
        None, description="execution role, by name or ARN (default: the one of launch.infra, or the notebook's)"
    )
    bucket: str | None = Field(
        None, description="bucket for job folders (default: launch.infra's, aws-ddp-toolkit-ACCOUNT-REGION)"
    )

    data: WordList = Field(
        (),
        description="a data set that launch.data has published, by its name, or s3://BUCKET/DIR, fsx://FS/DIR or "
        "efs://FS/DIR that holds train/ and val/",
        json_schema_extra={"metavar": "NAME|s3://..."},
    )
    input_mode: Literal["File", "FastFile"] = Field(
        "File", description="copy S3 data before training, or read it on demand"
    )
    volume_gb: int | None = Field(
        None, ge=1, le=16_384, description="GB of EBS for types without local disks (default: 30, or 250 for S3 data)"
    )

    queue: str | None = Field(
        None,
        pattern=r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$",
        description="wait in this queue (see launch.infra up --queue) and return at once; attach follows the job",
    )
    priority: int | None = Field(
        None, ge=0, le=9999, description="jobs of a share with a higher priority leave the queue first (default: 0)"
    )
    share: str | None = Field(
        None,
        pattern=r"^[a-zA-Z0-9]{1,255}$",
        description="share of the queue, such as a team; the one that uses least is next (default: default)",
    )

    training_plan: str | None = Field(
        None,
        description="ARN of a training plan (reserved capacity) for the first --instance-type",
        json_schema_extra={"metavar": "ARN"},
    )
    max_pending_hours: float | None = Field(
        None, ge=0.5, le=MOST_HOURS, description="give up after this many hours without instances"
    )
    spot: bool = Field(False, description="use spot capacity; an interrupted job resumes later")
    max_wait_hours: float | None = Field(
        None, gt=0, le=MOST_HOURS, description="hours a spot job may take, waiting included (default: 2 x --max-hours)"
    )
    checkpoints: bool = Field(True, description="keep checkpoints in the job folder; a restarted job resumes from them")
    warm_pool_s: int = Field(
        0, ge=0, le=3600, description="seconds to keep the instances for the next job; they are billed"
    )
    max_restarts: int = Field(
        3,
        ge=0,
        le=30,
        description="restarts after an internal error of SageMaker; with --queue also after an interruption",
    )

    subnet: WordList = Field((), description="subnets of your VPC; needs --security-group")
    security_group: WordList = Field(
        (), description="security groups in the VPC; several nodes need one that allows all traffic within it"
    )
    kms_key: str | None = Field(None, description="KMS key for disks and results (default: AWS's own)")
    encrypt_traffic: bool = Field(False, description="encrypt traffic between nodes; slows the all-reduce")
    tags: WordList = Field(
        (), description="KEY=VALUE,... extra tags of the training job", json_schema_extra={"metavar": "KEY=VALUE,..."}
    )
    metrics: WordList = Field(
        (), description="names in the script's [METRIC] lines for SageMaker to plot, at most 40 (default: common ones)"
    )
    environment: Pairs = Field(
        (),
        description="KEY=VALUE,... environment variables; visible in the console, so use --secret for secrets",
        json_schema_extra={"metavar": "KEY=VALUE,..."},
    )
    secret: References = Field(
        (),
        description="environment variables from AWS, read at run time: NAME=ssm:/PARAMETER,... or "
        "NAME=secretsmanager:SECRET,...",
        json_schema_extra={"metavar": "NAME=SOURCE,..."},
    )

    remote_debug: bool = Field(False, description="let `launch.sagemaker ssh JOB` open a shell in the containers")
    infra_check: bool = Field(False, description="have SageMaker check the instances' health before the training")
    profiler: bool = Field(
        False, description="collect SageMaker's system metrics every half second; uses some GPU time"
    )

    mlflow_server: str | None = Field(
        None,
        description="ARN of the managed MLflow tracking server or app that --mlflow logs to",
        json_schema_extra={"metavar": "ARN"},
    )
    mlflow_config: bool = Field(
        False, description="also put --mlflow-server into the request's MlflowConfig; not possible with SDK 2"
    )
    experiment: str | None = Field(
        None,
        pattern=r"^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,119}$",
        description="existing experiment in SageMaker Experiments to list the job under",
    )
    register: str | None = Field(
        None,
        pattern=r"^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}$",
        description="model package group to register the trained model in, with its serving code",
        json_schema_extra={"metavar": "GROUP"},
    )

    max_hours: float = Field(12.0, gt=0, le=MOST_HOURS, description="time limit of the training, in hours")
    anyway: bool = ANYWAY
    max_usd: float | None = Field(None, gt=0, description="refuse a job that may cost more than this")
    wait: bool = Field(True, description="follow the job to its end and fetch the result")
    detach: bool = Field(False, description="same as --no-wait: return once the job has started; see attach")
    fetch: bool = Field(True, description="fetch the result into runs/ at the end")

    @property
    def types(self) -> tuple[str, ...]:
        """The instance types, in the order in which they are tried."""
        return tuple(name.strip() for name in self.instance_type.split(",") if name.strip())

    @property
    def beyond_sdk_2(self) -> str:
        """The option that SDK 2's estimator has no argument for; empty if there is none."""
        if self.queue is not None:
            return f"--queue {self.queue}"
        if self.mlflow_config:
            return "--mlflow-config"
        if len(self.types) > 1:
            return f"--instance-type {self.instance_type}"
        return "" if self.max_pending_hours is None else f"--max-pending-hours {self.max_pending_hours:g}"


class NodeLogsOptions(LogsOptions):
    node: int | None = Field(None, ge=1, description="only this instance; algo-1 is number 1 (default: all)")


class NodeSshOptions(SshOptions):
    node: int = Field(1, ge=1, description="the instance; algo-1 is number 1")


class FollowOptions(AttachOptions):
    outcome: Path | None = Field(None, description="folder to write outcome.json into: state, exit code, seconds, USD")


# Verbs with other options than in launch.core.jobs.
VERB_OPTIONS: dict[str, type[Options]] = {"logs": NodeLogsOptions, "ssh": NodeSshOptions, "attach": FollowOptions}
