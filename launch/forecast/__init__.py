"""`python -m launch.forecast`: compares instance types.  The arithmetic is in launch.core.estimate."""
