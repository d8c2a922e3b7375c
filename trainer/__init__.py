"""The training that every launcher runs.  It is shipped alone in the image and knows nothing about AWS."""

import sys

# sys.argv is ["-m"] while Python locates the module to run, so a user's own module that imports us does not match.
_is_command = sys.argv[:1] == ["-m"] and any(word.split(".")[0] in ("trainer", "launch") for word in sys.orig_argv)
if _is_command and "launch" not in sys.modules and not sys.flags.safe_path and f"{sys.path[0]}/trainer" not in __path__:
    del sys.path[0]  # the current folder, where a user's queue.py would shadow the standard library's

if _is_command:
    from trainer.terminal import begin

    begin()
