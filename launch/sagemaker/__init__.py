"""SageMaker: training jobs through its SDK or boto3.  For notebooks, `import launch.sagemaker as training`."""

from launch.sagemaker.notebook import JobHandle, attach, costs, estimator, jobs, launch, plan

__all__ = ["JobHandle", "attach", "costs", "estimator", "jobs", "launch", "plan"]
