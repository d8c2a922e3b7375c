"""Reports over several runs: speedup, where the time goes, accuracy and cost, as pictures, a page and a table.

Everything is decided in pure functions on launch.core.runs.Run; launch.core.drawing draws, and only commands.py writes.
"""
