"""Many trainings from one file, on any backend: `python -m launch.sweep`.  Start at __main__.py and loop.py."""
