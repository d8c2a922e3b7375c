"""Charts: as data (charts.py), and as pictures (picture.py), drawn by matplotlib.  A report and a receipt use it."""
