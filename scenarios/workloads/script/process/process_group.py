"""torch.distributed's process group in a script's rank, in either world: hands each call on as a verb of `Rank`.

A subclass of torch.distributed.ProcessGroup, registered as backend "twinstep" for all devices. torch 2.13 renamed some
methods; both names are here.
"""

# torch's stubs say other than what its bindings take and call.
# mypy: disable-error-code="override, call-arg, assignment, attr-defined, arg-type"

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

BACKEND = "twinstep"
# Where code lies that is not the user's.
_INSTALLED = f"{os.sep}site-packages{os.sep}"
_ROOMS = ("scenarios/seam", "scenarios/workloads", "scenarios/modules", "real")
_OTHERS = (*(f"{Path(__file__).parents[4] / room}{os.sep}" for room in _ROOMS), sysconfig.get_paths()["stdlib"], "<")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A call of torch.distributed as a verb of `Rank`.

    Attributes:
        inputs, targets: what the verb reads, and tensors of the shapes that it fills; verbs that write over what they
            read have `inputs` alone.
        options: what else it takes.
        outputs: tensors of the script that get the values.
        result: what its future gives.
        native: the method of torch's own process groups that was called, and its arguments.
        is_async: whether the caller goes on before it is over.
        of_reducer: whether it is DistributedDataParallel that calls, for its gradients.
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


class Link(Protocol):
    """A script's way to whoever plays or watches it."""

    def ask(self, kind: str, argument: Any = None) -> Any:
        """Tell of "new_group", "plan", "step", "record", "end" or "error"; of a new group the answer is its name."""
        ...

    def begin(self) -> None:
        """The group of all ranks is about to be made."""
        ...

    def known(self, tensor: Tensor) -> Tensor | None:
        """Its values, if there are any; on a GPU that is not there nobody waits for them."""
        ...

    def join(self, options: Any, backends: Mapping[str, str]) -> dist.ProcessGroup:
        """Make this rank's side of a group; see `ScriptGroup`."""
        ...


class ScriptGroup(dist.ProcessGroup):
    """The ranks of one group. A subclass says what becomes of a call in `issue`."""

    def __init__(self, options: Any, backends: Mapping[str, str]) -> None:
        """`options` are torch's for a backend of one's own; `backends` is what the group passes for, by device type."""
        ranks = list(options.global_ranks_in_group) or range(options.group_size)
        super().__init__(options.group_rank, len(ranks))
        self._ranks, self._backends = tuple(ranks), backends

    def issue(self, asked: Asked) -> dist.Work:
        """Begin a call."""
        raise NotImplementedError

    def size(self) -> int:
        return len(self._ranks)

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """For C++, which would take it at its word."""
        return BACKEND

    def name(self) -> str:
        """For Python."""
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
        of_reducer = _is_of_reducer(tensors, sys._getframe().f_back)
        return self._own("all_reduce", tensors, ("allreduce", (tensors,)), opts, of_reducer=of_reducer, op=_op(opts))

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> dist.Work:
        return self._own("all_reduce_coalesced", tensors, ("allreduce_coalesced", (tensors,)), opts, op=_op(opts))

    def reduce(self, tensors: list[Tensor], opts: Any) -> dist.Work:
        """As an all-reduce of which one rank keeps the result."""
        outputs, native = tensors if self.rank() == opts.rootRank else [], ("reduce", (tensors,))
        return self._issue("all_reduce", tensors, [], outputs, tensors, native, opts, op=_op(opts))

    def broadcast(self, tensors: list[Tensor], opts: Any) -> dist.Work:
        return self._own("broadcast", tensors, ("broadcast", (tensors,)), opts, src=self._ranks[opts.rootRank])

    def barrier(self, opts: Any = None) -> dist.Work:
        return self._own("barrier", [], ("barrier", ()), opts)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        self.barrier().wait()

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> dist.Work:
        flat = inputs[0].detach().reshape(-1)
        target = flat.new_empty(self.size() * flat.numel())
        native = "allgather", (outputs, inputs)
        return self._issue("all_gather_into_tensor", [flat], [target], outputs[0], outputs, native, opts)

    def _allgather_base(self, output: Tensor, input: Tensor, opts: Any = None) -> dist.Work:
        native = "_allgather_base", (output, input)
        return self._issue("all_gather_into_tensor", [input], [output], [output], [output], native, opts)

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None) -> dist.Work:
        flat = torch.cat([each.detach().reshape(-1) for each in inputs[0]])
        native = "reduce_scatter", (outputs, inputs)
        return self._issue("reduce_scatter_tensor", [flat], outputs, outputs, outputs, native, opts, op=_op(opts))

    def _reduce_scatter_base(self, output: Tensor, input: Tensor, opts: Any = None) -> dist.Work:
        native, made = ("_reduce_scatter_base", (output, input)), [output]
        return self._issue("reduce_scatter_tensor", [input], made, made, made, native, opts, op=_op(opts))

    def allgather_into_tensor_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> dist.Work:
        """As functional collectives call it, of one tensor too."""
        return _Together([self._allgather_base(*each, opts) for each in zip(outputs, inputs, strict=True)])

    def reduce_scatter_tensor_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> dist.Work:
        """Likewise."""
        return _Together([self._reduce_scatter_base(*each, opts) for each in zip(outputs, inputs, strict=True)])

    def alltoall_base(
        self, output: Tensor, input: Tensor, output_splits: list[int], input_splits: list[int], opts: Any = None
    ) -> dist.Work:
        splits = {"output_split_sizes": output_splits or None, "input_split_sizes": input_splits or None}
        native, made = ("alltoall_base", (output, input, output_splits, input_splits)), [output]
        return self._issue("all_to_all_single", [input], made, made, made, native, opts, **splits)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> dist.Work:
        return self._issue("all_to_all", inputs, outputs, outputs, outputs, ("alltoall", (outputs, inputs)), opts)

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> dist.Work:
        """As an exchange in which all send to one."""
        flat, is_root = inputs[0].detach().reshape(-1), self.rank() == opts.rootRank
        sends = [flat.numel() if member == opts.rootRank else 0 for member in range(self.size())]
        receives = [flat.numel() if is_root else 0] * self.size()
        target, parts = flat.new_empty(sum(receives)), outputs[0] if is_root else []
        splits = {"output_split_sizes": receives, "input_split_sizes": sends}
        native = "gather", (outputs, inputs)
        return self._issue("all_to_all_single", [flat], [target], parts, outputs, native, opts, **splits)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> dist.Work:
        """As an exchange in which one sends to all."""
        count, is_root = outputs[0].numel(), self.rank() == opts.rootRank
        parts = [each.detach().reshape(-1) for each in inputs[0]] if is_root else [outputs[0].new_empty(0)]
        receives = [count if member == opts.rootRank else 0 for member in range(self.size())]
        sends = [count if is_root else 0] * self.size()
        splits = {"output_split_sizes": receives, "input_split_sizes": sends}
        given, target, native = [torch.cat(parts)], [outputs[0].new_empty(count)], ("scatter", (outputs, inputs))
        return self._issue("all_to_all_single", given, target, outputs, outputs, native, opts, **splits)

    def send(self, tensors: list[Tensor], dst: int, tag: int = 0) -> dist.Work:
        native = "send", (tensors, dst, tag)
        return self._issue("send", tensors, [], [], tensors, native, None, dst=self._ranks[dst])

    def recv(self, tensors: list[Tensor], src: int, tag: int = 0) -> dist.Work:
        native = "recv", (tensors, src, tag)
        return self._issue("recv", [], tensors, tensors, tensors, native, None, src=self._ranks[src])

    # The names of torch 2.13.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    all_to_all_single = alltoall_base

    def _own(
        self,
        verb: str,
        tensors: Sequence[Tensor],
        native: tuple[str, tuple[Any, ...]],
        opts: Any,
        *,
        of_reducer: bool = False,
        **options: Any,
    ) -> dist.Work:
        """A verb that writes over what it reads."""
        return self._issue(verb, tensors, [], tensors, tensors, native, opts, of_reducer=of_reducer, **options)

    def _issue(
        self,
        verb: str,
        inputs: Sequence[Tensor],
        targets: Sequence[Tensor],
        outputs: Sequence[Tensor],
        result: Any,
        native: tuple[str, tuple[Any, ...]],
        opts: Any,
        *,
        of_reducer: bool = False,
        **options: Any,
    ) -> dist.Work:
        name, given = native
        asked = Asked(
            verb=verb,
            label=_label(verb),
            inputs=inputs,
            targets=targets,
            options=options,
            outputs=outputs,
            result=result,
            native=(name, given if opts is None else (*given, opts)),
            is_async=bool(getattr(opts, "asyncOp", True)),
            of_reducer=of_reducer,
        )
        return self.issue(asked)


class _Together(dist.Work):
    """Several calls as one."""

    def __init__(self, works: Sequence[dist.Work]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: Any = None) -> bool:
        for work in self._works:
            work.wait()
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)

    def result(self) -> Any:
        return [work.result() for work in self._works]


def install(link: Link) -> None:
    """Have torch.distributed make groups of `link`, which go by the names of the backends that a script asks for."""
    world, named = dist.distributed_c10d._world, [_UNNAMED]

    def create(options: Any, _: Any) -> dist.ProcessGroup:
        return link.join(options, _backends(named[0]))

    dist.Backend.register_backend(BACKEND, create, extended_api=True, devices=["cpu", "cuda", "meta"])
    begin, new_group = dist.init_process_group, dist.new_group

    def made(group: Any) -> Any:
        if group in world.pg_map:
            world.pg_map[group] = named[0], world.pg_map[group][1]
            world.pg_backend_config[group] = str(dist.BackendConfig(dist.Backend(named[0])))
        return group

    def init_process_group(backend: str | None = None, *given: Any, **more: Any) -> None:
        for key, there in (("world_size", os.environ["WORLD_SIZE"]), ("rank", os.environ["RANK"])):
            if more.get(key, -1) not in (-1, int(there)):
                raise ValueError(f"init_process_group: {key} = {more[key]}: expected {there}, as the environment says")
        named[0] = str(backend or _UNNAMED).lower()
        link.begin()
        begin(BACKEND, *given, **{key: value for key, value in more.items() if key not in _OF_BACKEND})
        made(dist.group.WORLD)

    def new_group_of(
        ranks: Sequence[int] | None = None, timeout: Any = None, backend: str | None = None, *_: Any, **more: Any
    ) -> Any:
        members = list(range(dist.get_world_size())) if ranks is None else [int(rank) for rank in ranks]
        named[0] = str(backend or dist.get_backend()).lower()
        link.ask("new_group", members)
        return made(
            new_group(
                members, timeout, BACKEND, **{key: value for key, value in more.items() if key not in _OF_BACKEND}
            )
        )

    for module in [each for name, each in sys.modules.items() if name.startswith("torch.distributed")]:
        if getattr(module, "init_process_group", None) is begin:
            module.init_process_group = init_process_group
        if getattr(module, "new_group", None) is new_group:
            module.new_group = new_group_of


# What torch calls the backend where a script names none.
_UNNAMED = "undefined"


def _backends(named: str) -> dict[str, str]:
    """By type of device, the backend that torch's would take."""
    return {kind: str(backend) for kind, backend in dist.BackendConfig(dist.Backend(named)).device_backend_map.items()}


# What only the backend that a script names would understand.
_OF_BACKEND = frozenset({"backend", "pg_options", "device_id", "use_local_synchronization"})


def is_users_file(name: str) -> bool:
    """Return whether a file's code is the user's: not Python's, an installed package's or ours."""
    return not name.startswith(_OTHERS) and _INSTALLED not in name


def users_line(frame: FrameType | None) -> str:
    """ "train.py:31": the innermost line of the user's that leads to this frame; "" without."""
    while frame is not None:
        name = frame.f_code.co_filename
        if is_users_file(name):
            return f"{os.path.basename(name)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _is_of_reducer(tensors: Sequence[Tensor], caller: FrameType | None) -> bool:
    """Whether DistributedDataParallel's reducer calls: from C++, in a backward pass, on GPUs in autograd's thread."""
    is_in_backward = caller is None or caller.f_code.co_name == "_engine_run_backward"
    return tensors[0].is_floating_point() and is_in_backward


def _op(options: Any) -> str:
    """The name of a reduction."""
    return "SUM" if options is None else str(getattr(options.reduceOp, "op", options.reduceOp).name)


def _label(verb: str) -> str:
    """The verb, and the line of the user's: that of the main thread where another of torch's makes the call."""
    line = users_line(sys._getframe().f_back) or users_line(
        sys._current_frames().get(threading.main_thread().ident or 0)
    )
    return f"{line} {verb}".lstrip()
