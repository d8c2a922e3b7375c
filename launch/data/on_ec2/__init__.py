"""Publish data that are in S3 by a temporary EC2 instance in the same region, a job of one node."""
