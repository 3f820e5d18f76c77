"""The planner's types, as in TorchRec 1.8: storage, perf, shards, options, errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, repeat
from typing import Any, Protocol

from scenarios.compute_kernel import ComputeKernel
from scenarios.run_length import runs_of
from scenarios.sharding_kind import ShardingKind

RELEASE = "1.8.0"
"""The TorchRec release whose behaviour is matched by default (1.9.2 gives the same results)."""

RELEASES = ("1.8.0", "0.2.0")


class SortBy(StrEnum):
    """The order in which the partitioner places groups: largest first, or slowest first."""

    STORAGE = "storage"
    PERF = "perf"


class PlannerErrorType(StrEnum):
    """The part of planning that failed."""

    INSUFFICIENT_STORAGE = "insufficient_storage"
    STRICT_CONSTRAINTS = "strict_constraints"
    PARTITION = "partition"
    OTHER = "other"


class PlannerError(Exception):
    """No placement, or no plan.

    `kind` is the cause: uniform_shard_count, uniform_no_fit, device_no_fit, cw_kv_too_many_shards, cw_kv_no_fit,
    no_host, no_hosts, grid_not_multiple_of_local, group_length; no_options from the enumerator; no_plan from the
    planner.
    """

    def __init__(
        self, message: str, error_type: PlannerErrorType = PlannerErrorType.OTHER, kind: str | None = None
    ) -> None:
        super().__init__(message)
        self.error_type = error_type
        self.kind = kind


@dataclass(order=True, slots=True, unsafe_hash=True)
class Storage:
    """Bytes in the three tiers of memory; ordered by hbm, then ddr, then ssd."""

    hbm: int
    ddr: int
    ssd: int = 0

    def __add__(self, other: Storage) -> Storage:
        return Storage(self.hbm + other.hbm, self.ddr + other.ddr, self.ssd + other.ssd)

    def __sub__(self, other: Storage) -> Storage:
        return Storage(self.hbm - other.hbm, self.ddr - other.ddr, self.ssd - other.ssd)

    def fits_in(self, other: Storage) -> bool:
        """Return whether every tier is at most the other's; a negative tier of `other` holds nothing, not even 0."""
        return self.hbm <= other.hbm and self.ddr <= other.ddr and self.ssd <= other.ssd

    @staticmethod
    def sum(parts: Iterable[Storage]) -> Storage:
        hbm = ddr = ssd = 0
        for part in parts:
            hbm, ddr, ssd = hbm + part.hbm, ddr + part.ddr, ssd + part.ssd
        return Storage(hbm, ddr, ssd)


@dataclass(slots=True, unsafe_hash=True)
class Perf:
    """Milliseconds per step, by activity; compared by `total`."""

    fwd_compute: float
    fwd_comms: float
    bwd_compute: float
    bwd_comms: float
    input_dist_comms: float = 0.0
    prefetch_compute: float = 0.0

    @property
    def total(self) -> float:
        """The total in ms, without the input exchange."""
        return self.fwd_compute + self.bwd_compute + self.fwd_comms + self.bwd_comms + self.prefetch_compute

    def __add__(self, other: Perf) -> Perf:
        return Perf(
            self.fwd_compute + other.fwd_compute,
            self.fwd_comms + other.fwd_comms,
            self.bwd_compute + other.bwd_compute,
            self.bwd_comms + other.bwd_comms,
            self.input_dist_comms + other.input_dist_comms,
            self.prefetch_compute + other.prefetch_compute,
        )

    def __lt__(self, other: Perf) -> bool:
        return self.total < other.total


@dataclass(slots=True)
class Shard:
    """A rectangle of a table: its size [rows, columns] and its offset; a partitioner writes `rank`.

    `perf` is a Perf, or one number of ms in release 0.2.0.
    """

    size: Sequence[int]
    offset: Sequence[int]
    storage: Storage | None = None
    perf: Perf | float | None = None
    rank: int | None = None

    def __str__(self) -> str:
        return (
            f"Shard size: {tuple(self.size)}, offset: {tuple(self.offset)}, storage: {self.storage},"
            f" perf: {self.perf}, rank: {self.rank}"
        )


class CacheStatistics(Protocol):
    """Statistics of a table's accesses, which price a cache."""

    @property
    def expected_lookups(self) -> int: ...

    def expected_miss_rate(self, clf: float) -> float:
        """Return the share of lookups that miss a cache with `clf` of the rows."""
        ...


@dataclass(frozen=True, slots=True)
class MultiPassPrefetchConfig:
    """A prefetch that is split into passes."""

    num_passes: int = 12
    min_splitable_pass_size: int = 6 * 1024**2


@dataclass(frozen=True, slots=True)
class CacheParams:
    """The cache in front of a table in host memory: `load_factor` is the share of rows that it holds.

    Lookups find their rows in the cache if `prefetch_pipeline`. `algorithm`, `reserved_memory` and `precision` are for
    kernels: accepted, but not priced.
    """

    algorithm: object | None = None
    load_factor: float | None = None
    reserved_memory: float | None = None
    precision: object | None = None
    prefetch_pipeline: bool | None = None
    stats: CacheStatistics | None = None
    multipass_prefetch_config: MultiPassPrefetchConfig | None = None


class TableTensor(Protocol):
    """The planner's view of a table's weight; a torch.Tensor fits, and `TensorShape` needs no torch."""

    @property
    def shape(self) -> Sequence[int]: ...

    def element_size(self) -> int: ...


@dataclass(frozen=True, slots=True)
class TensorShape:
    """A table's weight without values: [rows, dim], bytes of an element, optimizer bytes of a row and an element."""

    shape: tuple[int, int]
    element_bytes: int = 4
    optimizer_row_bytes: int = 0
    optimizer_element_bytes: int = 0

    def element_size(self) -> int:
        return self.element_bytes


@dataclass(frozen=True, slots=True)
class ParameterConstraints:
    """A user's constraints on one table; None leaves the choice to the planner. `min_partition` is in columns.

    The enumerator passes the fields from `enforce_hbm` on to the options, except `device_group` and `use_virtual_table`
    (for mixed devices and tables without a fixed size), which have no effect.
    """

    sharding_types: Sequence[str] | None = None
    compute_kernels: Sequence[str] | None = None
    min_partition: int | None = None
    pooling_factors: Sequence[float] = (1.0,)
    num_poolings: Sequence[float] | None = None
    batch_sizes: Sequence[int] | None = None
    is_weighted: bool = False
    cache_params: CacheParams | None = None
    enforce_hbm: bool | None = None
    stochastic_rounding: bool | None = None
    bounds_check_mode: object | None = None
    feature_names: Sequence[str] | None = None
    output_dtype: object | None = None
    device_group: str | None = None
    key_value_params: object | None = None
    use_virtual_table: bool = False


@dataclass(slots=True, eq=False)
class ShardingOption:
    """One way to shard one table; `module` is (path, module), `input_lengths` are ids per sample by feature.

    Options with the same `dependency` are placed together. `is_pooled` None means pooled.
    """

    name: str
    tensor: Any
    module: tuple[str, object]
    input_lengths: Sequence[float]
    batch_size: int
    sharding_type: str
    partition_by: str
    compute_kernel: str
    shards: Sequence[Shard] = field(default_factory=list)
    cache_params: CacheParams | None = None
    enforce_hbm: bool | None = None
    stochastic_rounding: bool | None = None
    bounds_check_mode: object | None = None
    dependency: str | None = None
    is_pooled: bool | None = None
    feature_names: Sequence[str] | None = None
    output_dtype: object | None = None
    key_value_params: object | None = None
    num_poolings: Sequence[float] | None = None

    @property
    def sharding_kind(self) -> ShardingKind:
        """The properties of the sharding type."""
        return ShardingKind(self.sharding_type)

    @property
    def kernel(self) -> ComputeKernel:
        """The properties of the compute kernel."""
        return ComputeKernel(self.compute_kernel)

    @property
    def path(self) -> str:
        """The module's path in the model."""
        return self.module[0]

    @property
    def fqn(self) -> str:
        """The table's full name."""
        return f"{self.module[0]}.{self.name}"

    @property
    def num_shards(self) -> int:
        return len(self.shards)

    @property
    def num_inputs(self) -> int:
        """The number of features that look ids up in the table."""
        return len(self.input_lengths)

    @property
    def cache_load_factor(self) -> float | None:
        """The share of rows that the cache holds; None if not set."""
        return self.cache_params.load_factor if self.cache_params else None

    def get_shards_assignment(self) -> list[int | None]:
        return [shard.rank for shard in self.shards]

    @property
    def total_storage(self) -> Storage:
        """Bytes of all shards; every shard must have been estimated."""
        hbm = ddr = ssd = 0
        for count, shard in runs_of(self.shards):
            need = known_storage(shard)
            hbm, ddr, ssd = hbm + count * need.hbm, ddr + count * need.ddr, ssd + count * need.ssd
        return Storage(hbm, ddr, ssd)

    @property
    def total_perf(self) -> float:
        """The sum over all shards in ms; every shard must have been estimated."""
        parts = (repeat(perf_ms(shard), count) for count, shard in runs_of(self.shards))
        return sum(chain.from_iterable(parts))  # added one by one, because the last bit decides ties


def known_storage(shard: Shard) -> Storage:
    """Return the shard's storage; ValueError if it was not estimated."""
    if shard.storage is None:
        raise ValueError(f"{shard}: its storage has not been estimated")
    return shard.storage


def known_perf(shard: Shard) -> Perf:
    """Return the shard's perf; ValueError if it was not estimated, or is one number as in release 0.2.0."""
    if shard.perf is None:
        raise ValueError(f"{shard}: its perf has not been estimated")
    if not isinstance(shard.perf, Perf):
        raise ValueError(f"{shard}: its perf is one number, as in release 0.2.0; expected a Perf")
    return shard.perf


def perf_ms(shard: Shard) -> float:
    """Return the shard's perf as one number in ms; ValueError if it was not estimated."""
    return shard.perf if isinstance(shard.perf, int | float) else known_perf(shard).total


def write_ranks_in_order(shards: Sequence[Shard]) -> None:
    """Write rank 0 into the first shard, 1 into the next, and so on."""
    rank = 0
    for count, shard in runs_of(shards):
        shard.rank = rank
        rank += count
