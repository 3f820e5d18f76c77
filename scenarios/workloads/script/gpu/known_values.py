"""What is known of tensors that a GPU would hold: the values of those that decide what a script does next.

Such a tensor is one of torch's meta tensors. Its values, where they are kept, lie in a storage on the CPU that belongs
to the tensor's own storage, so that views share them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from scenarios.workloads.script.gpu.memory.memory import DeviceMemory

_KEYS = torch._C._dispatch_keys

# Floating-point tensors of more elements are data, which decide nothing.
MOST_FLOATS = 4096
# Integers are ids, lengths, splits.
MOST_INTEGERS = 1 << 24
# What a float is taken for whose value is not known.
UNKNOWN = 1.0
META = torch.device("meta")
OF_FLOATS = f"floating-point values that the script asks for are {UNKNOWN:g}, as nothing computes them"


class _Now(threading.local):
    """What holds in a thread just now.

    Attributes:
        wants_meta: the script itself asks for the meta device.
        is_suspended: tensors are of torch's own making, or of ours.
        is_honest: tensors say which device they are on, to operators' own code.
        index: the GPU on which an operator makes tensors; None: the current one.
    """

    def __init__(self) -> None:
        self.wants_meta = self.is_suspended = self.is_honest = False
        self.index: int | None = None


class Shadows:
    """The meta tensors that stand for a GPU's, by their storages, with values of some, or with `has_all` of all; they
    take of its `memory`, and know the GPU on which they were made, by default the `current` one.
    """

    def __init__(self, memory: DeviceMemory, current: Callable[[], int], *, has_all: bool = False) -> None:
        self.memory, self._current, self.has_all = memory, current, has_all
        self._values: dict[int, torch.UntypedStorage | None] = {}
        self._indices: dict[int, int] = {}
        self._guesses = set[int]()  # storages whose values follow from something that nobody knows
        self._empty: set[int] = set()  # storages of meta tensors that a script has asked for
        self.now = _Now()

    def is_of_gpu(self, tensor: Tensor) -> bool:
        """Return whether a tensor stands for one of the GPU, and is not a script's own meta tensor."""
        return self._key(tensor) in self._values

    def has(self, storage: torch.UntypedStorage) -> bool:
        """Return whether a storage is of the GPU."""
        return storage._cdata in self._values

    def uses(self, device: int) -> bool:
        """Return whether a tensor lies on the GPU of this number."""
        return device in self._indices.values()

    def index_of_storage(self, storage: torch.UntypedStorage) -> int:
        """Return the number of the GPU on which a storage of the GPU lies."""
        return self._indices[storage._cdata]

    def index_of(self, tensor: Tensor) -> int:
        """Return the number of the GPU that a tensor of a GPU is on."""
        key = self._key(tensor)
        assert key is not None, "the tensor is of a GPU"
        return self._indices[key]

    def _key(self, tensor: Tensor) -> int | None:
        """Return that of a meta tensor's storage, also of what DTensor and other wrapping tensors hold."""
        while wraps(tensor):
            inner = _inner(tensor)
            if inner is None:
                return None
            tensor = inner
        if not is_meta(tensor):
            if not _KEYS(tensor).has(torch._C.DispatchKey.SparseMeta):
                return None
            with self.suspended(), torch._C.DisableTorchFunction():  # a sparse tensor is where its values are
                tensor = torch.ops.aten._values.default(tensor)
        with torch._C.DisableTorchFunction():  # which a parameter without a shape refuses
            return int(tensor.untyped_storage()._cdata)

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

    def adopt(self, tensors: Iterable[Tensor], *, is_in_host: bool = False) -> None:
        """Register tensors as GPU tensors; new ones start without known values, and lie in the GPU's memory, or where
        both reach it in the host's.
        """
        for tensor in tensors:
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key not in self._values:
                self._values[key] = None
                self._indices[key] = self._current() if self.now.index is None else self.now.index
                weakref.finalize(storage, self._is_gone, key)
                self.memory.hold(key, 0 if is_in_host else storage.nbytes())

    def _is_gone(self, key: int) -> None:
        del self._values[key], self._indices[key]
        self._guesses.discard(key)
        self.memory.drop(key)

    def note_empty(self, tensors: Iterable[Tensor]) -> None:
        """Note that a script has made these on the meta device, from which there is nothing to copy."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage._cdata not in self._empty:
                self._empty.add(storage._cdata)
                weakref.finalize(storage, self._empty.discard, storage._cdata)

    def is_empty(self, tensor: Tensor) -> bool:
        """Return whether a script has made it on the meta device."""
        return self._key(tensor) in self._empty

    def keep(self, tensor: Tensor, values: Tensor, *, is_guess: bool = False, is_small: bool = False) -> None:
        """From now on these are its values, if they are few enough to be kept, or `is_small` says so.

        `is_guess`: they follow from something else that is not known.
        """
        self.adopt([tensor])
        if not (is_small or self.keeps(values)):
            self.forget([tensor])
            return
        storage = tensor.untyped_storage()
        if is_guess:
            self._guesses.add(storage._cdata)
        elif self._guesses and tensor.numel() * tensor.element_size() >= storage.nbytes():
            self._guesses.discard(storage._cdata)
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
        most = MOST_FLOATS if is_data(values) else MOST_INTEGERS
        return self.has_all or values.numel() <= most

    def is_guess(self, tensor: Tensor) -> bool:
        """Return whether its values follow from something that is not known."""
        return bool(self._guesses) and tensor.untyped_storage()._cdata in self._guesses

    def knows(self, tensor: Tensor) -> bool:
        """Return whether `of` has a tensor's values."""
        return self._values.get(tensor.untyped_storage()._cdata) is not None

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


def _inner(tensor: Tensor) -> Tensor | None:
    """Return what a tensor of such a subclass holds, None: nothing yet, or it does not say."""
    for name in ("_local_tensor", "elem"):  # DTensor, AsyncCollectiveTensor
        if (inner := getattr(tensor, name, None)) is not None:
            return inner  # type: ignore[no-any-return]
    try:
        names, _ = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
        return next((getattr(tensor, name) for name in names), None)
    except AttributeError:
        return None


def is_data(tensor: Tensor) -> bool:
    """Return whether a tensor has floats, of which few decide something."""
    return tensor.is_floating_point() or tensor.is_complex()


def filled(tensor: Tensor, value: float) -> Tensor:
    """Return a number in a tensor's shape on the CPU, which takes no memory."""
    return torch.full((), value, dtype=tensor.dtype, device="cpu").expand(tensor.shape)


def is_meta(tensor: Tensor) -> bool:
    """What torch itself says, whatever `cuda.torch_cuda` makes scripts see."""
    return bool(_KEYS(tensor).has(torch._C.DispatchKey.Meta))
