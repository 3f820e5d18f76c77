"""Storages of simulated GPUs as scripts see them: their device, their copies, and how they are saved and pickled.

A CPU copy of unknown bytes is filled with a mark: saving or sending the copy takes the same number of bytes as with a
real GPU, and a GPU to which it is copied recognizes unknown bytes. CPU tensors rebuilt from it are filled with 1.
"""

from __future__ import annotations

import multiprocessing.queues
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, cast

import torch
from torch import Tensor

from scenarios.during import during
from scenarios.modules.operators import tensors_in
from scenarios.workloads.script.gpu.cuda.names import refusing
from scenarios.workloads.script.gpu.known_values import UNKNOWN, Shadows, is_meta, wraps
from scenarios.workloads.script.gpu.tensors import HostCopies, is_pinned

# The 16-bit mark that replaces unknown bytes: NaN in bfloat16, float16 and, repeated, float32.
_MARK = 0x7FD5
# From this size on, unknown bytes in the prediction's own files are replaced by a note.
_LEAST_NOTED_BYTES = 64 << 10
_NOTE = ".unknown"
OF_A_BYTE = f"a single byte that is not computed is pickled as {UNKNOWN:g}"
_refuse_sharing = refusing(
    "tensors of simulated GPUs cannot be shared between processes: expected tensor.cpu(), or torch.distributed"
)


class _Filing(threading.local):
    """Whether a thread writes a file of the prediction's own."""

    is_filing = False


class Storages:
    """Replacements of torch.UntypedStorage's methods for GPU storages.

    `said` is called where unknown values are read on the CPU, with a sentence if it is not the usual one.
    """

    def __init__(self, shadows: Shadows, transfers: HostCopies, said: Callable[..., None]) -> None:
        self._shadows, self._transfers, self._said = shadows, transfers, said
        self.here = _Filing()
        self._unwritten = set[int]()  # CPU storages of unknown bytes, only the first two of which hold the mark
        self._follow()
        rebuild = torch._utils._rebuild_tensor
        torch._utils._rebuild_tensor = lambda *args: self._rebuilt(rebuild(*args))  # type: ignore[no-untyped-call]
        for queue in (multiprocessing.queues.Queue, multiprocessing.queues.JoinableQueue):
            self._refuse_queue(queue)
        core: Any = torch._C
        core.PyTorchFileWriter, core.PyTorchFileReader = _writer(self), _reader(self)

    def filing(self) -> AbstractContextManager[None]:
        """Omit large unknown storages from files written within this context: they are the prediction's own."""
        return during(self.here, is_filing=True)

    def _follow(self) -> None:
        storage: Any = torch.UntypedStorage
        core, tensor = cast("Any", torch._C), cast("Any", Tensor)
        self._copy_usual, self._device_usual = storage.copy_, core.StorageBase.device.__get__
        data_ptr = tensor.data_ptr
        read: Any = storage._set_from_file
        methods: dict[str, Callable[..., Any]] = {
            "clone": lambda self: _bytes_of(self).clone().untyped_storage(),
            "resize_": self._resize,
            # As torch says of any CUDA storage.
            "is_shared": lambda self: True,
            "data_ptr": lambda self: self._cdata if self.nbytes() else 0,
            "_write_file": lambda self, *args: self.cpu()._write_file(*args),
            "_set_from_file": lambda self, *args: self.copy_(read(torch.UntypedStorage(self.nbytes()), *args)),
            "_share_cuda_": _refuse_sharing,
        }
        for name, method in methods.items():
            setattr(storage, name, self._either(method, getattr(storage, name)))

        def copy(target: Any, source: Any, non_blocking: bool | None = False) -> Any:
            return self._copy(target, source, is_blocking=not non_blocking)

        storage.copy_, storage.device = copy, property(self._device)
        storage.is_cuda = property(lambda self: self.device.type == "cuda")
        storage.is_pinned = lambda self, device="cuda": not self.is_cuda and is_pinned(_bytes_of(self))
        storage.pin_memory = lambda self, device="cuda": _bytes_of(self).pin_memory().untyped_storage()
        storage.__new__ = staticmethod(self._creating(storage.__new__))

        def address(of: Tensor) -> int:
            if wraps(of) or not self._shadows.is_of_gpu(of):
                return int(data_ptr(of))
            start = of.untyped_storage().data_ptr()
            return int(start + of.storage_offset() * of.element_size()) if of.numel() else 0

        tensor.data_ptr = address

    def _refuse_queue(self, queue: Any) -> None:
        """Make `put` refuse GPU tensors at once; torch would fail in the queue's thread, unnoticed by the receiver."""
        usual = queue.put

        def put(own: Any, obj: Any, *args: Any, **more: Any) -> None:
            if any(map(self._shadows.is_of_gpu, tensors_in(obj))):
                _refuse_sharing()
            usual(own, obj, *args, **more)

        queue.put = put

    def _either(self, method: Callable[..., Any], usual: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method that calls `method` for GPU storages and `usual` for others."""

        def either(storage: Any, *args: Any, **more: Any) -> Any:
            return (method if self._shadows.has(storage) else usual)(storage, *args, **more)

        return either

    def _device(self, storage: Any) -> torch.device:
        if not self._shadows.now.is_honest and self._shadows.has(storage):
            return torch.device("cuda", self._shadows.index_of_storage(storage))
        found: torch.device = self._device_usual(storage)
        return found

    def _creating(self, usual: Callable[..., Any]) -> Callable[..., Any]:
        def create(kind: Any, *args: Any, device: Any = None, **more: Any) -> Any:
            if device is None or torch.device(device).type != "cuda" or self._shadows.now.is_honest:
                return usual(kind, *args, **more, **({} if device is None else {"device": device}))
            size = args[0] if args else 0
            dtype = {"dtype": torch.uint8, "device": device}
            made = torch.empty(size, **dtype) if isinstance(size, int) else torch.tensor(size, **dtype)
            return made.untyped_storage()

        return create

    def _resize(self, storage: Any, size_bytes: int) -> Any:
        torch._C.StorageBase.resize_(storage, size_bytes)  # type: ignore[attr-defined]
        self._shadows.memory.hold(storage._cdata, size_bytes)
        return storage

    def _copy(self, target: Any, source: Any, *, is_blocking: bool) -> Any:
        """Copy bytes between storages, also across the CPU and the GPU."""
        if isinstance(source, torch.storage.TypedStorage):
            source = source._untyped_storage
        if not (self._shadows.has(target) or self._shadows.has(source)):
            return self._copy_usual(target, source, not is_blocking)
        if self._shadows.has(target) and self._is_unknown(source):
            self._transfers.to_gpu(_bytes_of(source), is_blocking=is_blocking)
            self._shadows.forget([_bytes_of(target)])
        elif self._shadows.has(target) or self._shadows.of(given := _bytes_of(source)) is not None:
            _bytes_of(target).copy_(_bytes_of(source), non_blocking=not is_blocking)
        else:
            self._transfers.to_cpu(given, _bytes_of(target), is_blocking=is_blocking)
            if self.here.is_filing and target.nbytes() > 1:
                self._leave_out(target)
            else:
                self._mark(target)
        return target

    def _leave_out(self, storage: Any) -> None:
        """Write the mark only into the first two bytes of a CPU storage; whoever fills it overwrites them."""
        self._unwritten.add(storage._cdata)
        weakref.finalize(storage, self._unwritten.discard, storage._cdata)
        with self._shadows.suspend():
            _words_of(storage)[:1] = _MARK

    def _mark(self, storage: Any) -> None:
        """Fill a CPU storage with the mark."""
        with self._shadows.suspend():
            _bytes_of(storage).fill_(int(UNKNOWN))  # for an odd last byte, which has no room for the mark
            _words_of(storage).fill_(_MARK)
        self._unwritten.discard(storage._cdata)
        if storage.nbytes() == 1:
            self._said(OF_A_BYTE)

    def _is_unknown(self, storage: Any) -> bool:
        """Return whether a CPU storage is a copy of unknown bytes."""
        if self._shadows.has(storage) or storage.nbytes() < 2 or self._device_usual(storage).type != "cpu":
            return False
        with self._shadows.suspend():
            words = _words_of(storage)
            return bool(words[0] == _MARK and (storage._cdata in self._unwritten or (words == _MARK).all()))

    def _rebuilt(self, tensor: Tensor) -> Tensor:
        """Return a tensor rebuilt from a saved or sent storage: with values on the CPU, with few or none on the GPU."""
        if self._shadows.is_of_gpu(tensor):
            if not self._shadows.keeps(tensor):
                self._shadows.forget([tensor])
        elif not is_meta(tensor) and self._is_unknown(storage := tensor.untyped_storage()):
            self._unwritten.discard(storage._cdata)
            with self._shadows.suspend():
                torch.empty(0, dtype=tensor.dtype).set_(storage).fill_(UNKNOWN)
            self._said()
        return tensor


def _bytes_of(storage: Any) -> Tensor:
    made = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return made.set_(storage)


def _words_of(storage: Any) -> Tensor:
    return _bytes_of(storage)[: storage.nbytes() // 2 * 2].view(torch.int16)


def _writer(storages: Storages) -> type:
    """Return a subclass of torch's file writer that replaces large unknown storages by notes, and fills others."""

    class Writer(torch._C.PyTorchFileWriter):
        def write_record(self, name: str, data: Any, size: int) -> None:
            is_left_out = isinstance(data, torch.UntypedStorage) and data._cdata in storages._unwritten
            if is_left_out and storages._is_unknown(data):
                if storages.here.is_filing and size >= _LEAST_NOTED_BYTES:
                    super().write_record(f"{name}{_NOTE}", b"", 0)
                    return
                storages._mark(data)
            super().write_record(name, data, size)

    return Writer


def _reader(storages: Storages) -> type:
    """Return a subclass of torch's file reader that recognizes notes."""

    class Reader(torch._C.PyTorchFileReader):
        def get_storage_from_record(self, name: str, size: int, kind: Any) -> Tensor:
            if not cast("Any", self).has_record(f"{name}{_NOTE}"):
                found: Tensor = super().get_storage_from_record(name, size, kind)
                return found
            made = torch.UntypedStorage(size)
            storages._leave_out(made)
            return _bytes_of(made)

    return Reader
