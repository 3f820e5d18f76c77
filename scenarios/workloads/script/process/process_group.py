"""torch.distributed's process group in a script's rank, simulated or real: maps each call to a verb of `Rank`.

A subclass of torch.distributed.ProcessGroup, backend "twinstep" on all devices, with torch 2.13's names and older ones.
"""

# torch's stubs say other than what its bindings take and call.
# mypy: disable-error-code="override, call-arg, assignment, attr-defined, arg-type"

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import FrameType
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

from scenarios.seam.collectives.several import Several
from scenarios.seam.collectives.sparse import SparseSum
from scenarios.workloads.script.users_lines import users_line

BACKEND, GLOO = "twinstep", "gloo"
# torch 2.13 renamed these, too.
_GATHER_COALESCED, _SCATTER_COALESCED = (
    new if hasattr(dist.ProcessGroup, new) else old
    for new, old in (
        ("all_gather_single_coalesced", "allgather_into_tensor_coalesced"),
        ("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"),
    )
)
# The methods by which torch begins a call, in all its releases.
BEGINNING = (
    *("allreduce", "allreduce_coalesced", "reduce", "broadcast", "barrier", "monitored_barrier"),
    *("allgather", "allgather_coalesced", "_allgather_base", "all_gather_single", "allgather_into_tensor_coalesced"),
    *("all_gather_single_coalesced", "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_single"),
    *("reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced", "alltoall", "alltoall_base"),
    *("all_to_all_single", "gather", "scatter", "send", "recv", "recv_anysource"),
)


@dataclass(slots=True, kw_only=True)  # not frozen: made for every call, and this takes a third of the time
class TorchCall:
    """A call of torch.distributed as a verb of `Rank`.

    Attributes:
        inputs, targets: what the verb reads, and tensors of the shapes that it fills; verbs that write over what they
            read have `inputs` alone.
        options: what else it takes.
        factor: by which the sum multiplies what it reads; None: by nothing.
        outputs: tensors of the script that get the values.
        result: what its future gives.
        native: the method of torch's own process groups that was called, and its arguments.
        is_async: whether the caller goes on before it is over.
        of_reducer: whether it is DistributedDataParallel that calls, for its gradients.
        library: "gloo" where torch would take that for it; "": the scenario's.
    """

    verb: str
    label: str
    inputs: Sequence[Tensor]
    targets: Sequence[Tensor]
    options: dict[str, Any] = field(default_factory=dict)
    outputs: Sequence[Tensor]
    result: Any
    native: tuple[str, tuple[Any, ...]]
    is_async: bool
    of_reducer: bool = False
    library: str = ""
    factor: float | Tensor | None = None


class ScriptGroup(dist.ProcessGroup):
    """A process group. Subclasses carry out calls in `issue`; `called` gets each call before."""

    called: ClassVar[Any] = staticmethod(lambda _: None)

    def __init__(self, options: Any, backends: Mapping[str, str]) -> None:
        """Create a group by torch's options of a custom backend; `backends` are those to imitate, by device type."""
        # torch leaves the list empty for the group of all ranks.
        ranks = list(options.global_ranks_in_group) or range(options.group_size)
        super().__init__(options.group_rank, len(ranks))
        self._ranks, self._backends = tuple(ranks), backends
        self._begun: list[dist.Work] | None = None  # since coalescing started

    def issue(self, asked: TorchCall) -> dist.Work:
        """Issue a call and return its work."""
        raise NotImplementedError

    def size(self) -> int:
        return len(self._ranks)

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """Return the real name to C++, which would rely on properties of an imitated backend."""
        return BACKEND

    def name(self) -> str:
        """Return the imitated backend's name to Python."""
        return next(iter(self._backends.values()))

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device(kind) for kind in self._backends]

    def _get_backend(self, device: torch.device) -> ScriptGroup:
        return self

    @property
    def pg_name(self) -> str:
        return str(dist.distributed_c10d._world.pg_names[self])

    @property
    def group_name(self) -> str:
        return self.pg_name

    def __repr__(self) -> str:
        return f"<group of ranks {list(self._ranks)}>"

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> dist.Work:
        if (own := tensors[0]).is_sparse:
            return SparseSum(own, self.size(), self._gather_flat, over=self._backend_of(own), op=_op(opts))
        of_reducer = _is_of_reducer(tensors, sys._getframe().f_back)
        return self._issue("all_reduce", ("allreduce", (tensors,)), opts, tensors, of_reducer=of_reducer, op=_op(opts))

    def _gather_flat(self, own: Tensor, parts: Sequence[Tensor], output: Tensor) -> dist.Work:
        """Begin to gather flat tensors of various sizes; torch's groups have only an all-to-all for that."""
        sizes, own_sizes = [each.numel() for each in parts], [own.numel()] * self.size()
        native = "alltoall_base", (output, own.repeat(self.size()), sizes, own_sizes)
        return self._issue("all_gather", native, dist.AllToAllOptions(), [own], parts)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> dist.Work:
        return self._issue("all_reduce_coalesced", ("allreduce_coalesced", (tensors,)), opts, tensors, op=_op(opts))

    def reduce(self, tensors: list[Tensor], opts: Any) -> dist.Work:
        outputs, root = tensors if self.rank() == opts.rootRank else [], self._world_rank(opts.rootRank)
        given: dict[str, Any] = {"outputs": outputs, "result": tensors, "op": _op(opts), "dst": root}
        return self._issue("reduce", ("reduce", (tensors,)), opts, tensors, **given)

    def broadcast(self, tensors: list[Tensor], opts: Any) -> dist.Work:
        return self._issue("broadcast", ("broadcast", (tensors,)), opts, tensors, src=self._world_rank(opts.rootRank))

    def barrier(self, opts: Any = None) -> dist.Work:
        return self._issue("barrier", ("barrier", ()), opts, [])

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        if GLOO not in self._backends.values():
            raise RuntimeError(f"monitored_barrier: torch's {self.name()} has none, expected gloo")
        native = "monitored_barrier", () if timeout is None else (timeout, wait_all_ranks)
        self._issue("monitored_barrier", native, None, []).wait()

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> dist.Work:
        self._check_sizes("all_gather", outputs[0], inputs[0])
        return self._issue("all_gather", ("allgather", (outputs, inputs)), opts, inputs, outputs[0], result=outputs)

    def allgather_coalesced(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> dist.Work:
        if self._backend_of(inputs[0]) != GLOO:
            raise RuntimeError(f"all_gather_coalesced: torch's {self._backend_of(inputs[0])} has none, expected gloo")
        targets, native = [*chain.from_iterable(outputs)], ("allgather_coalesced", (outputs, inputs))
        return self._issue("all_gather_coalesced", native, opts, _plain(inputs), _rooms(targets), targets, outputs)

    def _allgather_base(self, output: Tensor, input: Tensor, opts: Any = None) -> dist.Work:
        return self._issue("all_gather_into_tensor", ("_allgather_base", (output, input)), opts, [input], [output])

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None) -> dist.Work:
        given, rooms, native = _plain(inputs[0]), _rooms(outputs), ("reduce_scatter", (outputs, inputs))
        return self._issue("reduce_scatter", native, opts, given, rooms, outputs, op=_op(opts))

    def _reduce_scatter_base(self, output: Tensor, input: Tensor, opts: Any = None) -> dist.Work:
        native = "_reduce_scatter_base", (output, input)
        return self._issue("reduce_scatter_tensor", native, opts, [input], [output], op=_op(opts))

    def allgather_into_tensor_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> dist.Work:
        """Issue one call; functional collectives use this method for a single tensor, too."""
        if len(inputs) == 1:
            return self._allgather_base(outputs[0], inputs[0], opts)
        native = _GATHER_COALESCED, (outputs, inputs)
        return self._issue("all_gather_into_tensor_coalesced", native, opts, inputs, outputs)

    def reduce_scatter_tensor_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> dist.Work:
        """Issue one call; functional collectives use this method for a single tensor, too."""
        if len(inputs) == 1:
            return self._reduce_scatter_base(outputs[0], inputs[0], opts)
        native = _SCATTER_COALESCED, (outputs, inputs)
        return self._issue("reduce_scatter_tensor_coalesced", native, opts, inputs, outputs, op=_op(opts))

    def alltoall_base(
        self, output: Tensor, input: Tensor, output_splits: list[int], input_splits: list[int], opts: Any = None
    ) -> dist.Work:
        splits = {"output_split_sizes": output_splits or None, "input_split_sizes": input_splits or None}
        native = "alltoall_base", (output, input, output_splits, input_splits)
        if not (output_splits or input_splits) and self._backend_of(input) == GLOO:
            output, input = self._even(output), self._even(input)
            if output.numel() != input.numel():
                raise RuntimeError(
                    "all_to_all_single over gloo: expected an output of the input's size, or split sizes"
                )
        return self._issue("all_to_all_single", native, opts, [input], [output], **splits)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> dist.Work:
        return self._issue("all_to_all", ("alltoall", (outputs, inputs)), opts, inputs, outputs)

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> dist.Work:
        native, parts = ("gather", (outputs, inputs)), outputs[0] if self.rank() == opts.rootRank else []
        root, given = self._world_rank(opts.rootRank), _plain(inputs)
        return self._issue("gather", native, opts, given, _rooms(parts), parts, outputs, dst=root)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> dist.Work:
        native, parts = ("scatter", (outputs, inputs)), inputs[0] if self.rank() == opts.rootRank else []
        root, rooms = self._world_rank(opts.rootRank), _rooms(outputs)
        return self._issue("scatter", native, opts, _plain(parts), rooms, outputs, src=root)

    def send(self, tensors: list[Tensor], dst: int, tag: int = 0) -> dist.Work:
        native = "send", (tensors, dst, tag)
        return self._issue("send", native, None, tensors, outputs=[], result=tensors, dst=self._world_rank(dst))

    def recv(self, tensors: list[Tensor], src: int, tag: int = 0) -> dist.Work:
        return self._issue("recv", ("recv", (tensors, src, tag)), None, [], tensors, src=self._world_rank(src))

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> dist.Work:
        raise RuntimeError("recv without src: expected the source, as which message comes first is not simulated")

    def merge_remote_group(self, *_: Any, **__: Any) -> dist.ProcessGroup:
        raise RuntimeError("merge_remote_group: expected new_group, as groups of other worlds are not simulated")

    def split_group(self, *_: Any, **__: Any) -> dist.ProcessGroup:
        raise RuntimeError("ProcessGroup.split_group: expected torch.distributed.split_group or new_group")

    def _start_coalescing(self, device: torch.device) -> None:
        """Collect the works of the following calls, which begin one by one."""
        self._begun = []

    def _end_coalescing(self, device: torch.device) -> dist.Work:
        begun, self._begun = self._begun, None
        return Several(begun or [])

    def _backend_of(self, tensor: Tensor) -> str:
        return self._backends.get(tensor.device.type, self.name())

    def _library(self, inputs: Sequence[Tensor], targets: Sequence[Tensor]) -> str:
        """Return "gloo" if gloo carries these tensors, else "", which stands for `run.library`.

        A call without tensors goes over the GPUs' backend if the group has one.
        """
        given = next(chain(inputs, targets), None)
        found = self._backends.get("cuda", self.name()) if given is None else self._backend_of(given)
        return GLOO if found == GLOO else ""

    def _check_sizes(self, verb: str, listed: Sequence[Tensor], own: Tensor) -> None:
        """Raise RuntimeError for tensors of several sizes where torch's gloo does."""
        sizes = {tuple(each.shape) for each in (own, *listed)}
        if self._backend_of(own) == GLOO and len({each.numel() for each in (own, *listed)}) > 1:
            raise RuntimeError(
                f"{verb} over gloo: expected tensors of one size, got {', '.join(map(str, sorted(sizes)))}"
            )

    def _even(self, tensor: Tensor) -> Tensor:
        """Return the bytes that gloo exchanges without split sizes: an equal part for each member; the rest of
        an odd tensor stays.
        """
        if not (tensor.dim() and tensor.shape[0] % self.size() and tensor.is_contiguous()):
            return tensor
        flat = tensor.detach().view(-1).view(torch.uint8)
        return flat[: flat.numel() - flat.numel() % self.size()]

    # The names of torch 2.13.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    all_to_all_single = alltoall_base

    def _world_rank(self, member: int) -> int:
        """Return a member's rank in the world; raise RuntimeError, as torch does, if there is no such member."""
        if not 0 <= member < (size := len(self._ranks)):
            raise RuntimeError(f"member {member} of a group of {size}: expected 0 to {size - 1}")
        return int(self._ranks[member])

    def _issue(
        self,
        verb: str,
        native: tuple[str, tuple[Any, ...]],
        opts: Any,
        inputs: Sequence[Tensor],
        targets: Sequence[Tensor] = (),
        outputs: Sequence[Tensor] | None = None,
        result: Any = None,
        *,
        of_reducer: bool = False,
        **options: Any,
    ) -> dist.Work:
        """Issue a call; by default the outputs are the targets, or without any the inputs, and the result is all."""
        outputs = (targets or inputs) if outputs is None else outputs
        name, given = native
        factor = None
        if options.get("op") == _SCALED and inputs[0].is_cuda:  # gloo has none
            options["op"], factor = "SUM", opts.reduceOp.__getstate__()[1]
        asked = TorchCall(
            verb=verb,
            label=_label(verb),
            inputs=inputs,
            targets=targets,
            options=options,
            outputs=outputs,
            result=outputs if result is None else result,
            native=(name, given if opts is None else (*given, opts)),
            is_async=bool(getattr(opts, "asyncOp", True)),
            of_reducer=of_reducer,
            library=self._library(inputs, targets),
            factor=factor,
        )
        self.called(asked)
        work = self.issue(asked)
        if self._begun is not None:
            self._begun.append(work)
        return work


_SCALED = "PREMUL_SUM"  # NCCL's sum of what each rank's factor has multiplied
_OPS = {op: str(op.name) for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG)}


def _plain(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return contiguous inputs for a call on lists; torch accepts others, too."""
    return [each.detach().contiguous() for each in tensors]


def _rooms(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return contiguous outputs for a call on lists: the same memory if contiguous, else new tensors."""
    return [each.detach() if each.is_contiguous() else each.new_empty(each.shape) for each in tensors]


def _is_of_reducer(tensors: Sequence[Tensor], caller: FrameType | None) -> bool:
    """Return whether DistributedDataParallel's reducer calls: from C++ in a backward pass or autograd's thread."""
    return tensors[0].is_floating_point() and (caller is None or caller.f_code.co_name == "_engine_run_backward")


def _op(options: Any) -> str:
    """Return the name of a reduction."""
    if options is None:
        return "SUM"
    op = getattr(options.reduceOp, "op", options.reduceOp)
    return _OPS.get(op) or str(op.name)


def _label(verb: str) -> str:
    """Return the verb and the user's line, that of the main thread if one of torch's threads makes the call."""
    line = users_line(sys._getframe().f_back) or users_line(  # a frame kept by a name would hold itself, and tensors
        sys._current_frames().get(threading.main_thread().ident or 0)
    )
    return f"{line} {verb}" if line else verb
