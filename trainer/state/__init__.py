"""What a run keeps: checkpoint files, their content, and the moving average of weights."""
