"""`python -m trainer.prepare SRC DST`: from images to shards.  Never imports torch: each worker is a process."""
