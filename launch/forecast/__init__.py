"""`python -m launch.forecast`: which instance to take.  The arithmetic is launch.core.estimate's."""
