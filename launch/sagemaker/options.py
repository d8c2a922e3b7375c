"""What launch.sagemaker adds to the trainer's settings; flags, YAML keys and help follow from it."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from launch.core.options import WordList
from launch.core.secrets import References

# Of the training: what most come here for; flags and --config win over it.
DEFAULTS = {"dataset": "cifar10", "model": "resnet18", "batch_size": 256, "progress": False}

MOST_HOURS = 672  # 28 days: SageMaker's own limit


class SageMakerOptions(BaseModel):
    """Which instances, for how long, with which data and image, and what it may cost."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)

    instance_type: str = Field("ml.g5.2xlarge", description="SageMaker's name of the type")
    nodes: int = Field(1, ge=1, description="instances")
    max_nodes: int = Field(64, ge=1, description="more --nodes than this are refused")
    allow_cpu: bool = Field(False, description="allow types without a GPU")
    job_name: str | None = Field(None, description="letters, digits, hyphens; none: made of data set, model and time")
    region: str | None = Field(None, description="AWS region; none: that of AWS's own configuration")

    distribution: Literal["pytorchddp", "torch_distributed"] = Field(
        "pytorchddp", description="who starts the ranks: mpirun or torchrun"
    )
    image: str | None = Field(None, description="training container; none: AWS's PyTorch image for the GPU")
    role: str | None = Field(
        None, description="what the job may do: a role's name or ARN; none: infra's, or the notebook's"
    )
    bucket: str | None = Field(None, description="for job folders; none: infra's, aws-ddp-toolkit-ACCOUNT-REGION")

    data: WordList = Field((), description="s3://BUCKET/DIR, fsx://FS/DIR or efs://FS/DIR with train/ and val/ in it")
    input_mode: Literal["File", "FastFile"] = Field("File", description="S3 data copied first, or read as needed")
    volume_gb: int | None = Field(
        None, ge=1, le=16_384, description="GB of disk where the type has none of its own; none: 30, with data 250"
    )

    spot: bool = Field(False, description="spare machines, cheaper, that AWS may take back; the job then goes on later")
    max_wait_hours: float | None = Field(
        None, gt=0, le=MOST_HOURS, description="of a spot job, waiting included; none: twice --max-hours"
    )
    checkpoints: bool = Field(True, description="keep them in the job folder, from where a restart goes on")
    warm_pool_s: int = Field(0, ge=0, le=3600, description="seconds to keep the machines for the next job; they cost")
    max_restarts: int = Field(3, ge=0, le=30, description="times to start again after an error of SageMaker's own")

    subnet: WordList = Field((), description="subnets of your VPC; with --security-group")
    security_group: WordList = Field((), description="groups in it; needed for several nodes: all traffic from itself")
    kms_key: str | None = Field(None, description="key for disk and results; none: AWS's own")
    encrypt_traffic: bool = Field(False, description="between the nodes, too; slows the all-reduce")
    tags: WordList = Field((), description="KEY=VALUE,... of your own on the job")
    environment: WordList = Field((), description="KEY=VALUE,... in the container; everybody sees them: see --secret")
    secret: References = Field(
        (), description="NAME=ssm:/PARAMETER,NAME=secretsmanager:SECRET: variables read at run time"
    )

    max_hours: float = Field(12.0, gt=0, le=MOST_HOURS, description="of training; then SageMaker ends the job")
    max_usd: float | None = Field(None, gt=0, description="refuse a job that may cost more")
    wait: bool = Field(True, description="follow the job to its end, and fetch the result")
    detach: bool = Field(False, description="as --no-wait: return once the job is there; follow with attach")
    fetch: bool = Field(True, description="fetch the result into runs/ at the end")
