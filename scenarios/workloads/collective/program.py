"""The programs `collective` and `all_to_all`: one collective per step and nothing else, for measuring."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from scenarios.config.host_classes import simulated_ranks, uniform_host_classes
from scenarios.config.scenario import CollectiveCalls, Exchange, Scenario, TimedCollective
from scenarios.seam.backend import Work
from scenarios.seam.errors import ScenarioError
from scenarios.seam.memory import MemoryPart
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.seam.roles import OTHER
from scenarios.seam.trace import MemoryRow
from scenarios.seam.traits import TRAITS
from scenarios.workloads.collective.config import step_effort
from scenarios.workloads.collective.splits import (
    SLACK,
    Splits,
    checksum,
    checksum_cost,
    draw_values,
    splits_of,
    start_of,
)

_ROOT = 0


class CollectiveProgram(Program):
    """A program whose steps are one call on the world's group, each after a barrier outside the step.

    A rank's larger buffer has `size_bytes`. The first step, which also warms up, ends with a `checksum` of the call's
    output, to compare two runs; later steps are the call alone. An exchange sends different values in each step, which
    ends with a checksum: two runs agree only if every rank received the same elements in the same order.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario, self._call = scenario, CollectiveCalls.of(scenario.workload)
        self._is_exchange = isinstance(self._call, Exchange)
        _check_shares(scenario, self._call)
        self.host_classes = uniform_host_classes(scenario)
        has_splits = TRAITS[self._call.op].has_splits
        self._splits = Splits(self._call, scenario.cluster.world_size, scenario.run.seed) if has_splits else None
        self.memory = self._memory()
        self.effort = step_effort(scenario)

    async def __call__(self, rank: Rank) -> None:
        call, (elements, separate) = CALLS[self._call.op], self._elements(rank.rank)
        dtype = getattr(torch, self._call.dtype)
        values = draw_values(self._scenario.run.seed, rank.rank, elements, dtype=dtype, device=rank.device)
        given = values[:elements]
        output = torch.zeros(separate, dtype=dtype, device=rank.device) if separate else given  # else in place
        received, splits = output, dict[str, Sequence[float]]()
        call_label, label = ("exchange", "checksum") if self._is_exchange else ("", "")
        for step in range(self._scenario.run.steps):
            if self._splits is not None:
                sends, receives, count = splits_of(self._splits, step, rank)
                splits = {"output_split_sizes": receives, "input_split_sizes": sends}
                start = start_of(step) if self._is_exchange else 0
                given, received = values[start : start + elements], output[:count]
            await rank.barrier(label="start")
            with rank.step(step):
                await call(rank, received, given, label=call_label, **splits)
                if step == 0 or self._is_exchange:
                    total = await rank.compute(checksum_cost(received), checksum, received, label=label, role=OTHER)
                    rank.record("checksum", total)

    def _elements(self, rank: int) -> tuple[int, int]:
        """Return the number of elements that a rank gives, and the number that it receives in a separate buffer."""
        elements = self._call.size_bytes // getattr(torch, self._call.dtype).itemsize
        if self._splits is not None and self.host_classes is None:
            return elements, int(self._splits.most_received(self._scenario.run.steps)[rank])
        parts = {"all": elements, "share": elements // self._scenario.cluster.world_size, "": 0}
        operation = TRAITS[self._call.op]
        return parts[operation.gives], parts[operation.receives]

    def _memory(self) -> tuple[MemoryRow, ...]:
        itemsize = getattr(torch, self._call.dtype).itemsize
        capacity_bytes = self._scenario.cluster.host.gpu.memory_bytes
        names, more = (("send buffer", "receive buffer"), SLACK) if self._is_exchange else (("input", "output"), 0)
        return tuple(
            MemoryPart(part, elements * itemsize).row(rank, capacity_bytes, count)
            for rank, count in simulated_ranks(self._scenario, self.host_classes)
            for given, received in (self._elements(rank),)
            for part, elements in zip(names, (given + more, received), strict=True)
        )


def _check_shares(scenario: Scenario, call: Exchange | TimedCollective) -> None:
    ranks = scenario.cluster.world_size
    share_bytes = ranks * getattr(torch, call.dtype).itemsize
    if TRAITS[call.op].has_shares and call.size_bytes % share_bytes:
        raise ScenarioError(
            f"{scenario.path}: collective.size = '{call.size_bytes} B': expected a multiple of {share_bytes}"
            f" bytes, a {call.dtype} for each of {ranks} ranks"
        )


# Issues an operation with its output and input, and a label and splits by the verbs' names, on the world's group.
CALLS: dict[str, Callable[..., Work[Tensor]]] = {
    "all_reduce": lambda rank, _, input, **given: rank.all_reduce(input, **given),
    "reduce_scatter": lambda rank, output, input, **given: rank.reduce_scatter_tensor(output, input, **given),
    "all_gather": lambda rank, output, input, **given: rank.all_gather_into_tensor(output, input, **given),
    "broadcast": lambda rank, _, input, **given: rank.broadcast(input, _ROOT, **given),
    "all_to_all": lambda rank, output, input, **given: rank.all_to_all_single(output, input, **given),
}
