"""Fake tensors in a script on a simulated GPU: traced operators take no memory and launch no kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._sharding_prop import ShardingPropagator

from scenarios.during import during
from scenarios.workloads.script.gpu.known_values import META, Shadows


def finds_shapes_alone(types: Any) -> bool:
    """Return whether an operator is traced for shapes only, by fake tensors among `types` or in a FakeTensorMode.

    DTensor, torch.export and compilers do so. torch keeps a FakeTensorMode below all other modes, so ours gets the
    operator first.
    """
    is_fake = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
    return is_fake or any(issubclass(kind, FakeTensor) for kind in types)


def tracing_key() -> Any:
    """Return the key of the mode in which torch traces operators that also run, as `make_fx` does; None without one.

    Such a mode lies below ours, too, but its operators run on the GPU.
    """
    keys = torch._C._TorchDispatchModeKey
    found = (key for key in (keys.FUNCTIONAL, keys.PROXY) if torch._C._get_dispatch_mode(key) is not None)
    return next(found, None)


def leave_fakes_alone(shadows: Shadows, current: Callable[[], int]) -> None:
    """Make fake GPU tensors report "cuda" in Python, and be meta tensors in C++, which has no driver.

    `current` returns the number of the current device.
    """
    run = FakeTensorMode.__torch_dispatch__

    def honest(self: FakeTensorMode, *args: Any, **kwargs: Any) -> Any:
        with during(shadows.now, is_suspended=True, is_honest=True):
            return run(self, *args, **kwargs)

    fake: Any = FakeTensor
    create, own_device = fake.__new__, fake.device.fget

    def create_fake(kind: Any, *args: Any, **kwargs: Any) -> Any:
        given = {name: _without_driver(value) for name, value in kwargs.items()}
        return create(kind, *map(_without_driver, args), **given)

    def device(self: Any) -> torch.device:
        found: torch.device = own_device(self)
        is_seen_as_gpu = found.type == "meta" and not (shadows.now.is_honest or self.fake_mode.in_kernel_invocation)
        return torch.device("cuda", current()) if is_seen_as_gpu else found

    FakeTensorMode.__torch_dispatch__ = honest  # type: ignore[method-assign]
    fake.__new__ = create_fake
    fake.device = property(device)


def find_shapes_of_dtensors(shadows: Shadows) -> None:
    """Make DTensor find most result shapes by meta tensors.

    torch's own way, a new FakeTensorMode each time, takes long and gives the same shapes and strides.
    """
    kind: Any = ShardingPropagator
    usual = kind._propagate_tensor_meta_non_cached

    def find(self: Any, call: Any) -> Any:
        is_own = _is_shaped_alike(call.op) and "device" not in call.kwargs_schema and detect_fake_mode() is None
        if not is_own:
            return usual(self, call)
        alone = during(shadows.now, is_suspended=True, is_honest=True)
        with alone, torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            return _shapes_of(call.op(*map(_empty, call.args_schema), **_empty(call.kwargs_schema)))

    kind._propagate_tensor_meta_non_cached = find


@cache
def _is_shaped_alike(func: Any) -> bool:
    """Return whether an operator has equal result shapes on all devices: a view, or elementwise, also on lists."""
    is_plain = func.is_view or torch.Tag.pointwise in func.tags or func.overloadpacket.__name__.startswith("_foreach_")
    return func.namespace == "aten" and is_plain


def _empty(given: Any) -> Any:
    """Return an operator's arguments with each DTensor's specification replaced by a meta tensor."""
    match given:
        case DTensorSpec(tensor_meta=TensorMeta() as meta):
            return torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype, device=META)
        case dict():
            return {name: _empty(each) for name, each in given.items()}
        case list() | tuple():
            return type(given)(map(_empty, given))
    return given


def _shapes_of(made: Any) -> Any:
    """Return the metadata that DTensor stores of results: for a tensor or each tensor of a list; None for others."""
    match made:
        case Tensor():
            return TensorMeta(made.shape, made.stride(), made.dtype)
        case list() | tuple():
            return type(made)(_shapes_of(each) if isinstance(each, Tensor) else None for each in made)
    return None


def _without_driver(value: Any) -> Any:
    is_gpu = isinstance(value, str | torch.device) and torch.device(value).type == "cuda"
    return META if is_gpu else value
