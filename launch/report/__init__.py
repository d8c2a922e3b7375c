"""What runs add up to: speedup, where the time goes, accuracy, cost; as pictures, a page and a table.

Everything is decided in pure functions on launch.core.runs.Run; only drawing.py and
drawn_*.py know matplotlib, only acts.py writes.
"""
