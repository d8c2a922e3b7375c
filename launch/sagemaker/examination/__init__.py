"""What a training job on SageMaker needs of the account.

To add a check: a function that takes the case and yields verdicts, and a line here.
"""

from launch.aws.examination.case import Check, Examination
from launch.sagemaker.checks import resolve
from launch.sagemaker.examination import account, permissions, training_job

EXAMINATION = Examination(
    resolve=resolve,
    machines=lambda options: f"{options.nodes} x {options.instance_type}",
    regions=lambda options: [options.region],
    bucket=lambda options: options.bucket,
    rights=permissions.LAUNCHER,
    names=permissions.names,
    in_doubt="start the job: SageMaker refuses it, before anything is billed, if a right is missing",
    roles=(Check("job role", permissions.role),),
    needs=(
        Check("job's permissions", permissions.of_training_job),
        Check("quota", account.quotas),
        Check("image", account.image, account.PUSH_THERE),
        Check("VPC", training_job.vpc, training_job.OWN_NETWORK),
        Check("data channels", training_job.channels, "give another --data"),
    ),
    leftovers=account.left,
)
