"""Which device a tensor says it is on, and how it gets to another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._device import DeviceContext

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
    context: Any = DeviceContext
    begin = context.__init__

    def begun(self: Any, device: Any) -> None:
        """That of torch.set_default_device lies below ours, which would number the device."""
        begin(self, indexed(device))

    context.__init__ = begun
    tensor.cuda = lambda self, device=None, non_blocking=False, **_: moved(
        self, "cuda" if device is None else device, non_blocking=non_blocking
    )
    tensor.get_device = lambda self: current() if self.is_cuda else -1
    tensor.record_stream = lambda *_, **__: None
    tensor.pin_memory = lambda self, device=None: self
    tensor.is_pinned = lambda self, device=None: False
    _follow_sizes(shadows)
    return indexed


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
