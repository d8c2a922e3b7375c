"""How long a training takes, what limits it and what it costs, before it runs: pure functions over infra's tables.

Start at forecast.py; formulas.py has the arithmetic, launch/forecast/README.md says it in words.
"""
