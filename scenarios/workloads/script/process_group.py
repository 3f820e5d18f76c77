"""torch.distributed's process group in a script's rank: hands each call to the simulated rank, and waits there.

A subclass of torch.distributed.ProcessGroup, registered as backend "twinstep" for all devices. torch 2.13 renamed some
methods; both names are here.
"""

# torch's stubs say other than what its bindings take and call.
# mypy: disable-error-code="override, call-arg, assignment, attr-defined, arg-type"

from __future__ import annotations

import os
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from itertools import count
from multiprocessing.connection import Connection
from threading import RLock
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Variable

from scenarios.workloads.script.requests import Collective, Packed

BACKEND = "twinstep"
# Where code lies that is not the user's.
_INSTALLED = f"{os.sep}site-packages{os.sep}"
_OTHERS = (os.path.dirname(__file__), sysconfig.get_paths()["stdlib"], "<")


class Link:
    """A rank's way to the simulator. What the process computes between two requests is told with the later one."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock, self._mark_ns = connection, RLock(), time.process_time_ns()
        self.numbers = count(1)
        self.next_group = 0

    def ask(self, kind: str, argument: Any = None, *, make: Callable[[], Any] | None = None) -> Any:
        """Give the answer to a request; `make` makes its argument, in time that nobody is charged for."""
        with self._lock:
            spent_ns = time.process_time_ns() - self._mark_ns
            self._connection.send((spent_ns, kind, argument if make is None else make()))
            answer = self._connection.recv()
            self._mark_ns = time.process_time_ns()
            return answer

    def forget_time(self) -> None:
        """What was computed since the last request is nobody's."""
        self._mark_ns = time.process_time_ns()


class SimulatedWork(dist.Work):
    """A call that is on its way in simulated time."""

    def __init__(self, link: Link, number: int, outputs: Sequence[Tensor], result: Any) -> None:
        super().__init__()
        self._link, self._number, self._outputs, self._result = link, number, outputs, result
        self._future: torch.futures.Future[Any] | None = None
        self._is_done = False

    def wait(self, timeout: Any = None) -> bool:
        """Until it is over, in simulated time; then its outputs are there."""
        if not self._is_done:
            self._is_done = True
            found = self._link.ask("wait", self._number)
            with torch.no_grad():
                parts = [packed.tensor() for packed in found]
                if len(parts) == 1 and self._outputs:  # all members' at once
                    parts = list(parts[0].reshape(-1).split_with_sizes([each.numel() for each in self._outputs]))
                for output, part in zip(self._outputs, parts, strict=False):
                    output.detach().copy_(part.view(output.shape))
            self._link.forget_time()
            if self._future is not None:
                self._future.set_result(self._result)
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self._is_done

    def is_success(self) -> bool:
        return self._is_done

    def result(self) -> Any:
        self.wait()
        return self._result

    def get_future(self) -> torch.futures.Future[Any]:
        """What is done when the work is waited for: in a backward pass at its end, where DDP waits in C++."""
        if self._future is None:
            self._future = torch.futures.Future()
            if self._is_done:
                self._future.set_result(self._result)
            elif torch._C._current_autograd_node() is not None:
                Variable._execution_engine.queue_callback(self.wait)
            else:
                self.wait()
        return self._future


class SimulatedGroup(dist.ProcessGroup):
    """The ranks of one group; `number` is how the simulator knows it."""

    def __init__(self, link: Link, number: int, rank: int, ranks: Sequence[int]) -> None:
        super().__init__(rank, len(ranks))
        self._link, self._number, self._ranks = link, number, tuple(ranks)

    def size(self) -> int:
        return len(self._ranks)

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        return BACKEND

    @property
    def pg_name(self) -> str:
        return str(dist.distributed_c10d._world.pg_names[self])

    @property
    def group_name(self) -> str:
        return self.pg_name

    def __repr__(self) -> str:
        return f"<group of ranks {list(self._ranks)}>"

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> SimulatedWork:
        return self._issue("all_reduce", tensors, [], tensors, tensors, op=_op(opts))

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> SimulatedWork:
        return self._issue("all_reduce_coalesced", tensors, [], tensors, tensors, op=_op(opts))

    def broadcast(self, tensors: list[Tensor], opts: Any) -> SimulatedWork:
        return self._issue("broadcast", tensors, [], tensors, tensors, src=self._ranks[opts.rootRank])

    def barrier(self, opts: Any = None) -> SimulatedWork:
        return self._issue("barrier", [], [], [], [])

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> SimulatedWork:
        shape = Packed((self.size() * inputs[0].numel(),), inputs[0].dtype)
        flat = inputs[0].detach().reshape(-1)
        return self._issue("all_gather_into_tensor", [flat], [shape], outputs[0], outputs)

    def _allgather_base(self, output: Tensor, input: Tensor, opts: Any = None) -> SimulatedWork:
        return self._issue("all_gather_into_tensor", [input], [Packed.shape_of(output)], [output], [output])

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None) -> SimulatedWork:
        flat = torch.cat([each.detach().reshape(-1) for each in inputs[0]])
        shape = Packed((outputs[0].numel(),), outputs[0].dtype)
        return self._issue("reduce_scatter_tensor", [flat], [shape], outputs, outputs, op=_op(opts))

    def _reduce_scatter_base(self, output: Tensor, input: Tensor, opts: Any = None) -> SimulatedWork:
        shapes = [Packed.shape_of(output)]
        return self._issue("reduce_scatter_tensor", [input], shapes, [output], [output], op=_op(opts))

    def alltoall_base(
        self, output: Tensor, input: Tensor, output_splits: list[int], input_splits: list[int], opts: Any = None
    ) -> SimulatedWork:
        splits = {"output_split_sizes": output_splits or None, "input_split_sizes": input_splits or None}
        shapes = [Packed.shape_of(output)]
        return self._issue("all_to_all_single", [input], shapes, [output], [output], **splits)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> SimulatedWork:
        shapes = [Packed.shape_of(each) for each in outputs]
        return self._issue("all_to_all", inputs, shapes, outputs, outputs)

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> SimulatedWork:
        """As an exchange in which all send to one."""
        flat, is_root = inputs[0].detach().reshape(-1), self.rank() == opts.rootRank
        sends = [flat.numel() if member == opts.rootRank else 0 for member in range(self.size())]
        receives = [flat.numel() if is_root else 0] * self.size()
        shape = Packed((sum(receives),), flat.dtype)
        parts = outputs[0] if is_root else []
        splits = {"output_split_sizes": receives, "input_split_sizes": sends}
        return self._issue("all_to_all_single", [flat], [shape], parts, outputs, **splits)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> SimulatedWork:
        """As an exchange in which one sends to all."""
        count_, is_root = outputs[0].numel(), self.rank() == opts.rootRank
        parts = [each.detach().reshape(-1) for each in inputs[0]] if is_root else [outputs[0].new_empty(0)]
        receives = [count_ if member == opts.rootRank else 0 for member in range(self.size())]
        sends = [count_ if is_root else 0] * self.size()
        splits = {"output_split_sizes": receives, "input_split_sizes": sends}
        shape = Packed((count_,), outputs[0].dtype)
        return self._issue("all_to_all_single", [torch.cat(parts)], [shape], outputs, outputs, **splits)

    def send(self, tensors: list[Tensor], dst: int, tag: int = 0) -> SimulatedWork:
        return self._issue("send", tensors, [], [], tensors, dst=self._ranks[dst])

    def recv(self, tensors: list[Tensor], src: int, tag: int = 0) -> SimulatedWork:
        return self._issue("recv", [], [Packed.shape_of(tensors[0])], tensors, tensors, src=self._ranks[src])

    # The names of torch 2.13.
    all_gather_single = _allgather_base
    reduce_scatter_single = _reduce_scatter_base
    all_to_all_single = alltoall_base

    def _issue(
        self,
        verb: str,
        inputs: Sequence[Tensor],
        shapes: Sequence[Packed],
        outputs: Sequence[Tensor],
        result: Any,
        **options: Any,
    ) -> SimulatedWork:
        number = next(self._link.numbers)

        def make() -> Collective:
            return Collective(
                number=number,
                verb=verb,
                group=self._number,
                label=_label(verb),
                inputs=[Packed.of(each) for each in inputs],
                outputs=list(shapes),
                options=options,
            )

        self._link.ask("issue", make=make)
        return SimulatedWork(self._link, number, outputs, result)


def install(link: Link) -> None:
    """Have torch.distributed make such groups, whichever backend a script names."""

    def create(options: Any, _: Any) -> SimulatedGroup:
        ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
        return SimulatedGroup(link, link.next_group, options.group_rank, ranks)

    dist.Backend.register_backend(BACKEND, create, extended_api=True, devices=["cpu", "cuda", "meta"])
    begin, new_group = dist.init_process_group, dist.new_group

    def init_process_group(*_: Any, **__: Any) -> None:
        rank, size = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
        begin(BACKEND, rank=rank, world_size=size, store=dist.HashStore())

    def new_group_of(ranks: Sequence[int] | None = None, *_: Any, **more: Any) -> Any:
        members = list(range(dist.get_world_size())) if ranks is None else [int(rank) for rank in ranks]
        link.next_group = link.ask("new_group", members)
        kept = {key: more[key] for key in ("group_desc", "sort_ranks") if key in more}
        return new_group(members, **kept)

    for module in [each for name, each in sys.modules.items() if name.startswith("torch.distributed")]:
        if getattr(module, "init_process_group", None) is begin:
            module.init_process_group = init_process_group
        if getattr(module, "new_group", None) is new_group:
            module.new_group = new_group_of


def _op(options: Any) -> str:
    """The name of a reduction."""
    return "SUM" if options is None else str(getattr(options.reduceOp, "op", options.reduceOp).name)


def _label(verb: str) -> str:
    """The verb, and the innermost line of the user's that leads to the call."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_OTHERS) and _INSTALLED not in name:
            return f"{os.path.basename(name)}:{frame.f_lineno} {verb}"
        frame = frame.f_back
    return verb
