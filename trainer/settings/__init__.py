"""Settings models as flags and YAML; tables of names.  Torch-free."""
