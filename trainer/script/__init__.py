"""Runs a training of the user's own: one rank of it, as a child of a small process that looks after it."""
