"""SageMaker: training jobs through the SDK's PyTorch estimator.  For notebooks, `from launch import sagemaker`."""

from launch.sagemaker.notebook import TrainingJob, attach, costs, jobs, launch, plan

__all__ = ["TrainingJob", "attach", "costs", "jobs", "launch", "plan"]
