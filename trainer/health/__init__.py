"""Whether the machines are fit to train on: looked at before a training, which --health-check asks for."""
