"""What SageMaker says of a training job's states.  Those marked [?] are not known to be AWS's own words."""

MESSAGES = {
    "Starting": "Starting the training job",
    "Prepared": "Preparing the instances for training",
    "No machines": "Insufficient capacity error from EC2 while launching instances, retrying!",
    "Pending": "Waiting for capacity",  # [?]
    "Downloading": "Downloading the training image",
    "Training": "Training image download completed. Training in progress.",
    "Uploading": "Uploading generated training model",
    "Completed": "Training job completed",
    "Failed": "Training job failed",
    "Stopping": "Stopping the training job",
    "Stopped": "Training job stopped",  # [?]
    "Interrupted": "Training job interrupted: Spot capacity was reclaimed",  # [?]
    "Restarting": "Restarting the training job after an InternalServerError",  # [?]
    "MaxRuntimeExceeded": "Training job runtime exceeded MaxRuntimeInSeconds provided",  # [?]
    "MaxWaitTimeExceeded": "Training job wait time exceeded MaxWaitTimeInSeconds provided",  # [?]
}
MACHINE_DIED = "InternalServerError: We encountered an internal error. Please try again."
NO_CAPACITY = (
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML instance type."
)
