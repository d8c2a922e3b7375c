"""Options of launch.ec2 in addition to the trainer's settings; flags, YAML keys and help are derived from them."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from launch.aws.names import SCHEDULER_ROLE
from launch.core import jobs
from launch.core.catalog import SAGEMAKER_PREFIX
from launch.core.jobs import AttachOptions
from launch.core.options import ANYWAY, NEW, Options, WordList, split
from launch.core.price import FILL_VOLUMES, Pay
from launch.core.secrets import References

INSTANCE_TYPE = "g5.2xlarge"
IMAGE = "aws-ddp-toolkit:latest"


def _ec2_names(value: Any) -> Any:
    """Instance types by EC2's names: ml.g5.2xlarge, as SageMaker calls it, is g5.2xlarge."""
    return [str(name).removeprefix(SAGEMAKER_PREFIX) for name in split(value)] if value else value


class Ec2Options(Options):
    """Which nodes, where, for how long, with which data and image, and the price limit."""

    nodes: int = Field(1, ge=1, description="number of nodes")
    max_nodes: int = Field(64, ge=1, description="refuse more --nodes than this")
    instance_type: Annotated[WordList, BeforeValidator(_ec2_names)] = Field(
        (INSTANCE_TYPE,), description="instance types, tried in this order"
    )
    allow_cpu: bool = Field(False, description="allow types without a GPU")
    nproc_per_node: int | None = Field(
        None, ge=1, description="processes per node (default: one per GPU, or one on a CPU)"
    )
    job_name: str | None = Field(
        None, description="letters, digits and hyphens (default: from data set, model and time)"
    )
    new: bool = NEW
    region: WordList = Field(
        (),
        description="AWS regions, tried in this order, or by their spot placement scores with --spot "
        "(default: the one in your AWS configuration)",
    )

    zones: WordList = Field(
        (),
        description="availability zones, tried in this order, or by their spot placement scores with --spot "
        "(default: all that offer the type)",
    )
    subnet: WordList = Field((), description="subnets, one per zone (default: those of the default VPC)")
    security_group: str | None = Field(
        None, description="security group (default: a new one that allows no inbound traffic from outside)"
    )
    proxy: str | None = Field(
        None,
        description="http://HOST:PORT through which nodes reach AWS and the internet, without a password",
        json_schema_extra={"metavar": "URL"},
    )
    placement_group: bool = Field(
        True, description="place several nodes close together: 10 Gbit/s per connection instead of 5"
    )
    efa: bool = Field(True, description="use the Elastic Fabric Adapter on several nodes of a type that has it")
    spot: bool = Field(False, description="use spot capacity; an interrupted job resumes on new nodes")
    capacity_reservation: str | None = Field(None, description="cr-...: start in this capacity reservation")
    capacity_block: str | None = Field(None, description="cr-...: start in this capacity block")
    max_restarts: int = Field(
        3, ge=0, description="how often to resume from the newest checkpoint after a node is lost"
    )

    image: str = Field(IMAGE, description="container image: a repository in the account's ECR, or a URI")
    ami: str | None = Field(
        None, description="AMI of the nodes (default: AWS's newest Deep Learning Base AMI with NVIDIA's driver)"
    )
    instance_profile: str = Field("aws-ddp-toolkit-node", description="instance profile; see infra/account.md")
    scheduler_role: str = Field(SCHEDULER_ROLE, description="role of the EventBridge time limit")
    bucket: str | None = Field(None, description="bucket of the job folder (default: aws-ddp-toolkit-ACCOUNT-REGION)")
    root_gb: int = Field(150, ge=50, le=16_384, description="GB of each node's root volume, for image and checkpoints")
    secret: References = Field(
        (),
        description="environment variables from AWS, read on the nodes: NAME=ssm:/PARAMETER,... or "
        "NAME=secretsmanager:SECRET,...",
        json_schema_extra={"metavar": "NAME=SOURCE,..."},
    )

    data_volume: Literal["auto", "per-node", "multi-attach", "none"] = Field(
        "auto", description="EBS volumes created from the data snapshot; auto: per-node for imagenet and imagefolder"
    )
    fill_volumes: Pay = Field("auto", description=FILL_VOLUMES)
    data: str | None = Field(
        None,
        description="a data set that launch.data has published, by its name (default: --dataset's own)",
        json_schema_extra={"metavar": "NAME"},
    )
    data_snapshot: str | None = Field(
        None, description="snap-... with the data (default: the newest one tagged with the data set's name)"
    )
    data_s3: str | None = Field(
        None,
        description="s3://... to copy to each node's disk instead of using a volume",
        json_schema_extra={"metavar": "s3://..."},
    )

    max_hours: float = Field(12.0, gt=0, le=168, description="time limit, after which the nodes terminate themselves")
    keep_warm: int = Field(
        0,
        ge=0,
        le=1440,
        description="how long the nodes wait, after the training, for a next job, which starts without booting",
        json_schema_extra={"metavar": "MINUTES"},
    )
    anyway: bool = ANYWAY
    max_usd: float | None = Field(None, gt=0, description="refuse a job that may cost more than this")
    wait_for_capacity: float = Field(
        0.0,
        ge=0,
        le=168,
        description="hours to keep asking for machines, every 5 minutes, in all zones and for all types",
        json_schema_extra={"metavar": "HOURS"},
    )
    # Not saved with the job: it is the same one without a queue.
    queue: str | None = Field(
        None,
        exclude=True,
        pattern=r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$",
        description="wait in this queue (see launch.infra up --queue) and return at once; attach follows the job",
        json_schema_extra={"metavar": "NAME"},
    )
    priority: int | None = Field(
        None,
        exclude=True,
        ge=0,
        le=9999,
        description="jobs of a share with a higher priority leave the queue first (default: 0)",
    )
    share: str | None = Field(
        None,
        exclude=True,
        pattern=r"^[A-Za-z0-9]{1,255}$",
        description="share of the queue, such as a team; the one that uses least is next (default: default)",
        json_schema_extra={"metavar": "NAME"},
    )
    wait: bool = Field(True, description="follow the job to its end, then remove its resources")
    fetch: bool = Field(True, description="fetch the results into runs/ at the end")
    detach: bool = Field(
        False, description="return once the nodes run, like --no-wait; attach follows the job, stop ends it"
    )


class RegionsOptions(Options):
    """Options of every verb."""

    region: WordList = Field((), description="AWS regions to look in (default: the one in your AWS configuration)")


class VerbOptions(RegionsOptions):
    """Options of verbs about one job."""

    bucket: str | None = Field(None, description="bucket of the job folder, for an ended job that had its own --bucket")


class StatusOptions(jobs.StatusOptions):
    ended: bool = Field(False, description="also list jobs that ended in the last 7 days")


# Verbs with other options than in launch.core.jobs.
VERB_OPTIONS: dict[str, type[Options]] = {"attach": AttachOptions, "status": StatusOptions}
