"""The embedded SageMaker, with the account that a training job needs."""
