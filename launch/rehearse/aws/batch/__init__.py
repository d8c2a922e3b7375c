"""The embedded AWS Batch: queues of service jobs, which start training jobs of the embedded SageMaker."""
