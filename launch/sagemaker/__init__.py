"""SageMaker: training jobs through the SDK's PyTorch estimator.  For notebooks, `from launch import sagemaker`."""

from launch.sagemaker.notebook import JobHandle, attach, costs, jobs, launch, plan

__all__ = ["JobHandle", "attach", "costs", "jobs", "launch", "plan"]
