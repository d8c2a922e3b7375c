"""What launch.sagemaker says that its jobs need of the account, on accounts that lack it."""
