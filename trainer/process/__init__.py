"""This process: its device and threads, signals, secrets, and SageMaker's inputs."""
