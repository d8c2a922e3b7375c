"""`python -m launch.config`: the user's own defaults."""
