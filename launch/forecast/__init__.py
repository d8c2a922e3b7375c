"""`python -m launch.forecast`: which instance to take, before anything runs.  The arithmetic is launch.estimate's."""
