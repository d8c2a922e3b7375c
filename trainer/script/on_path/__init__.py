"""The only toolkit folder on a script's PYTHONPATH, after the script's own folders."""
