"""The SageMaker backend: training jobs by its SDK or boto3.  In notebooks, `import launch.sagemaker as training`."""

from launch.sagemaker.notebook import JobHandle, attach, costs, estimator, jobs, launch, plan

__all__ = ["JobHandle", "attach", "costs", "estimator", "jobs", "launch", "plan"]
