"""Pack a user's own code: one deterministic archive of a folder.

Start at find.py, which finds the folder and the script in it.  walk.py lists the files that .gitignore and
.dockerignore leave, keys.py refuses what looks like a secret, and archive.py packs.  Nothing here writes files.
"""
