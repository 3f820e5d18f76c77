"""Which device a tensor says it is on, and how it gets to another."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils._device import DeviceContext, _device_constructors

from scenarios.workloads.script.gpu.shadows import Shadows, is_meta

_BASE: Any = torch._C.TensorBase
_DEVICE = _BASE.device.__get__
_DATA = _BASE.data


def move_tensors(shadows: Shadows, current: Callable[[], int]) -> Callable[[Any], torch.device]:
    """Have tensors of the GPU say so; `current` is the number of the current device.

    What it gives adds that number to a device "cuda" without.
    """

    def device(self: torch.Tensor) -> torch.device:
        if not shadows.now.is_honest and shadows.is_of_gpu(self):
            return torch.device("cuda", current())
        with torch._C.DisableTorchFunction():  # which would ask for this very property
            found: torch.device = _DEVICE(self)
        return found

    tensor: Any = torch.Tensor
    tensor.device = property(device)
    tensor.is_cuda = property(lambda self: self.device.type == "cuda")
    tensor.is_meta = property(lambda self: self.device.type == "meta")
    to = tensor.to

    def indexed(device: Any) -> Any:
        """C++ asks the driver which device is meant where that is not said."""
        if isinstance(device, int):
            return torch.device("cuda", device)
        found = device if isinstance(device, torch.device) else torch.device(device)
        return torch.device("cuda", current()) if found.type == "cuda" and found.index is None else found

    def moved(self: torch.Tensor, *args: Any, **more: Any) -> torch.Tensor:
        if args and isinstance(args[0], int | str | torch.device):
            args = (indexed(args[0]), *args[1:])
        if more.get("device") is not None:
            more["device"] = indexed(more["device"])
        if (on_meta := _of_meta(self, args, more)) is not None:
            return to(self, **on_meta)  # type: ignore[no-any-return]
        if not more.get("copy") and self.is_cuda:  # what is there stays, as C++ would not see
            if args and args[0] == self.device:
                args = args[1:]
            if more.get("device") == self.device:
                del more["device"]
            if not [each for each in (*args, more.get("dtype")) if isinstance(each, torch.dtype | torch.Tensor)] and (
                not any(isinstance(each, str | torch.device) for each in args) and "device" not in more
            ):
                return self
        found: torch.Tensor = to(self, *args, **more)
        return found

    tensor.to = moved
    tensor.data = property(_get_data, _set_data)
    _follow_default_device(shadows, indexed)

    tensor.cuda = lambda self, device=None, non_blocking=False, **_: moved(
        self, "cuda" if device is None else device, non_blocking=non_blocking
    )
    tensor.get_device = lambda self: current() if self.is_cuda else -1
    tensor.record_stream = lambda *_, **__: None
    tensor.pin_memory = lambda self, device=None: self
    tensor.is_pinned = lambda self, device=None: False
    _follow_sizes(shadows)
    _follow_groups(shadows, current)
    return indexed


def _of_meta(tensor: torch.Tensor, args: tuple[Any, ...], more: dict[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of `Tensor.to` by name, where it moves a tensor of the GPU to the meta device, which for C++
    is where the tensor lies; else None.
    """
    like = args[0] if args and isinstance(args[0], torch.Tensor) else None
    device = like.device if like is not None else args[0] if args else more.get("device")
    if not (isinstance(device, torch.device) and device.type == "meta" and tensor.is_cuda):
        return None
    of_like = {} if like is None else {"dtype": like.dtype}
    names = ("non_blocking", "copy") if like is not None else ("dtype", "non_blocking", "copy")
    return {**more, **of_like, **dict(zip(names, args[1:], strict=False)), "device": device, "copy": True}


def _follow_default_device(shadows: Shadows, indexed: Callable[[Any], Any]) -> None:
    """The context of torch.set_default_device lies below ours, which would number the device and see a meta device."""
    context: Any = DeviceContext
    begin, called = context.__init__, context.__torch_function__

    def begun(self: Any, device: Any) -> None:
        begin(self, indexed(device))

    def created(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_own = self.device.type == "meta" and func in _device_constructors() and not (kwargs or {}).get("device")
        with shadows.wanting_meta() if is_own else nullcontext():
            return called(self, func, types, args, kwargs)

    context.__init__, context.__torch_function__ = begun, created


def _follow_groups(shadows: Shadows, current: Callable[[], int]) -> None:
    """Optimizers have C++ group their tensors, and go on with the device that it gives."""
    group = torch._C._group_tensors_by_device_and_dtype

    def grouped(*args: Any, **more: Any) -> dict[Any, Any]:
        return {
            (seen(device, lists[0]), dtype): (lists, of)
            for (device, dtype), (lists, of) in group(*args, **more).items()
        }

    def seen(device: Any, tensors: Any) -> Any:
        is_of_gpu = any(each is not None and shadows.is_of_gpu(each) for each in tensors[:1])
        return torch.device("cuda", current()) if is_of_gpu else device

    torch._C._group_tensors_by_device_and_dtype = grouped


def _get_data(tensor: torch.Tensor) -> torch.Tensor:
    with torch._C.DisableTorchFunction():  # which would ask for this very property
        found: torch.Tensor = _DATA.__get__(tensor)
    return found


def _set_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """As torch; and between the CPU and the GPU, which for C++ are tensors of other kinds."""
    if is_meta(tensor) == is_meta(value):
        with torch._C.DisableTorchFunction():
            _DATA.__set__(tensor, value)
        return
    made: torch.Tensor = value.detach()
    if isinstance(tensor, torch.nn.Parameter):
        made = torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
    torch.utils.swap_tensors(tensor, made)


def _follow_sizes(shadows: Shadows) -> None:
    """Storages may be emptied and filled again, as FSDP does it."""
    storage: Any = torch.UntypedStorage
    resize = storage.resize_

    def resized(self: Any, size_bytes: int) -> Any:
        found = resize(self, size_bytes)
        if shadows.memory.holds(self._cdata):
            shadows.memory.hold(self._cdata, size_bytes)
        return found

    storage.resize_ = resized
