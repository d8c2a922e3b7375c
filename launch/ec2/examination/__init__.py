"""The doctor's checks for a job on EC2.

To add a check: a function that takes the case and yields verdicts, and a line here.
"""

from launch.aws.examination.case import Check, Examination
from launch.aws.examination.image import PUSH
from launch.ec2.checks import resolve
from launch.ec2.examination import account, machines, queue

EXAMINATION = Examination(
    resolve=resolve,
    machines=lambda options: f"{options.nodes} x {' or '.join(options.instance_type)}",
    regions=lambda options: list(dict.fromkeys(options.region)) or [None],
    bucket=lambda options: options.bucket,
    rights=account.LAUNCHER,
    names=account.names,
    in_doubt="see the dry run below, which asks EC2 itself",
    roles=(
        Check("node role", account.node),
        Check("scheduler role", account.scheduler),
        Check("spot role", account.spot, account.MAKE_SPOT_ROLE),
    ),
    needs=(
        Check("node's permissions", account.of_node),
        Check("quota", machines.quotas),
        Check("queue", queue.queue, queue.PUSH_LAUNCHER),
        Check("prices", machines.prices),
        Check("reservation", machines.reservation, "use another --capacity-reservation or --capacity-block"),
        Check("subnets", machines.subnets, machines.DEFAULT_VPC),
        Check("connectivity", machines.connectivity),
        Check("public access", machines.public_access),
        Check("offered", machines.offerings, machines.OTHER_PLACE),
        Check("AMI", machines.ami, "another --ami, or none"),
        Check("image", machines.image, PUSH),
        Check("snapshot", machines.snapshot, machines.PUBLISH),
        Check("snapshot's key", machines.snapshots_key),
        Check("file system", machines.file_system, machines.PUBLISH),
        Check("data in S3", machines.in_s3),
        Check("volumes' key", machines.default_key),
        Check("dry run", machines.dry_run),
        Check("log group", account.log_group),
        Check("schedule group", account.schedule_group),
        Check("time limits' role", account.role),
        Check("time limits", account.document),
        Check("sweeper", account.sweeper),
    ),
    leftovers=account.left,
)
