"""Publishes data that lie in S3 by a temporary instance beside them."""
