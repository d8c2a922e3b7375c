"""What a script imports as `trainer`: its own, wherever on its path that is, else ours for `from trainer import kit`.

Python comes here before the folders that a script appends to its path, and before the installed toolkit.
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
