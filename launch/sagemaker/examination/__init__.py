"""The doctor's checks for a training job on SageMaker.

To add a check: a function that takes the case and yields verdicts, and a line here.
"""

from launch.aws.examination.case import Check, Examination
from launch.sagemaker.checks import resolve
from launch.sagemaker.examination import checks

EXAMINATION = Examination(
    resolve=resolve,
    machines=lambda options: f"{options.nodes} x {options.instance_type}",
    regions=lambda options: [options.region],
    bucket=lambda options: options.bucket,
    rights=checks.LAUNCHER,
    names=checks.names,
    in_doubt="start the job: SageMaker refuses it, before anything is billed, if a right is missing",
    roles=(Check("job role", checks.role),),
    needs=(
        Check("job's permissions", checks.of_training_job),
        Check("quota", checks.quotas),
        Check("queue", checks.queue),
        Check("image", checks.image, checks.PUSH_THERE),
        Check("VPC", checks.vpc, checks.OWN_NETWORK),
        Check("data channels", checks.channels, "give another --data"),
    ),
    leftovers=checks.left,
)
