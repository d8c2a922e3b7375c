"""Keeps torch's compiler out of a process that compiles nothing: importing it takes half as long as torch itself.

torch imports it with the first optimizer, whose methods ask it not to trace them, and for DDP, which asks for one of
its settings.  Where nothing is compiled a stand-in can answer.  Whoever wants anything else, as FSDP does, gets the
real one, which then takes the stand-in's place.
"""

import atexit
import getpass
import importlib
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from trainer.errors import SettingsError
from trainer.process.own_folder import make_own, own_folder, temporary_folder

NAME = "torch._dynamo"
CACHE = "TORCHINDUCTOR_CACHE_DIR"  # torch's own name: where it keeps what it has compiled
_IN_NO_NAME = r'[\\/:*?"<>|]'
_new = list[str]()  # folders that end with this process


def leave_out() -> None:
    """To be called before torch is imported, by a process that will not compile a model.

    Does nothing where the compiler is there already.
    """
    if NAME not in sys.modules:
        whole = sys.modules[NAME] = _StandIn()
        for part in (whole.utils, whole.trace_rules):
            sys.modules[part.__name__] = part
        sys.meta_path.insert(0, _Submodules())


def keep_to_oneself(env: MutableMapping[str, str]) -> None:
    """Names torch a folder for what it compiles in which nobody else can write; one that is named already stays.

    By default that is /tmp/torchinductor_USER, whoever has made it.  torch loads libraries and pickles from there, so
    that another user of the machine who was first could run anything in this training.  For a CPU torch (2.15) keeps
    the headers of what it compiles there all the same, so that folder must be this user's, too.  To be called before
    torch compiles.  Raises SettingsError.
    """
    danger = "run code in this training"
    folder = torchs_own_folder()
    with suppress(OSError):
        _keep_group_out(folder)
    make_own(folder, danger=danger, remedy="set TMPDIR to a folder of your own, or drop --compile")
    if not env.get(CACHE):
        remedy = f"set {CACHE} to a folder of your own, or drop --compile"
        env[CACHE] = str(own_folder("compiled", danger=danger, remedy=remedy))


def look_in_own_folder(env: MutableMapping[str, str]) -> None:
    """As keep_to_oneself, for what compiles nothing: FSDP makes torch's folder, and torch.export reads a file in it.

    Of another user's that file can be a pipe, for which torch (2.15) waits.  Nothing is kept there for the next start,
    so whoever has taken the folder's name refuses nobody: a new one does as well.  Raises SettingsError.
    """
    if env.get(CACHE):
        return
    try:
        env[CACHE] = str(own_folder("compiled", danger="hold this up", remedy="set TMPDIR to another folder"))
    except SettingsError:
        with suppress(OSError):  # no room
            env[CACHE] = tempfile.mkdtemp(prefix="aws-ddp-toolkit-compiled-")
            _new.append(env[CACHE])
            atexit.register(remove_new_folders)
            return
        raise


def remove_new_folders() -> None:
    """Leaves none behind that look_in_own_folder had to make: also for who ends without what `atexit` has to do."""
    while _new:
        shutil.rmtree(_new.pop(), ignore_errors=True)


def torchs_own_folder() -> Path:
    """Where torch keeps what it compiles, unless it is told otherwise, by torch's own rule (2.6 to 2.15).

    Raises SettingsError where there is no folder for temporary files.
    """
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # of a user without a name; a KeyError before Python 3.13
        user = f"uid_{os.getuid()}"
    return temporary_folder("set TMPDIR to a folder of your own") / f"torchinductor_{re.sub(_IN_NO_NAME, '_', user)}"


def _keep_group_out(folder: Path) -> None:
    """Closes a folder of this user's to his group, to which torch has opened it where the umask is 002."""
    found = folder.lstat()
    if found.st_uid == os.getuid() and stat.S_ISDIR(found.st_mode):
        folder.chmod(stat.S_IMODE(found.st_mode) & ~stat.S_IWGRP)


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
