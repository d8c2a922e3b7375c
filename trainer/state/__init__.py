"""Saved state of a run: checkpoint files, their content, and the moving average of weights."""
