"""Forecast how long a training takes, what limits it and what it costs: pure functions over infra's tables.

Start at forecast.py; formulas.py has the arithmetic, launch/forecast/README.md explains it.
"""
