"""What every command on AWS uses: client, names and tags, look-ups, machines, logs, prices.  It imports no backend."""
