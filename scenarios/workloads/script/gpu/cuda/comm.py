"""torch.cuda.comm where one GPU is all there is, as nn.DataParallel has it with one; several are refused by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.cuda import comm


def of_one_gpu() -> None:
    """Have the functions of torch.cuda.comm give back tensors of one GPU; those of several stay as they are."""
    for name, (of_gpus, single) in _SINGLE.items():
        either = _either(getattr(comm, name), of_gpus, single)
        setattr(comm, name, either)
        setattr(torch.nn.parallel.comm, name, either)
    core: Any = torch._C
    core._broadcast_coalesced = lambda tensors, devices, _: comm.broadcast_coalesced(tensors, devices)


def _either(refused: Callable[..., Any], of_gpus: str, single: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of the signature of a refused one, which calls `single` if `of_gpus`, the argument with an
    element for each GPU (else `out`), has one.
    """
    signature = inspect.signature(refused)

    def either(*args: Any, **more: Any) -> Any:
        bound = signature.bind(*args, **more)
        bound.apply_defaults()
        given = bound.arguments
        places = given[of_gpus] if given[of_gpus] is not None else given.get("out")
        return single(given) if places is not None and len(places) == 1 else refused(*args, **more)

    return either


def _handed_out(given: dict[str, Any]) -> Any:
    """Return a tensor on its one GPU, in `out` where that is given."""
    if given["out"] is None:
        return (given["tensor"].to(given["devices"][0]),)
    given["out"][0].copy_(given["tensor"])
    return tuple(given["out"])


def _gathered(given: dict[str, Any]) -> Tensor:
    [tensor], out = given["tensors"], given["out"]
    if out is not None:
        copied: Tensor = out.copy_(tensor)
        return copied
    return _at(tensor, "cpu" if given["destination"] == -1 else given["destination"])


def _at(tensor: Tensor, destination: Any) -> Tensor:
    """Return a tensor on a device, by default the current GPU."""
    return tensor.to(torch.cuda.current_device() if destination is None else destination)


def _each_at(tensors: Sequence[Tensor], destination: Any) -> tuple[Tensor, ...]:
    return tuple(_at(each, destination) for each in tensors)


# Of each function the argument with an element for each GPU, and what it gives with one.
_SINGLE: dict[str, tuple[str, Callable[..., Any]]] = {
    "broadcast": ("devices", _handed_out),
    "broadcast_coalesced": ("devices", lambda given: [list(_each_at(given["tensors"], given["devices"][0]))]),
    "scatter": ("devices", _handed_out),
    "gather": ("tensors", _gathered),
    "reduce_add": ("inputs", lambda given: _at(given["inputs"][0], given["destination"])),
    "reduce_add_coalesced": ("inputs", lambda given: _each_at(given["inputs"][0], given["destination"])),
}
