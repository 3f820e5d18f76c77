"""Functional collectives (torch.ops._c10d_functional and DTensor's own) of a simulated GPU: issued as calls.

torch itself omits functional collectives for meta tensors.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed._functional_collectives import AsyncCollectiveTensor

from scenarios.workloads.script.gpu.known_values import Shadows

_NAMESPACE, _RESHARD = "_c10d_functional", "_dtensor::shard_dim_alltoall"
_SINGLE = ("all_reduce", "broadcast", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single")
_WRAP = "_wrap_tensor_autograd"
_NAMES = {"wait_tensor", _WRAP, *(name + end for name in _SINGLE for end in ("", "_", "_coalesced", "_coalesced_"))}


def is_functional(func: Any) -> bool:
    """Return whether an operator is a functional collective."""
    return bool(func.namespace == _NAMESPACE or func.name() == _RESHARD)


class Functional:
    """An issuer of functional collectives on the process groups that they name; waits where a script does."""

    def __init__(self, shadows: Shadows) -> None:
        self._works: dict[int, Any] = {}
        usual = AsyncCollectiveTensor.__new__

        def make(kind: Any, elem: Tensor) -> Any:
            """Create the tensor with its inner tensor's real device, as C++ requires."""
            before, shadows.now.is_honest = shadows.now.is_honest, True
            try:
                return usual(kind, elem)
            finally:
                shadows.now.is_honest = before

        AsyncCollectiveTensor.__new__ = make  # type: ignore[method-assign,assignment]

    def call(self, func: Any, args: tuple[Any, ...]) -> Any:
        """Issue a functional collective, or wait for one, and return the result.

        Raises:
            RuntimeError: the operator is not simulated.
        """
        name = func.overloadpacket.__name__
        if func.name() == _RESHARD:
            return _reshard(*args)
        if name not in _NAMES:  # torch would silently omit it for meta tensors
            raise RuntimeError(f"torch.ops.{_NAMESPACE}.{name} on a GPU: expected the function of torch.distributed")
        if name == _WRAP:  # its meta kernel loses the wrapper that waits
            return AsyncCollectiveTensor(args[0])
        if name == "wait_tensor":
            return self._wait(args[0])
        if name.removesuffix("_").endswith("_coalesced"):
            return self._together(name.removesuffix("_").removesuffix("_coalesced"), name.endswith("_"), args)
        tensor, group = args[0], torch._C._distributed_c10d._resolve_process_group(args[-1])
        size = group.size()
        match name.removesuffix("_"):
            case "all_reduce":
                made = tensor if name.endswith("_") else tensor.clone(memory_format=torch.contiguous_format)
                options = dist.AllreduceOptions()
                options.reduceOp = _op(args[1])
                work = group.allreduce([made], options)
            case "broadcast":
                made = tensor if name.endswith("_") else tensor.clone(memory_format=torch.contiguous_format)
                broadcast = dist.BroadcastOptions()
                broadcast.rootRank = args[1]
                work = group.broadcast([made], broadcast)
            case "all_gather_into_tensor":
                made = tensor.new_empty([tensor.shape[0] * size, *tensor.shape[1:]])
                work = group._allgather_base(made, tensor.contiguous())
            case "reduce_scatter_tensor":
                made = tensor.new_empty([tensor.shape[0] // size, *tensor.shape[1:]])
                scatter = dist.ReduceScatterOptions()
                scatter.reduceOp = _op(args[1])
                work = group._reduce_scatter_base(made, tensor.contiguous(), scatter)
            case "all_to_all_single":
                outputs, inputs = list(args[1]), list(args[2])
                made = tensor.new_empty([sum(outputs), *tensor.shape[1:]])
                work = group.alltoall_base(made, tensor.contiguous(), outputs, inputs)
            case _:
                raise AssertionError(f"{name} is none of them")
        self._attach_work(made, work)
        return made

    def _together(self, name: str, in_place: bool, args: tuple[Any, ...]) -> list[Tensor]:
        """Issue a coalesced collective on several tensors as one call."""
        tensors, group = args[0], torch._C._distributed_c10d._resolve_process_group(args[-1])
        size, given = group.size(), [tensor.contiguous() for tensor in tensors]
        match name:
            case "all_reduce":
                made = given if in_place else [each.clone() for each in given]
                options = dist.AllreduceCoalescedOptions()
                options.reduceOp = _op(args[1])
                work = group.allreduce_coalesced(made, options)
            case "all_gather_into_tensor":
                made = [each.new_empty([each.shape[0] * size, *each.shape[1:]]) for each in given]
                work = group.allgather_into_tensor_coalesced(made, given)
            case "reduce_scatter_tensor":
                made = [each.new_empty([each.shape[0] // size, *each.shape[1:]]) for each in given]
                scatter = dist.ReduceScatterOptions()
                scatter.reduceOp = _op(args[1])
                work = group.reduce_scatter_tensor_coalesced(made, given, scatter)
            case _:
                raise AssertionError(f"{name} is none of them")
        for each in made:
            self._attach_work(each, work)
        return made

    def _attach_work(self, made: Tensor, work: Any) -> None:
        key = made.untyped_storage()._cdata
        self._works[key] = work
        # A result that is never waited for must not keep its work: the key, an address, may be used again.
        weakref.finalize(made.untyped_storage(), self._works.pop, key, None)

    def _wait(self, tensor: Tensor) -> Tensor:
        work = self._works.pop(tensor.untyped_storage()._cdata, None)
        if work is not None:
            work.wait()
        return tensor


def _reshard(tensor: Tensor, gathered: int, cut: int, group: Any) -> Tensor:
    """Split dimension `cut` among the members and gather dimension `gathered`, by an all-to-all with a wait."""
    if not isinstance(group, dist.ProcessGroup):  # a name; from torch 2.13 on, the group itself
        group = torch._C._distributed_c10d._resolve_process_group(group)
    length = tensor.shape[cut] // group.size()
    sent = [tensor.narrow(cut, member * length, length).contiguous() for member in range(group.size())]
    received = [torch.empty_like(piece) for piece in sent]
    group.alltoall(received, sent).wait()
    return torch.cat(received, gathered)


def _op(name: str) -> Any:
    return getattr(dist.ReduceOp, name.upper())
