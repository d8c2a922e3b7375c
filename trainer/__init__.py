"""The training that every launcher runs.  It ships alone in the image and knows nothing of AWS."""

import sys

from trainer.process.driver import BeforeTorch

# What Python says while it looks for the module after -m; and a script of the user's, started so, is not ours.
if sys.argv[:1] == ["-m"] and any(word.split(".")[0] in ("trainer", "launch") for word in sys.orig_argv):
    from trainer.process.as_command import begin

    begin()

sys.meta_path.insert(0, BeforeTorch())
