"""SageMaker hosts on this machine: each runs AWS's own training toolkit."""
