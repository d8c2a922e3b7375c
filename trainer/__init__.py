"""The training that every launcher runs.  It ships alone in the image and knows nothing of AWS."""

import sys

# So sys.argv is while Python looks for the module that it is to run; a user's own, which imports us, is none of ours.
_is_command = sys.argv[:1] == ["-m"] and any(word.split(".")[0] in ("trainer", "launch") for word in sys.orig_argv)
if _is_command and "launch" not in sys.modules and not sys.flags.safe_path and f"{sys.path[0]}/trainer" not in __path__:
    del sys.path[0]  # the current folder: what is called queue there is the user's own

if _is_command:
    from trainer.terminal import begin

    begin()
