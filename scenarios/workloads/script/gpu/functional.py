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

from scenarios.during import during
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
            with during(shadows.now, is_honest=True):
                return usual(kind, elem)

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
        verb, given, group = name.removesuffix("_").removesuffix("_coalesced"), args[0], _group(args[-1])
        made, work = _begin(verb, group, args, is_in_place=name.endswith("_"))
        for each in made:
            self._attach_work(each, work)
        return made[0] if isinstance(given, Tensor) else made

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


def _begin(verb: str, group: Any, args: tuple[Any, ...], *, is_in_place: bool) -> tuple[list[Tensor], Any]:
    """Issue a collective on one tensor, or a coalesced one on several; return its results and its work."""
    is_one, size = isinstance(args[0], Tensor), group.size()
    tensors = [args[0]] if is_one else list(args[0])
    if verb in ("all_reduce", "broadcast"):
        made = tensors if is_in_place else [each.clone(memory_format=torch.contiguous_format) for each in tensors]
        if verb == "broadcast":
            broadcast = dist.BroadcastOptions()
            broadcast.rootRank = args[1]
            return made, group.broadcast(made, broadcast)
        options = dist.AllreduceOptions() if is_one else dist.AllreduceCoalescedOptions()
        options.reduceOp = _op(args[1])
        return made, (group.allreduce if is_one else group.allreduce_coalesced)(made, options)
    given = [each.contiguous() for each in tensors]
    match verb:
        case "all_gather_into_tensor":
            made = [each.new_empty([each.shape[0] * size, *each.shape[1:]]) for each in given]
            return made, group.allgather_into_tensor_coalesced(made, given)
        case "reduce_scatter_tensor":
            made = [each.new_empty([each.shape[0] // size, *each.shape[1:]]) for each in given]
            scatter = dist.ReduceScatterOptions()
            scatter.reduceOp = _op(args[1])
            return made, group.reduce_scatter_tensor_coalesced(made, given, scatter)
        case "all_to_all_single":
            outputs, inputs, (sent,) = list(args[1]), list(args[2]), given
            made = [sent.new_empty([sum(outputs), *sent.shape[1:]])]
            return made, group.alltoall_base(made[0], sent, outputs, inputs)
    raise AssertionError(f"{verb} is none of them")


def _reshard(tensor: Tensor, gathered: int, cut: int, group: Any) -> Tensor:
    """Split dimension `cut` among the members and gather dimension `gathered`, by an all-to-all with a wait."""
    group = _group(group)
    length = tensor.shape[cut] // group.size()
    sent = [tensor.narrow(cut, member * length, length).contiguous() for member in range(group.size())]
    received = [torch.empty_like(piece) for piece in sent]
    group.alltoall(received, sent).wait()
    return torch.cat(received, gathered)


def _group(given: Any) -> Any:
    """Return the group of a name; from torch 2.13 on, DTensor gives the group itself."""
    is_group = isinstance(given, dist.ProcessGroup)
    return given if is_group else torch._C._distributed_c10d._resolve_process_group(given)


def _op(name: str) -> Any:
    return getattr(dist.ReduceOp, name.upper())
