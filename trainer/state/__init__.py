"""Saved state of a run: checkpoint files and their content."""
