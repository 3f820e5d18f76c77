"""W ranks in one process without time: a collective is done when all its members have issued it.

Only what the sparse exchanges use; each collective is checked as in both worlds. Outputs are poisoned until then.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from scenarios.seam import calls
from scenarios.seam.errors import CollectiveError, DeadlockError
from scenarios.seam.rank import Group, Kernel


@dataclass(eq=False)
class Issued:
    """A verb of one rank; awaiting it waits until all members have come."""

    what: str
    result: Any = None
    done: bool = False
    awaited: bool = False

    def __await__(self) -> Generator[None, None, Any]:
        self.awaited = True
        while not self.done:
            yield
        return self.result


@dataclass
class Member:
    call: calls.Call
    output: Tensor
    input: Tensor
    work: Issued


@dataclass
class Lockstep:
    """The world: its shape, where payload lives, and what every rank has issued."""

    hosts: int
    local_world_size: int
    payload: str = "cpu"
    log: dict[int, list[calls.Call]] = field(default_factory=dict)
    kernels: dict[int, list[tuple[str, Kernel]]] = field(default_factory=dict)
    works: list[Issued] = field(default_factory=list)
    waiting: dict[tuple[str, int], dict[int, Member]] = field(default_factory=dict)
    progress: int = 0

    @property
    def world_size(self) -> int:
        return self.hosts * self.local_world_size

    def ranks(self) -> list[LockstepRank]:
        return [LockstepRank(self, rank) for rank in range(self.world_size)]

    def run(self, program: Callable[[LockstepRank], Coroutine[Any, Any, Any]]) -> list[Any]:
        """What the program gives on each rank.

        Raises:
            DeadlockError: nobody can go on.
        """
        coroutines = {rank.rank: program(rank) for rank in self.ranks()}
        results: dict[int, Any] = {}
        try:
            while coroutines:
                before = self.progress
                for rank, coroutine in list(coroutines.items()):
                    try:
                        coroutine.send(None)
                    except StopIteration as end:
                        results[rank] = end.value
                        del coroutines[rank]
                        self.progress += 1
                if self.progress == before:
                    raise DeadlockError(f"ranks {list(coroutines)} wait")
        finally:
            for coroutine in coroutines.values():
                coroutine.close()
        assert not self.waiting
        assert all(work.awaited for work in self.works)
        return [results[rank] for rank in range(self.world_size)]

    def join(self, key: tuple[str, int], index: int, member: Member) -> None:
        members = self.waiting.setdefault(key, {})
        members[index] = member
        self.progress += 1
        if len(members) < member.call.group.size:
            return
        sentence = calls.disagreement({index: one.call for index, one in members.items()})
        if sentence:
            raise CollectiveError(sentence)
        self.play([members[index] for index in sorted(members)])
        del self.waiting[key]

    def play(self, members: list[Member]) -> None:
        if members[0].call.expected_send:  # sizes without values
            for member in members:
                member.work.done = True
            return
        results = MOVES[members[0].call.op](members)
        for member, result in zip(members, results, strict=True):
            if not member.output.is_meta:
                member.output.copy_(result.view(member.output.shape))
            member.work.done = True


class LockstepRank:
    """One rank of it."""

    def __init__(self, world: Lockstep, rank: int) -> None:
        size, local = world.world_size, world.local_world_size
        self.lockstep, self.rank, self.world_size, self.local_world_size = world, rank, size, local
        self.host, self.local_rank = divmod(rank, local)
        self.device, self.control_device = torch.device(world.payload), torch.device("cpu")
        self.world = Group("world", tuple(range(size)))
        self.intra = Group(f"intra{self.host}", tuple(range(self.host * local, (self.host + 1) * local)))
        self.cross = Group(f"cross{self.local_rank}", tuple(range(self.local_rank, size, local)))
        self.calls = world.log.setdefault(rank, [])
        self.kernels = world.kernels.setdefault(rank, [])

    def compute(self, kernel: Kernel, function: Callable[..., Any], *arguments: object, label: str = "") -> Issued:
        assert label
        assert min(kernel.flops, kernel.bytes_read, kernel.bytes_written) >= 0
        self.kernels.append((label, kernel))
        return self.issued(Issued(label, function(*arguments), done=True))

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Sequence[float] | None = None,
        input_split_sizes: Sequence[float] | None = None,
        group: Group | None = None,
        *,
        label: str = "",
    ) -> Issued:
        splits = output_split_sizes, input_split_sizes
        call = calls.all_to_all_single_call(self.rank, output, input, *splits, group or self.world, label)
        return self.collective(call, output, input)

    def reduce_scatter_tensor(
        self, output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Group | None = None, *, label: str = ""
    ) -> Issued:
        group = group or self.world
        call = calls.reduction_call("reduce_scatter_tensor", self.rank, output, input, op, group, label)
        return self.collective(call, output, input)

    def all_gather_into_tensor(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Group | None = None, *, label: str = ""
    ) -> Issued:
        group = group or self.world
        call = calls.reduction_call(
            "all_gather_into_tensor", self.rank, output_tensor, input_tensor, None, group, label
        )
        return self.collective(call, output_tensor, input_tensor)

    def collective(self, call: calls.Call, output: Tensor, input: Tensor) -> Issued:
        assert call.label
        assert output.device.type == input.device.type
        sequence = sum(one.group == call.group for one in self.calls)
        self.calls.append(replace(call, device=""))  # the one thing that payloads with and without values differ in
        work = self.issued(Issued(call.name, output))
        if not output.is_meta:
            output.fill_(-77)
        self.lockstep.join((call.group.name, sequence), call.group.index(self.rank), Member(call, output, input, work))
        return work

    def issued(self, work: Issued) -> Issued:
        self.lockstep.works.append(work)
        self.lockstep.progress += 1
        return work


def _all_to_all(members: list[Member]) -> list[Tensor]:
    size = members[0].call.element_size
    cut = [m.input.reshape(-1).split([sent // size for sent in m.call.send_bytes]) for m in members]
    return [torch.cat([parts[index] for parts in cut]) for index in range(len(members))]


def _reduce_scatter(members: list[Member]) -> list[Tensor]:
    assert members[0].call.reduce == "sum"
    total = torch.stack([m.input.reshape(-1) for m in members]).sum(0)
    return list(total.chunk(len(members)))


def _all_gather(members: list[Member]) -> list[Tensor]:
    return [torch.cat([m.input.reshape(-1) for m in members])] * len(members)


MOVES = {
    "all_to_all_single": _all_to_all,
    "reduce_scatter_tensor": _reduce_scatter,
    "all_gather_into_tensor": _all_gather,
}
