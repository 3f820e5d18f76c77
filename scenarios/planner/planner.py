"""The planner: tries proposals, places each, and keeps the one with the least load on its busiest rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from scenarios.planner.partition.partitioners import GreedyPerfPartitioner
from scenarios.planner.search.enumerator import BATCH_SIZE, EmbeddingEnumerator, PlannedModule, Sharder
from scenarios.planner.search.proposers import GreedyProposer, GridSearchProposer, Proposer, UniformProposer
from scenarios.planner.topology import DeviceHardware, Topology
from scenarios.planner.types import (
    ParameterConstraints,
    PlannerError,
    PlannerErrorType,
    Shard,
    ShardingOption,
    Storage,
    write_ranks_in_order,
)
from scenarios.run_length import run_count, runs_of
from scenarios.sharding_kind import PartitionByType


class Partitioner(Protocol):
    """The interface of partitioners: `partition` writes ranks or raises PlannerError; `devices` is their state then."""

    @property
    def devices(self) -> Sequence[DeviceHardware]: ...

    def partition(self, proposal: list[ShardingOption], storage_constraint: Topology) -> list[ShardingOption]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The best of `tried` proposals, `fitting` of which fitted; `perf_ms` is its busiest rank's load, or its rating."""

    proposal: list[ShardingOption]
    devices: Sequence[DeviceHardware]
    perf_ms: float
    tried: int
    fitting: int


class Search:
    """A search over proposals on one topology; results are deterministic, because no clock is read.

    `shard_budget` limits the number of shards placed in all; identical shards on identical ranks count once. The first
    proposal is always tried. `rate` rates a placed proposal, by default by the perf of its busiest rank.
    """

    def __init__(
        self,
        topology: Topology,
        partitioner: Partitioner,
        shard_budget: int | None = None,
        rate: Callable[[list[ShardingOption]], float] | None = None,
    ) -> None:
        self._topology = topology
        self._partitioner = partitioner
        self._left = shard_budget
        self._rate = rate
        self._seen: set[tuple[int, ...]] = set()
        self._best: Found | None = None
        self._ranks: list[list[int | None] | None] = []
        self._fitting = 0
        self._last: PlannerError | None = None
        self._least: Storage | None = None

    def run(self, search_space: list[ShardingOption], proposers: Sequence[Proposer]) -> Found:
        """Return the proposal with the least perf on its busiest rank, with ranks; of equals, the first one tried.

        Raises:
            PlannerError: no proposal could be placed (kind "no_plan"); its cause is the error of the last one.
        """
        for proposer in proposers:
            proposer.load(search_space)
            while (proposal := proposer.propose()) is not None and (self._left is None or self._left > 0):
                proposer.feedback(self._try(proposal), proposal, self._best.perf_ms if self._best else None)
        if self._best is None:
            message = f"none of {len(self._seen)} proposals fits: {self._last}"
            raise PlannerError(message, self._why(), "no_plan") from self._last
        for option, ranks in zip(self._best.proposal, self._ranks, strict=True):
            _restore(option.shards, ranks)
        return Found(
            proposal=self._best.proposal,
            devices=self._best.devices,
            perf_ms=self._best.perf_ms,
            tried=len(self._seen),
            fitting=self._fitting,
        )

    def _why(self) -> PlannerErrorType:
        """Return whether even the smallest proposal exceeds the memory of all ranks, as an error type."""
        caps = [(count, device.storage) for count, device in runs_of(self._topology.devices)]
        whole = Storage(*(sum(count * getattr(cap, tier) for count, cap in caps) for tier in ("hbm", "ddr", "ssd")))
        fits = self._least is not None and self._least.fits_in(whole)
        return PlannerErrorType.STRICT_CONSTRAINTS if fits else PlannerErrorType.INSUFFICIENT_STORAGE

    def _try(self, proposal: list[ShardingOption]) -> bool:
        key = tuple(map(id, proposal))  # options are shared between proposals, and outlive the search
        if key in self._seen:
            return False
        self._seen.add(key)
        need = Storage.sum(option.total_storage for option in proposal)
        self._least = need if self._least is None else min(need, self._least)
        if self._left is not None:
            self._left -= _placings(proposal)
        try:
            self._partitioner.partition(proposal, self._topology)
        except PlannerError as error:
            self._last = error
            return False
        self._fitting += 1
        devices = self._partitioner.devices
        perf_ms = self._rate(proposal) if self._rate else max(device.perf.total for _, device in runs_of(devices))
        if self._best is None or perf_ms < self._best.perf_ms:
            self._best = Found(proposal=proposal, devices=devices, perf_ms=perf_ms, tried=0, fitting=0)
            self._ranks = [_ranks(option.shards) for option in proposal]
        return True


def _placings(proposal: Sequence[ShardingOption]) -> int:
    """Return how often a shard is charged to a rank; shards on all ranks count once per stretch of identical ranks."""
    on_all = [option.shards for option in proposal if option.partition_by == PartitionByType.UNIFORM]
    alone = sum(option.num_shards for option in proposal) - sum(map(len, on_all))
    stretches = 1 + sum(run_count(shards) - 1 for shards in on_all)
    return alone + len(on_all) * min(stretches, max(map(len, on_all), default=0))


def _ranks(shards: Sequence[Shard]) -> list[int | None] | None:
    """Return the rank of each shard; None if shards are runs, which are always placed on all ranks in order."""
    return None if run_count(shards) < len(shards) else [shard.rank for shard in shards]


def _restore(shards: Sequence[Shard], ranks: list[int | None] | None) -> None:
    if ranks is None:
        write_ranks_in_order(shards)
    else:
        for shard, rank in zip(shards, ranks, strict=True):
            shard.rank = rank


class StorageReservation(Protocol):
    """A reservation of memory besides embeddings; returns the remaining topology."""

    def reserve(
        self,
        topology: Topology,
        batch_size: int,
        module: PlannedModule,
        sharders: Sequence[Sharder],
        constraints: Mapping[str, ParameterConstraints] | None = None,
    ) -> Topology: ...


class PerfModel(Protocol):
    """A rating of placed proposals; less is better."""

    def rate(self, plan: list[ShardingOption]) -> float: ...


class EmbeddingShardingPlanner:
    """TorchRec's planner for a model of modules and sharders; `constraints` by table name.

    The default proposers are grid search, greedy by slowest shard and by sum, and uniform; a proposal's rating is the
    perf of its busiest rank in ms. Each of `callbacks` maps the chosen plan to the one to use. Nothing is reserved
    without `storage_reservation`; `debug` has no effect.

    Raises:
        ValueError: `stats`, `timeout_seconds` or `plan_loader` is given.
    """

    def __init__(
        self,
        topology: Topology,
        batch_size: int | None = None,
        enumerator: EmbeddingEnumerator | None = None,
        storage_reservation: StorageReservation | None = None,
        proposer: Proposer | Sequence[Proposer] | None = None,
        partitioner: Partitioner | None = None,
        performance_model: PerfModel | None = None,
        stats: object = None,
        constraints: Mapping[str, ParameterConstraints] | None = None,
        debug: bool = True,
        callbacks: Sequence[Callable[[list[ShardingOption]], list[ShardingOption]]] = (),
        timeout_seconds: int | None = None,
        plan_loader: object = None,
    ) -> None:
        for name, given, instead in (
            ("stats", stats, "print format_proposal(plan, topology)"),
            ("timeout_seconds", timeout_seconds, "give Search a shard_budget, which finds the same plan each time"),
            ("plan_loader", plan_loader, "call the partitioner on a proposal that you have"),
        ):
            if given is not None:
                raise ValueError(f"{name} = {given!r} is not supported: {instead}")
        self._topology = topology
        self._batch_size = batch_size or BATCH_SIZE
        self._constraints = constraints
        self._enumerator = enumerator or EmbeddingEnumerator(topology, self._batch_size, constraints)
        self._storage_reservation = storage_reservation
        self._proposers = _as_list(proposer) or [
            GridSearchProposer(),
            GreedyProposer(),
            GreedyProposer(use_depth=False),
            UniformProposer(),
        ]
        self._partitioner = partitioner or GreedyPerfPartitioner()
        self._performance_model = performance_model
        self._callbacks = callbacks or ()

    def plan(self, module: PlannedModule, sharders: Sequence[Sharder]) -> list[ShardingOption]:
        """Return one option for every table of the model, with a rank in every shard.

        Raises:
            PlannerError: a table has no option ("no_options"), or no proposal fits ("no_plan").
        """
        topology = self._topology
        if self._storage_reservation is not None:
            topology = self._storage_reservation.reserve(
                topology, self._batch_size, module, sharders, self._constraints
            )
        return self.choose(self._enumerator.enumerate(module, sharders), topology)

    def choose(self, search_space: list[ShardingOption], topology: Topology | None = None) -> list[ShardingOption]:
        """Choose among enumerated options, on `topology` or else the planner's own, and return one for every table."""
        rate = self._performance_model.rate if self._performance_model else None
        plan = (
            Search(topology or self._topology, self._partitioner, rate=rate).run(search_space, self._proposers).proposal
        )
        for callback in self._callbacks:
            plan = callback(plan)
        return plan


def _as_list(proposer: Proposer | Sequence[Proposer] | None) -> list[Proposer]:
    if proposer is None:
        return []
    return list(proposer) if isinstance(proposer, Sequence) else [proposer]
