"""What is known of tensors that a GPU would hold: the values of those that decide what a script does next.

Such a tensor is one of torch's meta tensors. Its values, where they are kept, lie in a storage on the CPU that belongs
to the tensor's own storage, so that views share them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from scenarios.workloads.script.gpu.memory import Memory

_KEYS = torch._C._dispatch_keys

# Floating-point tensors of more elements are data, which decide nothing.
MOST_FLOATS = 4096
# Integers are ids, lengths, splits.
MOST_INTEGERS = 1 << 24


class _Now(threading.local):
    """What holds in a thread just now.

    Attributes:
        wants_meta: the script itself asks for the meta device.
        is_suspended: tensors are of torch's own making, or of ours.
        is_honest: tensors say which device they are on, to operators' own code.
    """

    def __init__(self) -> None:
        self.wants_meta = self.is_suspended = self.is_honest = False


class Shadows:
    """The meta tensors that stand for a GPU's, by their storages, with values of some, or with `has_all` of all; they
    take of its `memory`.
    """

    def __init__(self, memory: Memory, *, has_all: bool = False) -> None:
        self.memory, self.has_all = memory, has_all
        self._values: dict[int, torch.UntypedStorage | None] = {}
        self.now = _Now()

    def is_of_gpu(self, tensor: Tensor) -> bool:
        """Whether it stands for a tensor of the GPU, and is not a script's own meta tensor."""
        while wraps(tensor):  # DTensor and AsyncCollectiveTensor
            inner = getattr(tensor, "_local_tensor", None)
            inner = getattr(tensor, "elem", None) if inner is None else inner
            if inner is None:
                return False
            tensor = inner
        return is_meta(tensor) and tensor.untyped_storage()._cdata in self._values

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Inside, tensors are the caller's own and not the script's."""
        before, self.now.is_suspended = self.now.is_suspended, True
        try:
            yield
        finally:
            self.now.is_suspended = before

    @contextmanager
    def wanting_meta(self) -> Iterator[None]:
        """Take what is created inside for the script's own meta tensors."""
        before, self.now.wants_meta = self.now.wants_meta, True
        try:
            yield
        finally:
            self.now.wants_meta = before

    def adopt(self, tensors: Iterable[Tensor]) -> None:
        """They are of the GPU, without values yet if they are new."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key not in self._values:
                self._values[key] = None
                weakref.finalize(storage, self._is_gone, key)
                self.memory.hold(key, storage.nbytes())

    def _is_gone(self, key: int) -> None:
        del self._values[key]
        self.memory.drop(key)

    def keep(self, tensor: Tensor, values: Tensor) -> None:
        """From now on these are its values, if they are few enough to be kept."""
        self.adopt([tensor])
        if not self.keeps(values):
            self.forget([tensor])
            return
        storage = tensor.untyped_storage()
        if self._values[storage._cdata] is None:
            if tensor.numel() * tensor.element_size() < storage.nbytes():
                return  # of the rest nothing is known
            made = torch.empty(storage.nbytes(), dtype=torch.uint8, device="cpu")
            self._values[storage._cdata] = made.untyped_storage()
        own = self.of(tensor)
        assert own is not None, "it has just been made"
        own.copy_(values)

    def keeps(self, values: Tensor) -> bool:
        """Whether such values may decide something."""
        most = MOST_FLOATS if values.is_floating_point() or values.is_complex() else MOST_INTEGERS
        return self.has_all or values.numel() <= most

    def of(self, tensor: Tensor) -> Tensor | None:
        """Its values, as a view of them; None where they are not known."""
        storage = self._values.get(tensor.untyped_storage()._cdata)
        if storage is None:
            return None
        made = torch.empty(0, dtype=tensor.dtype, device="cpu")
        return made.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())

    def forget(self, tensors: Iterable[Tensor]) -> None:
        """They were written with values that are not known."""
        for tensor in tensors:
            key = tensor.untyped_storage()._cdata
            if key in self._values:
                self._values[key] = None


def wraps(tensor: Tensor) -> bool:
    """Whether it is of a subclass that plays operators itself, such as DTensor."""
    return type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__


def is_meta(tensor: Tensor) -> bool:
    """What torch itself says, whatever `pretend` makes scripts see."""
    return bool(_KEYS(tensor).has(torch._C.DispatchKey.Meta))
