"""The program `collective`: one collective per step and nothing else, for measuring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from scenarios.config.host_classes import simulated_ranks, uniform_host_classes
from scenarios.config.scenario import Exchange, Scenario
from scenarios.seam.backend import Work
from scenarios.seam.errors import ScenarioError
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.seam.trace import MemoryRow
from scenarios.workloads.all_to_all.program import Splits, checksum, checksum_cost, draw_values, splits_of
from scenarios.workloads.collective.config import step_effort
from scenarios.workloads.collective.operations import OPERATIONS

_ROOT = 0


class CollectiveProgram(Program):
    """Each step is one call on the world's group, after a barrier that stands outside of it.

    `collective.size_bytes` is a rank's larger buffer. The first step, which also warms up, ends with a `checksum` of
    the call's output, so that two runs can be held against each other; later ones are the call alone.
    """

    def __init__(self, scenario: Scenario) -> None:
        assert scenario.collective is not None
        self._scenario, self._collective = scenario, scenario.collective
        _check_shares(scenario)
        self.host_classes = uniform_host_classes(scenario)
        self._splits = _splits(scenario)
        self.memory = self._memory()
        self.effort = step_effort(scenario)

    async def __call__(self, rank: Rank) -> None:
        buffers = self._buffers(rank)
        call = _CALLS[self._collective.op]
        for step in range(self._scenario.steps):
            if self._splits is not None:
                buffers.lay_out(*splits_of(self._splits, step, rank))
            await rank.barrier(label="start")
            with rank.step(step):
                await call(rank, buffers)
                if step == 0:
                    output = buffers.output if buffers.received is None else buffers.received
                    rank.record("checksum", await rank.compute(checksum_cost(output), checksum, output))

    def _buffers(self, rank: Rank) -> _Buffers:
        given, received = self._elements(rank.rank)
        dtype = getattr(torch, self._collective.dtype)
        values = draw_values(self._scenario.seed, rank.rank, given, dtype=dtype, device=rank.device)[:given]
        return _Buffers(values, torch.zeros(received, dtype=dtype, device=rank.device) if received else values)

    def _elements(self, rank: int) -> tuple[int, int]:
        """Elements that a rank gives, and that it receives in a buffer of its own."""
        elements = self._collective.size_bytes // getattr(torch, self._collective.dtype).itemsize
        if self._splits is not None and self.host_classes is None:
            return elements, int(self._splits.most_received(self._scenario.steps)[rank])
        parts = {"all": elements, "share": elements // self._scenario.cluster.world_size, "": 0}
        operation = OPERATIONS[self._collective.op]
        return parts[operation.gives], parts[operation.receives]

    def _memory(self) -> tuple[MemoryRow, ...]:
        itemsize = getattr(torch, self._collective.dtype).itemsize
        capacity_bytes = self._scenario.cluster.host.gpu.memory_bytes
        return tuple(
            MemoryRow(
                rank=rank, part=part, size_bytes=elements * itemsize, capacity_bytes=capacity_bytes, rank_count=count
            )
            for rank, count in simulated_ranks(self._scenario, self.host_classes)
            for part, elements in zip(("input", "output"), self._elements(rank), strict=True)
        )


@dataclass(slots=True)
class _Buffers:
    """What a rank gives and where it receives; the same tensor where the call works in place."""

    given: Tensor
    output: Tensor
    sends: Sequence[float] | None = None
    receives: Sequence[float] | None = None
    received: Tensor | None = None

    def lay_out(self, sends: Sequence[float], receives: Sequence[float], received: int) -> None:
        """For an all-to-all of these elements to and from each member; `received` from all ranks."""
        self.sends, self.receives = sends, receives
        if received > self.output.numel():
            self.output = self.output.new_empty(received)
        self.received = self.output[:received]


def _check_shares(scenario: Scenario) -> None:
    collective, ranks = scenario.collective, scenario.cluster.world_size
    assert collective is not None
    share_bytes = ranks * getattr(torch, collective.dtype).itemsize
    if OPERATIONS[collective.op].has_shares and collective.size_bytes % share_bytes:
        raise ScenarioError(
            f"{scenario.path}: collective.size = '{collective.size_bytes} B': expected a multiple of {share_bytes}"
            f" bytes, a {collective.dtype} for each of {ranks} ranks"
        )


def _splits(scenario: Scenario) -> Splits | None:
    collective = scenario.collective
    assert collective is not None
    if not OPERATIONS[collective.op].has_splits:
        return None
    exchange = Exchange(
        size_bytes=collective.size_bytes, splits=collective.splits, skew=collective.skew, dtype=collective.dtype
    )
    return Splits(exchange, scenario.cluster.world_size, scenario.seed)


def _all_to_all(rank: Rank, buffers: _Buffers) -> Work[Tensor]:
    assert buffers.received is not None, "it was laid out"
    return rank.all_to_all_single(buffers.received, buffers.given, buffers.receives, buffers.sends)


_CALLS: dict[str, Callable[[Rank, _Buffers], Work[Tensor]]] = {
    "all_reduce": lambda rank, buffers: rank.all_reduce(buffers.given),
    "reduce_scatter": lambda rank, buffers: rank.reduce_scatter_tensor(buffers.output, buffers.given),
    "all_gather": lambda rank, buffers: rank.all_gather_into_tensor(buffers.output, buffers.given),
    "broadcast": lambda rank, buffers: rank.broadcast(buffers.given, _ROOT),
    "all_to_all": _all_to_all,
}
