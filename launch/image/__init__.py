"""`python -m launch.image`: the container, built and pushed to the account's repository."""
