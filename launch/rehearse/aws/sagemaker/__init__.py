"""SageMaker on this machine: training jobs become containers that run AWS's own training toolkit."""
