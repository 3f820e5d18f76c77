"""A stand-in for `torch._dynamo`, which takes 0.6 s to import and does nothing without torch.compile.

Dispatch modes, optimizers and fake tensors call a few functions of torch's compiler: to be excluded from compilation,
and for settings. The stand-in implements these, and loads torch's own package for everything else.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

_NAME = "torch._dynamo"
_SOURCE = f"{_NAME}.source"


@contextmanager
def without_compiler() -> Iterator[None]:
    """Run torch without its compiler, unless it is already loaded or needed inside."""
    if _NAME in sys.modules:
        yield
        return
    _STAND_IN.enter()
    try:
        yield
    finally:
        _STAND_IN.leave()


class _StandIn(ModuleType):
    """A package without a compiler; its submodule `config` is torch's own, which is light."""

    def __init__(self) -> None:
        super().__init__(_NAME)
        self.__path__ = [str(Path(torch.__file__).parent / "_dynamo")]
        self._finder = _Submodules()
        self._not_compiled: list[Callable[..., Any]] = []

    def disable(self, fn: Any = None, recursive: bool = True, *, wrapping: bool = True, **more: Any) -> Any:
        """Return torch's own function `fn` itself: without a compiler there is nothing to keep from it."""
        if wrapping:  # anyone else's, who keeps the answer for good
            return self.__getattr__("disable")(fn, recursive, wrapping=wrapping, **more)
        self._not_compiled.append(fn)
        return fn

    def graph_break(self, msg: str = "") -> None:
        pass

    def enter(self) -> None:
        sys.modules[_NAME] = self
        vars(torch)["_dynamo"] = self
        sys.meta_path.insert(0, self._finder)

    def leave(self) -> None:
        """Remove the stand-in, so that the next import loads torch's own package."""
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        if sys.modules.get(_NAME) is self:
            del sys.modules[_NAME], torch._dynamo
        if isinstance(vars(self).pop("source", None), _Source):
            sys.modules.pop(_SOURCE, None)
        for fn in self._not_compiled:  # torch caches the result there; a compiler loaded later must be asked again
            vars(fn).pop("__dynamo_disable", None)
        self._not_compiled.clear()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system looks up such names on every module
            raise AttributeError(name)
        self.leave()
        return getattr(importlib.import_module(_NAME), name)


class _Source(ModuleType):
    """A stand-in for `torch._dynamo.source`, which fake tensors name where a copy of a tensor comes from."""

    @dataclass(frozen=True)
    class ConstantSource:
        """The source of a tensor that is made within a fake mode."""

        source_name: str

    class RandomValueSource:
        """The source of no tensor: only the compiler makes such ones."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _STAND_IN.leave()
        return getattr(importlib.import_module(_SOURCE), name)


class _Submodules:
    """A finder that removes the stand-in when a submodule is imported, as submodules depend on the package's order."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if not name.startswith(f"{_NAME}.") or name == f"{_NAME}.config":
            return None
        if name == _SOURCE:
            return spec_from_loader(name, _Loaded(_Source(name)))
        _STAND_IN.leave()
        importlib.import_module(_NAME)
        module = importlib.import_module(name)
        found = spec_from_loader(name, _Loaded(module))
        module.__spec__ = found  # the module is loaded already, and the import system reads its spec here
        return found


class _Loaded(Loader):
    """A loader of a module that is already loaded."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


_STAND_IN = _StandIn()  # a single one: `config` is set as its package's attribute only by its first import
