"""The planner: tries proposals, places each, and keeps the one whose busiest rank has the least to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from scenarios.planner.enumerator import BATCH_SIZE, EmbeddingEnumerator, Module, Sharder
from scenarios.planner.partitioner import GreedyPerfPartitioner
from scenarios.planner.proposers import GreedyProposer, GridSearchProposer, Proposer, UniformProposer
from scenarios.planner.topology import DeviceHardware, Topology
from scenarios.planner.types import ParameterConstraints, PlannerError, PlannerErrorType, ShardingOption


class Partitioner(Protocol):
    """Writes ranks into a proposal's shards, or raises PlannerError; `devices` is what that leaves on each rank."""

    @property
    def devices(self) -> list[DeviceHardware]: ...

    def partition(
        self, proposal: list[ShardingOption], storage_constraint: Topology, hbm_per_device: int | None = None
    ) -> list[ShardingOption]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The best of `tried` proposals, `fitting` of which had a placement; `perf_ms` is its busiest rank's."""

    proposal: list[ShardingOption]
    devices: list[DeviceHardware]
    perf_ms: float
    tried: int
    fitting: int


class Search:
    """Tries proposals on one topology; `shard_budget` bounds how many shards are placed in all, whatever comes first.

    The first proposal is always tried. No clock is looked at: the same input gives the same plan.
    """

    def __init__(self, topology: Topology, partitioner: Partitioner, shard_budget: int | None = None) -> None:
        self._topology = topology
        self._partitioner = partitioner
        self._left = shard_budget
        self._seen: set[tuple[int, ...]] = set()
        self._best: Found | None = None
        self._ranks: list[list[int | None]] = []
        self._fitting = 0
        self._last: PlannerError | None = None

    def run(self, search_space: list[ShardingOption], proposers: Sequence[Proposer]) -> Found:
        """The proposal with the least perf on its busiest rank, ranks written into it; ties: the first one tried.

        Raises:
            PlannerError: no proposal could be placed (kind "no_plan"); its cause is why the last one could not.
        """
        for proposer in proposers:
            proposer.load(search_space)
            while (proposal := proposer.propose()) is not None and (self._left is None or self._left > 0):
                proposer.feedback(self._try(proposal), proposal, self._best.perf_ms if self._best else None)
        if self._best is None:
            message = f"none of {len(self._seen)} proposals fits: {self._last}"
            raise PlannerError(message, PlannerErrorType.INSUFFICIENT_STORAGE, "no_plan") from self._last
        for option, ranks in zip(self._best.proposal, self._ranks, strict=True):
            for shard, rank in zip(option.shards, ranks, strict=True):
                shard.rank = rank
        return Found(
            proposal=self._best.proposal,
            devices=self._best.devices,
            perf_ms=self._best.perf_ms,
            tried=len(self._seen),
            fitting=self._fitting,
        )

    def _try(self, proposal: list[ShardingOption]) -> bool:
        key = tuple(map(id, proposal))  # options are shared between proposals, and outlive the search
        if key in self._seen:
            return False
        self._seen.add(key)
        if self._left is not None:
            self._left -= sum(option.num_shards for option in proposal)
        try:
            self._partitioner.partition(proposal, self._topology)
        except PlannerError as error:
            self._last = error
            return False
        self._fitting += 1
        devices = self._partitioner.devices
        perf_ms = max(device.perf.total for device in devices)
        if self._best is None or perf_ms < self._best.perf_ms:
            self._best = Found(proposal=proposal, devices=devices, perf_ms=perf_ms, tried=0, fitting=0)
            self._ranks = [[shard.rank for shard in option.shards] for option in proposal]
        return True


class EmbeddingShardingPlanner:
    """TorchRec's planner for a model of modules and sharders; `constraints` by table name.

    The default proposers are the greedy one by slowest shard and by sum, the uniform one, and the grid search.
    """

    def __init__(
        self,
        topology: Topology,
        batch_size: int | None = None,
        enumerator: EmbeddingEnumerator | None = None,
        proposer: Proposer | Sequence[Proposer] | None = None,
        partitioner: Partitioner | None = None,
        constraints: Mapping[str, ParameterConstraints] | None = None,
    ) -> None:
        self._topology = topology
        self._enumerator = enumerator or EmbeddingEnumerator(topology, batch_size or BATCH_SIZE, constraints)
        self._proposers: list[Proposer] = [
            GridSearchProposer(),
            GreedyProposer(),
            GreedyProposer(use_depth=False),
            UniformProposer(),
        ]
        if proposer is not None:
            self._proposers = list(proposer) if isinstance(proposer, Sequence) else [proposer]
        self._partitioner = partitioner or GreedyPerfPartitioner()

    def plan(self, module: Module, sharders: Sequence[Sharder]) -> list[ShardingOption]:
        """One option for every table of the model, with a rank in every shard.

        Raises:
            PlannerError: nothing to choose from for a table ("no_options"), or nothing that fits ("no_plan").
        """
        return self.choose(self._enumerator.enumerate(module, sharders))

    def choose(self, search_space: list[ShardingOption]) -> list[ShardingOption]:
        """The same for options that were enumerated already."""
        return Search(self._topology, self._partitioner).run(search_space, self._proposers).proposal
