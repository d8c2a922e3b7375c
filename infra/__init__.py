"""What the launchers read, and no code: importlib.resources.files("infra") finds it wherever it is installed."""
