"""Records a module's execution on tensors without values: its operators, their costs, and their memory."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

from scenarios.modules.describing.host import HostCounter
from scenarios.modules.fake import users_line
from scenarios.modules.operators import price, size_bytes, touched_tensors
from scenarios.seam.errors import ProgramError
from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import Kernel

# Functions that start autograd's engine; their local `create_graph` says whether the pass is differentiated in turn.
_ASKS_ENGINE = (torch.autograd.backward.__code__, torch.autograd.grad.__code__)
_CALLS_MODULE = nn.Module._call_impl.__code__
_OF_CHECKPOINTS = torch.utils.checkpoint.__file__

# Python functions per call of a module: 1,371 in a step of a GPT-2 of 89 modules with its optimizer, 14 in that of a
# linear layer (torch 2.13, counted as for scripts).
CALLS_OF_MODULE = 14

_DEPENDS = (DataDependentOutputException, DynamicOutputShapeException)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operator:
    """An operator that does work: its name in aten, the path of the module that called it, and its cost.

    `host` is an eager host's work since the launch of the previous operator. `number` is its position in the recording.
    `reads` and `writes` are bytes by tensor number, one number per storage. `uses` maps tensors to all operators that
    read them, and `freed` has the tensors without references left: both for the whole recording.
    """

    name: str
    module: str
    kernel: Kernel
    host: HostWork
    number: int
    reads: dict[int, int]
    writes: dict[int, int]
    uses: dict[int, list[Operator]] = field(repr=False)
    freed: set[int] = field(repr=False)


class Recorder(TorchDispatchMode):
    """A mode that records the operators dispatched below autograd, and the memory of their results.

    Attributes:
        operators: operators that do work, in order.
        unknown: names of operators that are priced by their bytes alone.
        held_bytes: bytes of live tensors that were created while recording; `peak_bytes`: their peak.
        held_by: `held_bytes` by the module that created them, or by `owner`, if one is set.
        owner: owner of tensors created from now on, in place of their module; "": the module.
    """

    def __init__(self, *, on_gpu: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators: list[Operator] = []
        self.unknown: dict[str, None] = {}
        self.held_bytes = self.peak_bytes = 0
        self.held_by: dict[str, int] = {}
        self.owner = ""
        self.reads_numbers = False
        self._held_at_peak: dict[str, int] | None = {}
        self._on_gpu = on_gpu
        self._host = HostCounter()
        self._running: list[str] = []
        self._names: dict[nn.Module, str] = {}
        self._nodes: dict[int, str] = {}  # module of autograd's nodes, by their sequence numbers
        self._hooks: list[RemovableHandle] = []
        self._owners: dict[int, str | None] = {}
        self._before: list[Tensor] = []
        self._numbers: dict[int, int] = {}  # of live storages
        self._numbered = 0
        self._uses: dict[int, list[Operator]] = {}
        self._freed: set[int] = set()
        self._is_settled = False

    def __enter__(self) -> Recorder:
        self._hooks = [
            register_module_forward_pre_hook(self._enters),
            register_module_forward_hook(self._leaves, always_call=True),
        ]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self.settle()
        for hook in self._hooks:
            hook.remove()

    @property
    def module(self) -> str:
        """Path, from the outermost module, of the innermost running one, forward or backward; "" outside of all."""
        if self._running:
            return self._running[-1]
        # In a backward pass no module is running, but the node knows the forward operator that made it.
        node = torch._C._current_autograd_node()
        return "" if node is None else self._nodes.get(node._sequence_nr(), "")

    def settle(self) -> None:
        """End the tracking of lifetimes: tensors that are freed later count as kept."""
        self._is_settled = True

    def _enters(self, module: nn.Module, _: object) -> None:
        if module not in self._names:
            for path, inner in module.named_modules(prefix=type(module).__name__):
                self._names.setdefault(inner, path)
        self._running.append(self._names[module])
        self._host.calls += CALLS_OF_MODULE

    def _leaves(self, *_: object) -> None:
        self._running.pop()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim":
            return func(*args, **kwargs)
        # Optimizers read numbers such as step counts, which have no values here; any number will do.
        if self.reads_numbers and func is torch.ops.aten._local_scalar_dense.default:
            return 1
        self._host.count_dispatch()
        try:
            result = func(*args, **kwargs)
        except _DEPENDS as error:
            raise ProgramError(self._depends(func)) from error
        if self._running:  # autograd creates the node before it runs the operator, so the latest node is this one's
            latest = torch.autograd._get_sequence_nr() - 1  # type: ignore[attr-defined]
            self._nodes[latest] = self._running[-1]
        kernel, is_known = price(func, args, kwargs, result, on_gpu=self._on_gpu)
        if kernel is not None and kernel.flops and is_recomputed():
            kernel = replace(kernel, recomputed_flops=kernel.flops)
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._hold(leaf)
        if kernel is not None:
            name = func.overloadpacket.__name__
            read, written = touched_tensors(func, args, kwargs, result)
            self._add(name, kernel, self._sizes(read), self._sizes(written))
            if not is_known:
                self.unknown[name] = None
        return result

    def _add(self, name: str, kernel: Kernel, reads: dict[int, int], writes: dict[int, int]) -> None:
        self._host.count_launch(kernel.kind)
        operator = Operator(
            name=name,
            module=self.module,
            kernel=kernel,
            host=self._host.take(),
            number=len(self.operators),
            reads=reads,
            writes=writes,
            uses=self._uses,
            freed=self._freed,
        )
        for tensor in reads:
            self._uses.setdefault(tensor, []).append(operator)
        self.operators.append(operator)

    def _sizes(self, tensors: Sequence[Tensor]) -> dict[int, int]:
        """Return bytes by the tensors' numbers; of views of one storage the largest counts."""
        sizes: dict[int, int] = {}
        for tensor in tensors:
            number = self._number(tensor.untyped_storage()._cdata)
            sizes[number] = max(size_bytes(tensor), sizes.get(number, 0))
        return sizes

    def _number(self, key: int) -> int:
        if key not in self._numbers:
            self._numbered += 1
            self._numbers[key] = self._numbered
        return self._numbers[key]

    def number_of(self, tensor: Tensor) -> int:
        """Return the number with which operators refer to the tensor's storage."""
        return self._number(tensor.untyped_storage()._cdata)

    def knows(self, tensors: Sequence[Tensor]) -> None:
        """Exclude the memory of these tensors, which existed before the recording."""
        self._before += tensors
        self._owners.update((each.untyped_storage()._cdata, None) for each in tensors)

    @property
    def held_at_peak(self) -> dict[str, int]:
        """`held_by` at the peak of memory."""
        return dict(self.held_by) if self._held_at_peak is None else self._held_at_peak

    def begin_phase(self, owner: str = "") -> None:
        """Restart the search for the peak; tensors created from now on belong to `owner`."""
        self.owner, self.peak_bytes, self._held_at_peak = owner, self.held_bytes, None

    def belongs(self, tensor: Tensor, owner: str) -> None:
        """Change the owner of a tensor's memory."""
        storage = tensor.untyped_storage()
        before = self._owners.get(storage._cdata)
        if before is not None:
            self._owners[storage._cdata] = owner
            self.held_by[before] -= storage.nbytes()
            self.held_by[owner] = self.held_by.get(owner, 0) + storage.nbytes()

    def _hold(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self._owners:
            self._owners[key] = self.owner or self.module
            self._change(key, size)
            # A finalizer, as no operator tells when the last reference to a storage is gone.
            weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        if self._held_at_peak is None:  # copied lazily, before the first storage is freed after a new peak
            self._held_at_peak = dict(self.held_by)
        self._change(key, -size)
        # The key is an address, which a later storage may reuse.
        del self._owners[key]
        number = self._numbers.pop(key, None)
        if number is not None and not self._is_settled:
            self._freed.add(number)

    def _change(self, key: int, size: int) -> None:
        owner = self._owners[key]
        assert owner is not None, "what was there before is never freed meanwhile"
        self.held_bytes += size
        self.held_by[owner] = self.held_by.get(owner, 0) + size
        if self.held_bytes > self.peak_bytes:
            self.peak_bytes, self._held_at_peak = self.held_bytes, None

    def _depends(self, func: Any) -> str:
        module = f"module {self.module}: " if self.module else ""
        return (
            f"{module}{func.overloadpacket.__name__}{users_line()}: expected operators whose results' sizes, and what"
            " the program does next, do not depend on values"
        )


def is_recomputed() -> bool:
    """Return whether the current operator belongs to a forward pass that a backward pass runs again.

    Then autograd's engine evaluates a graph and calls torch.utils.checkpoint, a module, or a function that records a
    graph of its own although the backward pass was not requested with `create_graph`, as user-written checkpointing
    does under `torch.enable_grad`.
    """
    if torch._C._current_graph_task_id() == -1:
        return False
    frame = sys._getframe(1)
    while frame is not None and frame.f_code not in _ASKS_ENGINE:
        if frame.f_code is _CALLS_MODULE or frame.f_code.co_filename == _OF_CHECKPOINTS:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return torch.is_grad_enabled() and not (frame is not None and frame.f_locals["create_graph"])
