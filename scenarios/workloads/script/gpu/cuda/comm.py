"""torch.cuda.comm for a single GPU, as nn.DataParallel uses it with one; calls for several GPUs are refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.cuda import comm


def of_one_gpu() -> None:
    """Make the functions of torch.cuda.comm work for one GPU; for several GPUs they stay as they are."""
    for name, (of_gpus, single) in _SINGLE.items():
        either = _either(getattr(comm, name), of_gpus, single)
        setattr(comm, name, either)
        setattr(torch.nn.parallel.comm, name, either)
    core: Any = torch._C
    core._broadcast_coalesced = lambda tensors, devices, _: comm.broadcast_coalesced(tensors, devices)


def _either(refused: Callable[..., Any], of_gpus: str, single: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `single` if there is one GPU, else `refused`, whose signature it has.

    `of_gpus` names the argument with one element per GPU; if it is None, `out` takes its place.
    """
    signature = inspect.signature(refused)

    def either(*args: Any, **more: Any) -> Any:
        # Bound to torch's own signature, so that wrong arguments fail with torch's own sentence.
        bound = signature.bind(*args, **more)
        bound.apply_defaults()
        given = bound.arguments
        places = given[of_gpus] if given[of_gpus] is not None else given.get("out")
        return single(given) if places is not None and len(places) == 1 else refused(*args, **more)

    return either


def _hand_out(given: dict[str, Any]) -> Any:
    """Return the tensor on its one GPU, in `out` if that is given."""
    if given["out"] is None:
        return (given["tensor"].to(given["devices"][0]),)
    given["out"][0].copy_(given["tensor"])
    return tuple(given["out"])


def _gather(given: dict[str, Any]) -> Tensor:
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


# Per function: the argument with one element per GPU, and the function for a single GPU.
_SINGLE: dict[str, tuple[str, Callable[..., Any]]] = {
    "broadcast": ("devices", _hand_out),
    "broadcast_coalesced": ("devices", lambda given: [list(_each_at(given["tensors"], given["devices"][0]))]),
    "scatter": ("devices", _hand_out),
    "gather": ("tensors", _gather),
    "reduce_add": ("inputs", lambda given: _at(given["inputs"][0], given["destination"])),
    "reduce_add_coalesced": ("inputs", lambda given: _each_at(given["inputs"][0], given["destination"])),
}
