"""Known values of a simulated GPU's tensors: those that decide what a script does next.

A GPU tensor is one of torch's meta tensors. Known values lie in a CPU storage that belongs to the tensor's own storage,
so that views share them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from scenarios.during import during
from scenarios.workloads.script.gpu.memory.memory import DeviceMemory

_KEYS = torch._C._dispatch_keys

# Larger floating-point tensors are data, on which no script branches.
MOST_FLOATS = 4096
# Integers are ids, lengths and splits, so larger tensors of them are kept.
MOST_INTEGERS = 1 << 24
# The value assumed for an unknown float.
UNKNOWN = 1.0
META = torch.device("meta")
OF_FLOATS = f"floating-point values that the script reads are taken as {UNKNOWN:g}, as they are not computed"


class _Now(threading.local):
    """The current state of a thread.

    Attributes:
        wants_meta: whether the script itself uses the meta device.
        is_suspended: whether tensors belong to torch's internals or to the simulation.
        is_honest: whether tensors report their real device, as operators' own code needs.
        index: the GPU on which an operator creates tensors; None: the current one.
    """

    def __init__(self) -> None:
        self.wants_meta = self.is_suspended = self.is_honest = False
        self.index: int | None = None


class Shadows:
    """A registry of the meta tensors that stand for a GPU's, by storage, with known values (`has_all`: of all tensors).

    Tensors take space of `memory`, and record the GPU on which they were created, by default the `current` one.
    """

    def __init__(self, memory: DeviceMemory, current: Callable[[], int], *, has_all: bool = False) -> None:
        self.memory, self._current, self.has_all = memory, current, has_all
        self._values: dict[int, torch.UntypedStorage | None] = {}
        self._indices: dict[int, int] = {}
        self._guesses = set[int]()  # storages whose values follow from unknown values
        self._choices = set[int]()  # storages of unknown integers that are choices among unknown scores
        self._empty: set[int] = set()  # storages of the script's own meta tensors
        self.now = _Now()

    def is_of_gpu(self, tensor: Tensor) -> bool:
        """Return whether a tensor stands for a GPU tensor, and is not a script's own meta tensor."""
        return self._key(tensor) in self._values

    def has(self, storage: torch.UntypedStorage) -> bool:
        """Return whether a storage belongs to a GPU."""
        return storage._cdata in self._values

    def uses(self, device: int) -> bool:
        """Return whether a tensor lies on the GPU of this number."""
        return device in self._indices.values()

    def index_of_storage(self, storage: torch.UntypedStorage) -> int:
        """Return the number of the GPU on which a GPU storage lies."""
        return self._indices[storage._cdata]

    def index_of(self, tensor: Tensor) -> int:
        """Return the number of the GPU on which a GPU tensor lies."""
        key = self._key(tensor)
        assert key is not None, "the tensor is of a GPU"
        return self._indices[key]

    def _key(self, tensor: Tensor) -> int | None:
        """Return the key of a meta tensor's storage, also for tensors within wrappers such as DTensor; else None."""
        while wraps(tensor):
            inner = _inner(tensor)
            if inner is None:
                return None
            tensor = inner
        if not is_meta(tensor):
            if not _KEYS(tensor).has(torch._C.DispatchKey.SparseMeta):
                return None
            with self.suspend(), torch._C.DisableTorchFunction():  # a sparse tensor counts by its values' storage
                tensor = torch.ops.aten._values.default(tensor)
        with torch._C.DisableTorchFunction():  # parameters without a shape refuse torch functions
            return int(tensor.untyped_storage()._cdata)

    def suspend(self) -> AbstractContextManager[None]:
        """Treat tensors within the context as the simulation's own, not the script's."""
        return during(self.now, is_suspended=True)

    def wanting_meta(self) -> AbstractContextManager[None]:
        """Treat meta tensors created within the context as the script's own."""
        return during(self.now, wants_meta=True)

    def adopt(self, tensors: Iterable[Tensor], *, is_in_host: bool = False) -> None:
        """Register tensors as GPU tensors; new storages start without known values and take GPU memory.

        `is_in_host`: the storages lie in host memory that the GPU can read.
        """
        for tensor in tensors:
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key not in self._values:
                self._values[key] = None
                self._indices[key] = self._current() if self.now.index is None else self.now.index
                # With the storage, not the tensor: views keep it alive, and its address is the key only as long.
                weakref.finalize(storage, self._is_gone, key)
                self.memory.hold(key, 0 if is_in_host else storage.nbytes())

    def _is_gone(self, key: int) -> None:
        del self._values[key], self._indices[key]
        # A storage's key is its address, which a later storage may get.
        self._guesses.discard(key)
        self._choices.discard(key)
        self.memory.drop(key)

    def note_empty(self, tensors: Iterable[Tensor]) -> None:
        """Register tensors that a script has created on the meta device, which have no data to copy."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage._cdata not in self._empty:
                self._empty.add(storage._cdata)
                # Addresses are reused: a new storage at this one must not inherit the mark.
                weakref.finalize(storage, self._empty.discard, storage._cdata)

    def is_empty(self, tensor: Tensor) -> bool:
        """Return whether a script has created the tensor on the meta device."""
        return self._key(tensor) in self._empty

    def keep(self, tensor: Tensor, values: Tensor, *, is_guess: bool = False, is_small: bool = False) -> None:
        """Store a tensor's values if they are few enough or `is_small` is set; else forget them.

        `is_guess`: the values follow from unknown ones.
        """
        self.adopt([tensor])
        if not (is_small or self.keeps(values)):
            self.forget([tensor])
            return
        storage = tensor.untyped_storage()
        if is_guess:
            self._guesses.add(storage._cdata)
        # Only a write of the whole storage makes all of its values certain again.
        elif self._guesses and tensor.numel() * tensor.element_size() >= storage.nbytes():
            self._guesses.discard(storage._cdata)
        if self._values[storage._cdata] is None:
            if tensor.numel() * tensor.element_size() < storage.nbytes():
                return  # the rest of the storage is unknown
            made = torch.empty(storage.nbytes(), dtype=torch.uint8, device="cpu")
            self._values[storage._cdata] = made.untyped_storage()
        own = self.of(tensor)
        assert own is not None, "it has just been made"
        own.copy_(values)

    def keeps(self, values: Tensor) -> bool:
        """Return whether such values are few enough to be kept."""
        most = MOST_FLOATS if is_data(values) else MOST_INTEGERS
        return self.has_all or values.numel() <= most

    def is_guess(self, tensor: Tensor) -> bool:
        """Return whether a tensor's values follow from unknown ones."""
        return bool(self._guesses) and tensor.untyped_storage()._cdata in self._guesses

    def knows(self, tensor: Tensor) -> bool:
        """Return whether `of` returns values for a tensor."""
        return self._values.get(tensor.untyped_storage()._cdata) is not None

    def of(self, tensor: Tensor) -> Tensor | None:
        """Return a tensor's values as a view; None if they are unknown."""
        storage = self._values.get(tensor.untyped_storage()._cdata)
        if storage is None:
            return None
        made = torch.empty(0, dtype=tensor.dtype, device="cpu")
        return made.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())

    def forget(self, tensors: Iterable[Tensor]) -> None:
        """Mark the values of tensors as unknown."""
        for tensor in tensors:
            key = tensor.untyped_storage()._cdata
            if key in self._values:
                self._values[key] = None
                self._choices.discard(key)

    def note_choices(self, tensors: Iterable[Tensor]) -> None:
        """Note that tensors with unknown integers hold choices among unknown scores, such as predicted classes."""
        self._choices.update(
            each.untyped_storage()._cdata for each in tensors if not is_data(each) and self.is_of_gpu(each)
        )

    def is_choice(self, tensor: Tensor) -> bool:
        """Return whether a tensor's unknown integers are choices."""
        return bool(self._choices) and self._key(tensor) in self._choices


def wraps(tensor: Tensor) -> bool:
    """Return whether a tensor's subclass dispatches operators itself, as DTensor does."""
    return type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__


def _inner(tensor: Tensor) -> Tensor | None:
    """Return the tensor within a wrapper; None if there is none yet or the wrapper does not expose it."""
    for name in ("_local_tensor", "elem"):  # DTensor, AsyncCollectiveTensor
        if (inner := getattr(tensor, name, None)) is not None:
            return inner  # type: ignore[no-any-return]
    try:
        names, _ = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
        return next((getattr(tensor, name) for name in names), None)
    except AttributeError:
        return None


def is_data(tensor: Tensor) -> bool:
    """Return whether a tensor holds floats or complex numbers, few of which decide anything."""
    return tensor.is_floating_point() or tensor.is_complex()


def fill_shape(tensor: Tensor, value: float) -> Tensor:
    """Return a number expanded to a tensor's shape on the CPU, without memory for the elements."""
    return torch.full((), value, dtype=tensor.dtype, device="cpu").expand(tensor.shape)


def is_meta(tensor: Tensor) -> bool:
    """Return whether a tensor is a meta tensor for torch's C++, whatever scripts see."""
    return bool(_KEYS(tensor).has(torch._C.DispatchKey.Meta))
