"""The device that a tensor reports, and moves between devices."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]
from torch.utils._device import DeviceContext, _device_constructors

from scenarios.modules.operators import size_bytes
from scenarios.seam.kernel import Kernel
from scenarios.seam.trace import COPYING
from scenarios.workloads.script.gpu.known_values import Shadows, wraps
from scenarios.workloads.script.process.simulated import SimulatedLink

# Copies up to this size from pageable memory do not block (CUDA runtime API, "API synchronization behavior").
_AT_ONCE_BYTES = 64 << 10
_BASE: Any = torch._C.TensorBase
_DEVICE = _BASE.device.__get__


def move_tensors(shadows: Shadows, current: Callable[[], int]) -> Callable[[Any], Any]:
    """Make GPU tensors report their device and move; `current` returns the number of the current device.

    Returns:
        A function that turns a number into a device, and adds the current number to "cuda" without one.
    """

    def device(self: torch.Tensor) -> torch.device:
        if not shadows.now.is_honest and shadows.is_of_gpu(self):
            return torch.device("cuda", shadows.index_of(self))
        with torch._C.DisableTorchFunction():  # a torch function would read this property again
            found: torch.device = _DEVICE(self)
        return found

    def number_device(device: Any) -> Any:
        """Add the device's number, for which C++ would query the driver."""
        if isinstance(device, int):
            return torch.device("cuda", device)
        if not isinstance(device, str | torch.device):  # a proxy of torch.fx
            return device
        found = device if isinstance(device, torch.device) else torch.device(device)
        return torch.device("cuda", current()) if found.type == "cuda" and found.index is None else found

    tensor: Any = torch.Tensor
    tensor.device = property(device)
    tensor.is_cuda = property(lambda self: self.device.type == "cuda")
    tensor.is_meta = property(lambda self: self.device.type == "meta")
    tensor.get_device = lambda self: self.device.index if self.is_cuda else -1
    tensor.record_stream = lambda *_, **__: None
    tensor.pin_memory = lambda self, device=None: self if is_pinned(self) else mark_pinned(self.clone())
    tensor.is_pinned = lambda self, device=None: is_pinned(self)
    tensor._make_wrapper_subclass = staticmethod(partial(_wrap, tensor._make_wrapper_subclass))
    _move(number_device)
    _parse(number_device)
    _follow_default_device(shadows, number_device)
    _group()
    # Lazy modules refuse other methods.
    UninitializedTensorMixin._allowed_methods += [tensor.to, tensor.cuda, tensor.get_device]
    return number_device


def _wrap(make: Callable[..., Tensor], *args: Any, **more: Any) -> Tensor:
    """Create a tensor of a wrapper subclass; in C++ it is on the meta device, like the tensors that it wraps."""
    given = [torch.device("meta") if isinstance(each, torch.device) and each.type == "cuda" else each for each in args]
    if torch.device(more.get("device") or "cpu").type == "cuda":
        more["device"] = torch.device("meta")
    return make(*given, **more)


_pinned = set[int]()  # storages of pinned memory


def mark_pinned(tensor: Tensor) -> Tensor:
    """Mark a CPU tensor's memory as pinned."""
    if tensor.device.type == "cpu" and tensor.layout == torch.strided and not is_pinned(tensor):
        storage = tensor.untyped_storage()
        _pinned.add(storage._cdata)
        weakref.finalize(storage, _pinned.discard, storage._cdata)
    return tensor


def is_pinned(tensor: Tensor) -> bool:
    """Return whether a tensor lies in pinned memory."""
    return bool(_pinned) and tensor.layout == torch.strided and tensor.untyped_storage()._cdata in _pinned


class HostCopies:
    """A model of copies between the CPU and the GPU, on the current stream, over the path to the host's memory.

    The host itself copies pageable memory to or from memory that the GPU can access, and waits for the GPU, unless few
    bytes go to the GPU.
    """

    def __init__(self, link: SimulatedLink) -> None:
        self._link = link

    def wait(self) -> None:
        """Make the host wait for the current stream."""
        self._link.synchronize(self._link.stream)

    def to_gpu(self, source: Tensor, *, is_blocking: bool) -> None:
        """Copy a CPU tensor to the GPU."""
        size = size_bytes(source)
        if not is_pinned(source):
            if size > _AT_ONCE_BYTES:
                self.wait()
            self._link.staged(size)
        self._link.launch(Kernel(kind=COPYING, host_read=float(size), bytes_written=float(size), dtype=""))
        if is_blocking:
            self.wait()

    def to_cpu(self, source: Tensor, target: Tensor | None, *, is_blocking: bool) -> None:
        """Copy a GPU tensor; without a target, to new memory, which is pinned if the copy does not block."""
        size = size_bytes(source)
        self._link.launch(Kernel(kind=COPYING, bytes_read=float(size), host_written=float(size), dtype=""))
        is_pageable = is_blocking if target is None else not is_pinned(target)
        if is_blocking or is_pageable:
            self.wait()
        if is_pageable:
            self._link.staged(size)


def _move(indexed: Callable[[Any], Any]) -> None:
    """Make `to` and `cuda` go by the devices that tensors report, which C++ does not see."""
    tensor: Any = torch.Tensor
    to = tensor.to

    def move(self: torch.Tensor, *args: Any, **more: Any) -> torch.Tensor:
        args, more = _with_indices(args, more, indexed)
        if (on_meta := _of_meta(self, args, more)) is not None:
            return to(self, **on_meta)  # type: ignore[no-any-return]
        # Drop the device if the tensor is there already, as C++ would not notice.
        if not more.get("copy") and self.is_cuda:
            if args and args[0] == self.device:
                args = args[1:]
            if more.get("device") == self.device:
                del more["device"]
            is_as_wanted = more.get("memory_format") in (None, torch.preserve_format)
            if not [each for each in (*args, more.get("dtype")) if isinstance(each, torch.dtype | torch.Tensor)] and (
                not any(isinstance(each, str | torch.device) for each in args) and "device" not in more and is_as_wanted
            ):
                return self
        found: torch.Tensor = to(self, *args, **more)
        return found

    tensor.to = move
    tensor.cuda = lambda self, device=None, non_blocking=False, **_: move(
        self, "cuda" if device is None else device, non_blocking=non_blocking
    )


def _of_meta(tensor: torch.Tensor, args: tuple[Any, ...], more: dict[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of a `Tensor.to` that moves a GPU tensor to the meta device, by name; else None.

    A copy is forced: for C++ the tensor is on the meta device already.
    """
    like = args[0] if args and isinstance(args[0], torch.Tensor) else None
    device = like.device if like is not None else args[0] if args else more.get("device")
    if not (isinstance(device, torch.device) and device.type == "meta" and tensor.is_cuda):
        return None
    of_like = {} if like is None else {"dtype": like.dtype}
    names = ("non_blocking", "copy") if like is not None else ("dtype", "non_blocking", "copy")
    return {**more, **of_like, **dict(zip(names, args[1:], strict=False)), "device": device, "copy": True}


def _follow_default_device(shadows: Shadows, indexed: Callable[[Any], Any]) -> None:
    """Make torch.set_default_device number GPUs: its context lies below ours and would see a meta device."""
    context: Any = DeviceContext
    begin, called = context.__init__, context.__torch_function__

    def begin_numbered(self: Any, device: Any) -> None:
        begin(self, indexed(device))

    def call_for_default_device(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_own = self.device.type == "meta" and func in _device_constructors() and not (kwargs or {}).get("device")
        with shadows.wanting_meta() if is_own else nullcontext():
            return called(self, func, types, args, kwargs)

    context.__init__, context.__torch_function__ = begin_numbered, call_for_default_device


def _parse(indexed: Callable[[Any], Any]) -> None:
    """Make `Module.to` add the GPU's number, for which C++ would query the driver."""
    # `Module.to` calls this C++ function by its name, and not the patched `Tensor.to`, for the device.
    parse = torch._C._nn._parse_to

    def parse_numbered(*args: Any, **more: Any) -> Any:
        args, more = _with_indices(args, more, indexed)
        device, *rest = parse(*args, **more)
        like = args[0] if args else more.get("tensor")
        return (like.device if isinstance(like, torch.Tensor) else device, *rest)

    torch._C._nn._parse_to = parse_numbered


def _group() -> None:
    """Make optimizers and `clip_grad_norm_` group tensors by the device that tensors report; C++ reports "meta"."""
    # Callers move scalars, such as a learning rate or a norm, to the devices in the result's keys.
    group = torch._C._group_tensors_by_device_and_dtype

    def group_by_reported_device(lists: Any, *args: Any, **more: Any) -> Any:
        found = group(lists, *args, **more)
        first = {key: next(each for each in members[0] if each is not None) for key, (members, _) in found.items()}
        return {(first[key].device, key[1]): members for key, members in found.items()}

    torch._C._group_tensors_by_device_and_dtype = group_by_reported_device  # type: ignore[assignment]


def _with_indices(
    args: tuple[Any, ...], more: dict[str, Any], indexed: Callable[[Any], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of `to` with the number of the named device."""
    if args and isinstance(args[0], int | str | torch.device):
        args = (indexed(args[0]), *args[1:])
    return args, more if more.get("device") is None else {**more, "device": indexed(more["device"])}


def print_tensors(shadows: Shadows, wait: Callable[[], None]) -> None:
    """Make GPU tensors print with their values, or "..." if unknown, after the host's `wait()`."""
    module: Any = torch._tensor_str
    text, contents = module._str, module._tensor_str

    def print_tensor(self: torch.Tensor, *, tensor_contents: str | None = None) -> str:
        if tensor_contents is not None or wraps(self) or not shadows.is_of_gpu(self):
            return str(text(self, tensor_contents=tensor_contents))
        wait()
        known = shadows.of(self) if self.layout == torch.strided else None
        with shadows.suspend():
            found = f"..., size={tuple(self.shape)}" if known is None else contents(known, len("tensor("))
        return str(text(self, tensor_contents=found))

    module._str = print_tensor
