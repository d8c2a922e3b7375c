"""`python -m launch.data`: data sets in the account, as snapshots for EC2 and in S3."""
