"""Fake tensors in a script on a simulated GPU: what torch only traces takes no memory and launches no kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from scenarios.workloads.script.gpu.shadows import META, Shadows


def finds_shapes_alone(types: Any) -> bool:
    """Return whether an operator that our mode meets has fake tensors among its arguments of these types, or is called
    in a FakeTensorMode, as DTensor, torch.export and compilers do to find shapes.

    torch keeps a FakeTensorMode below the modes of everyone else, so ours meets the operator first.
    """
    is_fake = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
    return is_fake or any(issubclass(kind, FakeTensor) for kind in types)


def tracing_key() -> Any:
    """Return the key of the mode in which torch traces operators that it runs, as `make_fx` does; None without one.

    Such a mode lies below ours, too, but the operators that it runs are the GPU's.
    """
    keys = torch._C._TorchDispatchModeKey
    found = (key for key in (keys.FUNCTIONAL, keys.PROXY) if torch._C._get_dispatch_mode(key) is not None)
    return next(found, None)


def leave_fakes_alone(shadows: Shadows, current: Callable[[], int]) -> None:
    """Have fake tensors of a GPU say "cuda" in Python, and be of the meta device in C++, which has no driver.

    `current` is the number of the current device.
    """
    run = FakeTensorMode.__torch_dispatch__

    def honest(self: FakeTensorMode, *args: Any, **kwargs: Any) -> Any:
        before = shadows.now.is_suspended, shadows.now.is_honest
        shadows.now.is_suspended = shadows.now.is_honest = True
        try:
            return run(self, *args, **kwargs)
        finally:
            shadows.now.is_suspended, shadows.now.is_honest = before

    fake: Any = FakeTensor
    create, own_device = fake.__new__, fake.device.fget

    def created(kind: Any, *args: Any, **kwargs: Any) -> Any:
        given = {name: _without_driver(value) for name, value in kwargs.items()}
        return create(kind, *map(_without_driver, args), **given)

    def device(self: Any) -> torch.device:
        found: torch.device = own_device(self)
        is_seen_as_gpu = found.type == "meta" and not (shadows.now.is_honest or self.fake_mode.in_kernel_invocation)
        return torch.device("cuda", current()) if is_seen_as_gpu else found

    FakeTensorMode.__torch_dispatch__ = honest  # type: ignore[method-assign]
    fake.__new__ = created
    fake.device = property(device)


def _without_driver(value: Any) -> Any:
    is_gpu = isinstance(value, str | torch.device) and torch.device(value).type == "cuda"
    return META if is_gpu else value
