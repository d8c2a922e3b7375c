"""This process: its device and threads, signals, secrets, and what SageMaker tells it."""
