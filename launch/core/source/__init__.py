"""What is sent of a user's own code: one deterministic archive of a folder.

Start at find.py, which decides which folder it is and what the script is called in it.  ignore.py knows .gitignore and
.dockerignore; walk.py lists the files, keys.py notices what looks like a
secret, and archive.py packs.  What is here reads files and writes none.
"""
