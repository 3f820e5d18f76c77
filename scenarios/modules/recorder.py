"""Records what a module does on tensors without values: its operators, what they cost, what memory they leave."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.module_tracker import ModuleTracker

from scenarios.modules.fake import users_line
from scenarios.modules.operators import price
from scenarios.seam.errors import ProgramError
from scenarios.seam.kernel import Kernel

_DEPENDS = (DataDependentOutputException, DynamicOutputShapeException)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator that does work: its name in aten, the path of the module that called it, its cost."""

    name: str
    module: str
    kernel: Kernel


class Recorder(TorchDispatchMode):
    """Keeps the operators that are dispatched below autograd, and what memory they leave.

    Attributes:
        operators: those that do work, in order.
        unknown: names of those that are priced by their bytes alone.
        held_bytes: what tensors that were made meanwhile, and are still there, hold now; `peak_bytes`: at most.
        held_by: the same now by the module that made them.
    """

    def __init__(self, *, on_gpu: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators: list[Operator] = []
        self.unknown: dict[str, None] = {}
        self.held_bytes = self.peak_bytes = 0
        self.held_by: dict[str, int] = {}
        self.reads_numbers = False
        self._on_gpu = on_gpu
        self._modules = ModuleTracker()
        self._storages: set[int] = set()
        self._before: list[Tensor] = []

    def __enter__(self) -> Recorder:
        self._modules.__enter__()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._modules.__exit__(*error)

    @property
    def module(self) -> str:
        """The innermost module that runs now, as a path from the outermost; "" outside of all."""
        return max(self._modules.parents - {"Global"}, key=len, default="")

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim":
            return func(*args, **kwargs)
        if self.reads_numbers and func is torch.ops.aten._local_scalar_dense.default:
            return 1
        try:
            result = func(*args, **kwargs)
        except _DEPENDS as error:
            raise ProgramError(self._depends(func)) from error
        kernel, is_known = price(func, args, kwargs, result, on_gpu=self._on_gpu)
        if kernel is not None:
            name = func.overloadpacket.__name__
            self.operators.append(Operator(name=name, module=self.module, kernel=kernel))
            if not is_known:
                self.unknown[name] = None
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._hold(leaf)
        return result

    def knows(self, tensors: Sequence[Tensor]) -> None:
        """Do not count the memory of these tensors, which were there before."""
        self._before += tensors
        self._storages.update(each.untyped_storage()._cdata for each in tensors)

    def _hold(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size, module = storage._cdata, storage.nbytes(), self.module
        if key not in self._storages:
            self._storages.add(key)
            self._change(module, size)
            weakref.finalize(storage, self._free, key, module, size)

    def _free(self, key: int, module: str, size: int) -> None:
        self._storages.discard(key)
        self._change(module, -size)

    def _change(self, module: str, size: int) -> None:
        self.held_bytes += size
        self.held_by[module] = self.held_by.get(module, 0) + size
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)

    def _depends(self, func: Any) -> str:
        module = f"module {self.module}: " if self.module else ""
        return (
            f"{module}{func.overloadpacket.__name__}{users_line()}: expected operators whose results' sizes, and what"
            " the program does next, do not depend on values"
        )
