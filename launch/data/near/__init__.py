"""Publish data that are in S3 by a temporary instance in the same region."""
