"""Report over several runs: speedup, where the time goes, accuracy and cost, as pictures, a page and a table.

Pure functions on launch.core.runs.Run compute everything; launch.core.drawing draws, and only commands.py writes files.
"""
