"""Settings models as flags and YAML, and checks of settings.  Torch-free."""
