"""Where a training runs: on this machine, on AWS or on Slurm.  Never imports torch."""

import sys
from importlib.util import find_spec

_is_command = sys.argv[:1] == ["-m"] and any(word.split(".")[0] == "launch" for word in sys.orig_argv)
if _is_command and not sys.flags.safe_path and f"{sys.path[0]}/launch" not in __path__:
    del sys.path[0]  # the current folder: what is called trainer, infra or queue there is the user's own

for _name in ("trainer", "infra"):
    _found = find_spec(_name)
    if _found is not None and not str(_found.origin).startswith(f"{__path__[0].removesuffix('launch')}{_name}/"):
        _sentence = (
            f"{_found.origin or f'a folder {_name}'} on Python's path hides the toolkit's own {_name}; take its folder "
            "off PYTHONPATH (or leave it, in a notebook), and give it to a script by --variables PYTHONPATH=FOLDER."
        )
        if not _is_command:
            raise ImportError(_sentence)
        sys.stderr.write(f"error: {_sentence}\n")
        sys.exit(2)

import trainer as trainer  # noqa: E402  # first of all: it sees to standard streams and Ctrl-C
