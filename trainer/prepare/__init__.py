"""`python -m trainer.prepare SRC DST`: convert images to shards.  Torch-free, as every worker process imports it."""
