"""The module `trainer` for a script: its own if it has one on its path, else the toolkit's, for `trainer.kit`.

Python finds this file before the folders that a script appends to its path, and before an installed toolkit.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

_here = Path(__file__).parent
_ours = _here.parents[1]
_own = PathFinder.find_spec(__name__, [top for top in sys.path if Path(top) not in (_here, _ours.parent)])

if _own is None or _own.loader is None:  # none, or a folder without __init__.py, which may hold anything
    __path__ = [*(_own.submodule_search_locations or () if _own else ()), str(_ours)]
else:
    sys.modules[__name__] = module_from_spec(_own)
    _own.loader.exec_module(sys.modules[__name__])
