"""What launch.ec2 adds to the trainer's settings; flags, YAML keys and help follow from it."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from launch.core.options import WordList
from launch.core.secrets import References


class Ec2Options(BaseModel):
    """Which nodes, where, for how long, with which data and image, and what it may cost."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)

    nodes: int = Field(1, ge=1, description="machines")
    max_nodes: int = Field(64, ge=1, description="more --nodes than this are refused")
    instance_type: WordList = Field(("g5.2xlarge",), description="types, tried in this order")
    allow_cpu: bool = Field(False, description="allow types without a GPU")
    nproc_per_node: int | None = Field(None, ge=1, description="processes per node; none: one per GPU, or one on a CPU")
    job_name: str | None = Field(None, description="letters, digits, hyphens; none: made of data set, model and time")
    region: str | None = Field(None, description="AWS region; none: that of AWS's own configuration")

    zones: WordList = Field((), description="availability zones, tried in this order; none: all that have the type")
    subnet: WordList = Field((), description="subnets to take instead of the default VPC's, one per zone")
    security_group: str | None = Field(None, description="group to take; none: one made for the job, nothing inbound")
    placement_group: bool = Field(True, description="several nodes next to each other: 10 Gbit/s per connection, not 5")
    efa: bool = Field(True, description="Elastic Fabric Adapter, on several nodes of a type that has it")
    spot: bool = Field(False, description="spare machines, cheaper, that AWS may take back; the job goes on elsewhere")
    capacity_reservation: str | None = Field(None, description="cr-...: start in this reservation")
    capacity_block: str | None = Field(None, description="cr-...: start in this capacity block")
    max_restarts: int = Field(3, ge=0, description="times to go on from the newest checkpoint after a node is lost")

    image: str = Field("aws-ddp-toolkit:latest", description="container: a repository of the account's ECR, or a URI")
    ami: str | None = Field(None, description="none: AWS's newest Deep Learning base with NVIDIA's driver")
    instance_profile: str = Field("aws-ddp-toolkit-node", description="what the nodes may do; see infra/README.md")
    scheduler_role: str = Field("aws-ddp-toolkit-scheduler", description="what the time limit in EventBridge may do")
    bucket: str | None = Field(None, description="for job folders; none: aws-ddp-toolkit-ACCOUNT-REGION")
    root_gb: int = Field(150, ge=50, le=16_384, description="GB of each node's system disk, for image and checkpoints")
    secret: References = Field(
        (), description="NAME=ssm:/PARAMETER,NAME=secretsmanager:SECRET: variables read at run time"
    )

    data_volume: Literal["auto", "per-node", "multi-attach", "none"] = Field(
        "auto", description="EBS volumes from the snapshot; auto: per-node for imagenet and imagefolder"
    )
    data_snapshot: str | None = Field(None, description="snap-...; none: the newest tagged with the data set's name")
    data_s3: str | None = Field(None, description="s3://... copied to each node's disk instead of a volume")

    max_hours: float = Field(12.0, gt=0, le=168, description="after this the nodes end themselves, whatever happens")
    max_usd: float | None = Field(None, gt=0, description="refuse a job that may cost more")
    wait: bool = Field(True, description="follow the job to its end, and take it down")
    detach: bool = Field(
        False, description="as --no-wait: return when the nodes run; follow with attach, end with stop"
    )
