"""`python -m trainer.tune`: find the fastest batch size and number of workers for this machine."""
