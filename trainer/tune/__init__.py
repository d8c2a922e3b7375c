"""`python -m trainer.tune`: the batch size and the workers for the device at hand."""
