"""The folder behind a script's own PYTHONPATH, and all that it finds of ours."""
