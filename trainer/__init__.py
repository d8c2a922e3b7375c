"""The training that every launcher runs.  It ships alone in the image and knows nothing of AWS."""

import sys

from trainer.process.driver import BeforeTorch

# So sys.argv is while Python looks for the module that it is to run; a user's own, which imports us, is none of ours.
if sys.argv[:1] == ["-m"] and any(word.split(".")[0] in ("trainer", "launch") for word in sys.orig_argv):
    from trainer.process.as_command import begin

    begin()

sys.meta_path.insert(0, BeforeTorch())
