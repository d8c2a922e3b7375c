"""Keeps torch's compiler out of a process that compiles nothing: importing it takes half as long as torch itself.

torch imports it with the first optimizer, whose methods ask it not to trace them, and for DDP, which asks for one of
its settings.  Where nothing is compiled a stand-in can answer.  Whoever wants anything else, as FSDP does, gets the
real one, which then takes the stand-in's place.
"""

import importlib
import sys
from collections.abc import Callable, MutableMapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from trainer.process.own_folder import own_folder

NAME = "torch._dynamo"
CACHE = "TORCHINDUCTOR_CACHE_DIR"  # torch's own name: where it keeps what it has compiled


def leave_out() -> None:
    """To be called before torch is imported, by a process that will not compile a model.

    Does nothing where the compiler is there already.
    """
    if NAME not in sys.modules:
        whole = sys.modules[NAME] = _StandIn()
        for part in (whole.utils, whole.trace_rules):
            sys.modules[part.__name__] = part
        sys.meta_path.insert(0, _Submodules())


def name_cache_folder(env: MutableMapping[str, str]) -> None:
    """Names torch a folder of this user's own for what it compiles; one that is named already stays.

    To be called before torch is imported.  Raises SettingsError.
    """
    if not env.get(CACHE):
        env[CACHE] = str(own_folder("compiled", remedy="set TMPDIR to a folder of your own"))


def _disable(function: Callable[..., Any] | None = None, *_: object, **__: object) -> Callable[..., Any]:
    """torch._dynamo.disable: what must not be compiled stays as it is."""
    return function or (lambda decorated: decorated)


class _Part(ModuleType):
    """A part of the compiler of which something is wanted; the rest is the real one's."""

    def __init__(self, part: str, **wanted: Callable[..., object]) -> None:
        super().__init__(f"{NAME}.{part}")
        vars(self).update(wanted)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _real()
        return getattr(importlib.import_module(self.__name__), name)


class _StandIn(ModuleType):
    """What torch 2.6 to 2.15 want of its compiler in a training that compiles nothing."""

    disable = staticmethod(_disable)
    graph_break = staticmethod(lambda *_, **__: None)
    utils = _Part(
        "utils",
        get_optimize_ddp_mode=lambda: "ddp_optimizer",  # DDP: "python_reducer" would be a setting of the compiler
        is_compile_supported=lambda device: False,  # torchvision's operators for detection
    )
    # init_process_group: rules that nobody has read yet need no clearing.
    trace_rules = _Part("trace_rules", clear_lru_cache=lambda: None)

    def __init__(self) -> None:
        super().__init__(NAME)
        self.__path__ = []  # a package, so that _Submodules is asked for what is in it

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # of those who only look through all modules, as `inspect` does
            raise AttributeError(name)
        return getattr(_real(), name)


class _Submodules(MetaPathFinder):
    """Whoever imports a part of the compiler gets the real one."""

    def find_spec(self, name: str, *_: object, **__: object) -> ModuleSpec | None:
        if not name.startswith(NAME + ".") or not isinstance(sys.modules.get(NAME), _StandIn):
            return None
        _real()
        return ModuleSpec(name, _Loaded(importlib.import_module(name)))


class _Loaded(Loader):
    """Hands over a module that is loaded already."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


def _real() -> ModuleType:
    """torch's compiler itself, in place of the stand-in."""
    if isinstance(sys.modules.get(NAME), _StandIn):
        for name in [name for name, module in sys.modules.items() if isinstance(module, (_StandIn, _Part))]:
            del sys.modules[name]
        import torch

        vars(torch).pop("_dynamo", None)
    return importlib.import_module(NAME)
