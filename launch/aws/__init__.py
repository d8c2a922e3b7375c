"""What every command on AWS uses: client, names and tags, look-ups, instances, logs, prices.  It imports no backend."""
