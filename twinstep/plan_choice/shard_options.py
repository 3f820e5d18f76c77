"""Options to shard a table, and the load of their shards on their ranks in each phase of a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scenarios.config.scenario import MIN_PARTITION, Scenario, Table
from scenarios.planner.options import options_of, topology_of
from scenarios.planner.placed import PlannedTable
from scenarios.planner.search.enumerator import COLUMN_ALIGNMENT
from scenarios.planner.types import Shard, ShardingOption, known_perf, known_storage
from scenarios.run_length import runs_of
from scenarios.seam.kernel import Kernel
from scenarios.sharding_kind import ShardingKind
from scenarios.workloads.dlrm.ids.distinct import expected_ids
from scenarios.workloads.dlrm.tables.shard_price import shard_fill_kernel, shard_kernels
from sim.engine.prices import Prices
from twinstep.plan_choice.placing import Floats, Shards

COPIED, CUT_COLUMNS = ShardingKind.DATA_PARALLEL, ShardingKind.COLUMN_WISE
WITH_ALL_ROWS = tuple(kind for kind in ShardingKind if not kind.is_copied and not kind.cuts_rows)
CUT_ROWS = (ShardingKind.TABLE_ROW_WISE, ShardingKind.ROW_WISE)  # over a host, and over all ranks

# Phases of a step, which all ranks end together, because an exchange ends with its bottleneck rank: two of computing,
# the averaging of replicas, and for each sharding type the exchange of ids and that of rows and gradients.
LOOK_UP, UPDATE, AVERAGING = 0, 1, 2
_KINDS = tuple(ShardingKind)
PHASES = 3 + 2 * len(_KINDS)

# The least number of columns that a lookup kernel reads, as in the planner: narrower cuts gain nothing.
_NARROWEST = 32

# Identical shards are priced as the first of them if there are more shards than this.
_ONE_BY_ONE = 256


def ids_phase(kind: ShardingKind) -> int:
    """Return the phase in which a sharding type's ids are exchanged; its load is in ids."""
    return 3 + 2 * _KINDS.index(kind)


def rows_phase(kind: ShardingKind) -> int:
    """Return the phase in which a sharding type's rows and gradients are exchanged; its load is in the planner's ms."""
    return 4 + 2 * _KINDS.index(kind)


@dataclass(frozen=True, slots=True, eq=False)
class ShardOption:
    """An option to shard one table, and its shards; a replicated table has one shard for all ranks.

    `is_on_all`: there is a shard on each rank; `by_host`: the shards are on the ranks of one host, in order.
    """

    option: ShardingOption
    shards: Shards

    @property
    def is_on_all(self) -> bool:
        return self.option.sharding_kind.is_on_all_ranks

    @property
    def by_host(self) -> bool:
        return self.option.sharding_kind == CUT_ROWS[0]

    @property
    def compute_ms(self) -> float:
        """The compute time of all shards, in ms."""
        return float(self.shards.loads[:, (LOOK_UP, UPDATE)].sum())


class ShardOptions:
    """A cache of each table's sharding options (whole, cut by columns or by rows), with their costs."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario, self._tables, self._gpu = scenario, scenario.workload.tables, scenario.cluster.host.gpu
        self._prices = Prices(self._gpu)
        self._topology = topology_of(scenario)
        self._options: dict[tuple[int, ShardingKind, int], ShardingOption | None] = {}
        self._ways: dict[tuple[int, ShardingKind, int], ShardOption | None] = {}
        self._kernels_ms: dict[tuple[int, bool, int, int, int], tuple[float, float]] = {}

    def whole(self, table: int, *, beside_cut: bool) -> ShardOption | None:
        """Return the table-wise option.

        `beside_cut`: use the column-wise type, to share one all-to-all with column-cut tables.
        """
        allowed = self._tables[table].sharding
        order = (CUT_COLUMNS, *WITH_ALL_ROWS) if beside_cut else WITH_ALL_ROWS
        kind = next((kind for kind in order if kind in allowed), None)
        return None if kind is None else self._way(table, kind, self._tables[table].dim)

    def cut_columns(self, table: int, most_ms: float) -> ShardOption | None:
        """Return the column-wise option with the fewest shards of at most `most_ms` each, else the narrowest one."""
        found = None
        for width in column_widths(self._tables[table]):
            found = self._way(table, CUT_COLUMNS, width)
            if found is None or found.compute_ms <= most_ms * len(found.shards.loads):
                break
        return found

    def cut_rows(self, table: int, kind: ShardingKind) -> ShardOption | None:
        """Return the row-wise option: over a host, or over all ranks."""
        return self._way(table, kind, self._tables[table].dim)

    def copied_option(self, table: int) -> ShardOption | None:
        """Return the option with a replica on every rank."""
        return self._way(table, COPIED, self._tables[table].dim)

    def as_in(self, table: int, planned: PlannedTable) -> ShardOption | None:
        """Return the option of a plan's table; None where shards may not be placed one by one, or are uneven."""
        kind, (_, first) = ShardingKind(planned.sharding_type), next(iter(runs_of(planned.shards)))
        if not kind.is_copied and len(planned.shards) == 1:
            return self.whole(table, beside_cut=kind == CUT_COLUMNS)
        if kind not in (COPIED, CUT_COLUMNS, *CUT_ROWS):
            return None
        found = self._way(table, kind, first.columns)
        return found if found is not None and len(found.option.shards) == len(planned.shards) else None

    def by_rows(self, table: int) -> Iterator[ShardOption | None]:
        """Yield the row-wise options, over a host and over all ranks."""
        for kind in CUT_ROWS:
            yield self.cut_rows(table, kind)

    def exchanged_ms(self, table: int, kind: ShardingKind, width: int) -> float | None:
        """Return the planner's ms for exchanging a shard's rows, or a replica's gradients, forward and backward."""
        option = self._option(table, kind, width)
        return None if option is None else _exchanged_ms(next(iter(runs_of(option.shards)))[1])

    def option_of(self, table: int, option: ShardingOption) -> ShardOption:
        """Return the shard option of the planner's option."""
        runs = list(runs_of(option.shards))
        if option.sharding_kind.is_copied:
            runs = [(1, runs[0][1])]
        elif len(option.shards) <= _ONE_BY_ONE:
            runs = [(1, shard) for shard in option.shards]
        counts = [count for count, _ in runs]
        loads = np.array([self._loads(table, option.sharding_kind, shard) for _, shard in runs])
        stored = [(known_storage(shard).hbm, known_storage(shard).ddr) for _, shard in runs]
        return ShardOption(
            option, Shards(loads.repeat(counts, axis=0), np.array(stored, np.float64).repeat(counts, axis=0))
        )

    def _loads(self, table: int, kind: ShardingKind, shard: Shard) -> Floats:
        """Return the load of a shard on its rank, [phases]."""
        loads = np.zeros(PHASES)
        loads[[LOOK_UP, UPDATE]] = self._kernels(table, kind, shard)
        loads[rows_phase(kind)] = _exchanged_ms(shard)
        if not kind.is_copied:
            samples = self._scenario.run.batch_size * self._scenario.sharding_ranks
            rows = range(shard.offset[0], shard.offset[0] + shard.size[0])
            loads[ids_phase(kind)] = sum(expected_ids(self._tables[table], rows, samples))
            loads[AVERAGING] = known_storage(shard).hbm * self._averaged_ms_per_byte
        return loads

    @cached_property
    def _averaged_ms_per_byte(self) -> float:
        """The mean ms per byte and step of averaging a shard's replicas, by a ring all-reduce."""
        cluster, replication = self._scenario.cluster, self._scenario.workload.replicas
        if replication is None:
            return 0.0
        replicas = cluster.world_size // replication.sharding_group_size
        is_inside = not replication.inter_host_allreduce and replicas <= cluster.host.gpus
        rate = self._topology.intra_host_bw if is_inside else self._topology.inter_host_bw
        return 2 * (replicas - 1) / replicas / rate / replication.sync_every

    def _way(self, table: int, kind: ShardingKind, width: int) -> ShardOption | None:
        key = table, kind, width
        if key not in self._ways:
            option = self._option(*key)
            self._ways[key] = None if option is None else self.option_of(table, option)
        return self._ways[key]

    def _option(self, table: int, kind: ShardingKind, width: int) -> ShardingOption | None:
        key = table, kind, width
        if key not in self._options:
            types = tuple(each for each in self._tables[table].sharding if each == kind)
            wished = dataclasses.replace(self._tables[table], sharding=types, min_partition=width)
            self._options[key] = options_of(wished, self._scenario, self._topology)[0] if types else None
        return self._options[key]

    def _kernels(self, table: int, kind: ShardingKind, shard: Shard) -> tuple[float, float]:
        first, (count, width) = shard.offset[0], shard.size
        key = table, kind.is_copied, first, count, width
        if key not in self._kernels_ms:
            rows, columns = range(first, first + count), range(width)
            look_up, update = shard_kernels(self._scenario, table, kind, rows, columns)
            fill = shard_fill_kernel(self._scenario, table, kind, rows, columns)
            filled_ms = 0.0 if fill is None else self._ms(fill)
            self._kernels_ms[key] = filled_ms + self._ms(look_up), self._ms(update)
        return self._kernels_ms[key]

    def _ms(self, kernel: Kernel) -> float:
        """Return a kernel's ms without launch, because a pass over all shards is launched once."""
        price = self._prices.cost(kernel)
        host_ms = max(price.host_read, price.host_written) / self._topology.hbm_to_ddr_mem_bw
        return max(1e3 * price.arithmetic_s, 1e3 * price.memory_bytes / self._gpu.memory_bytes_per_s, host_ms)


def _exchanged_ms(shard: Shard) -> float:
    perf = known_perf(shard)
    return perf.fwd_comms + perf.bwd_comms


def column_widths(table: Table) -> Sequence[int]:
    """Return the widths of even cuts by columns, the widest first.

    If the scenario keeps TorchRec's least width, cuts go down to the least width that a lookup kernel reads.
    """
    least = _NARROWEST if table.min_partition == MIN_PARTITION else table.min_partition
    parts = range(2, table.dim // max(least, 1) + 1)
    return [table.dim // count for count in parts if table.dim % (count * COLUMN_ALIGNMENT) == 0]
