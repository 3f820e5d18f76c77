"""Formats a plan for people, 96 columns wide: places of shards, load of each rank, and causes of imbalance."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, repeat
from operator import attrgetter

from scenarios.config.units import format_bytes
from scenarios.planner.placed import Plan, PlannedTable, planned_table
from scenarios.planner.topology import DEVICES_WITH_HBM, Topology
from scenarios.planner.types import ShardingOption
from scenarios.run_length import Run, runs_of
from scenarios.seam.trace import PlanRow
from scenarios.sharding_kind import ShardingKind

_MOST_LINES = 16
_NAMED_TABLES = 3
_RANKS, _CAUSES = 14, 48  # characters
_EVEN = 1.01  # busiest rank / mean that needs no explanation


@dataclass(frozen=True, slots=True)
class _Figures:
    """The printed figures: tables, and by rank bytes, ms, and capacity."""

    tables: Sequence[PlannedTable]
    storage_bytes: Sequence[int]
    perf_ms: Sequence[float]
    capacity_bytes: Sequence[int]

    @property
    def ranks(self) -> range:
        return range(len(self.perf_ms))

    @property
    def mean_ms(self) -> float:
        return sum(self.perf_ms) / len(self.perf_ms)


def format_plan(plan: Plan) -> str:
    """Format tables, ranks, imbalance and its causes, without a trailing newline; perf is estimated, in ms."""
    capacity = [plan.capacity_bytes] * plan.world_size
    lines = _lines(_Figures(plan.tables, plan.storage_bytes, plan.perf_ms, capacity))
    if any(plan.host_bytes):
        fullest = max(range(plan.world_size), key=plan.host_bytes.__getitem__)
        lines.append(f"host memory: fullest rank has {format_bytes(plan.host_bytes[fullest])} there (rank {fullest})")
    return "\n".join(
        [*lines, f"proposals: {plan.tried} tried, {plan.fitting} fitted" if plan.tried else "plan: as given"]
    )


def format_proposal(proposal: Sequence[ShardingOption], topology: Topology) -> str:
    """Format a proposal that a partitioner or planner has placed; storage is hbm, or ddr on a device without hbm.

    Raises:
        ValueError: a shard has no rank.
    """
    tier = "hbm" if topology.compute_device in DEVICES_WITH_HBM else "ddr"
    world = topology.world_size
    tables = [planned_table(option, attrgetter(tier), world) for option in proposal]
    storage, perf = [0] * world, [0.0] * world
    for shard in (shard for table in tables for shard in table.shards):
        storage[shard.rank] += shard.storage_bytes
        perf[shard.rank] += shard.perf_ms
    capacity = [getattr(device.storage, tier) for device in topology.devices]
    return "\n".join(_lines(_Figures(tables, storage, perf, capacity)))


def _lines(figures: _Figures) -> list[str]:
    return [*_tables(figures.tables), "", *_ranks(figures), "", *_imbalance(figures)]


def _tables(tables: Sequence[PlannedTable]) -> list[str]:
    head = f"{'table':<20} {'sharding':<17} {'ranks':<14} {'shard':>18} {'storage':>11} {'perf ms':>9}"
    return [head, *(_table(table) for table in tables)]


def _table(table: PlannedTable) -> str:
    runs = list(runs_of(table.shards))
    largest = max([shard for _, shard in runs], key=lambda shard: shard.rows * shard.columns)
    storage = format_bytes(sum(count * shard.storage_bytes for count, shard in runs))
    perf = max(shard.perf_ms for _, shard in runs)
    ranks = _few(sorted(set().union(*[_on(run) for run in runs])))
    size = f"{largest.rows} x {largest.columns}"
    return f"{_clip(table.name, 20):<20} {table.sharding_type:<17} {ranks:<14} {size:>18} {storage:>11} {_ms(perf):>9}"


def _ranks(figures: _Figures) -> list[str]:
    """Format one line for all ranks with identical text; if there are too many lines, only the busiest."""
    starts = _starts(figures)
    loads = rank_loads(figures.tables, starts)
    by_line: dict[str, list[int]] = {}
    for start, end in pairwise([*starts, len(figures.ranks)]):
        by_line.setdefault(_load(figures, start, loads[start]), []).extend(range(start, end))
    shown = list(by_line)
    if len(shown) > _MOST_LINES:
        shown = sorted(shown, key=lambda line: -figures.perf_ms[by_line[line][0]])[:_MOST_LINES]
    lines = [f"{'ranks':<14} {'storage':>11} {'of limit':>8} {'perf ms':>9}  largest tables"]
    lines += [f"{_few(by_line[line]):<14} {line}".rstrip() for line in shown]
    hidden = len(figures.ranks) - sum(len(by_line[line]) for line in shown)
    return [*lines, f"{'...':<14} {hidden} more ranks, less busy"] if hidden else lines


def _starts(figures: _Figures) -> list[int]:
    """Return the first rank of each run of consecutive ranks with the same shards and figures."""
    starts = {0}
    for table in figures.tables:
        for count, shard in runs_of(table.shards):
            starts |= {shard.rank, shard.rank + count}
    numbers = zip(figures.storage_bytes, figures.perf_ms, figures.capacity_bytes, strict=True)
    starts.update(rank for rank, (left, right) in enumerate(pairwise(numbers), 1) if left != right)
    return sorted(starts & {*figures.ranks})


def _on(run: Run[PlanRow]) -> range:
    count, first = run
    return range(first.rank, first.rank + count)


def _load(figures: _Figures, rank: int, tables: dict[str, float]) -> str:
    used, limit = figures.storage_bytes[rank], figures.capacity_bytes[rank]
    share = f"{100 * used / limit:.0f} %" if limit else "-"
    return f"{format_bytes(used):>11} {share:>8} {_ms(figures.perf_ms[rank]):>9}  {_causes(tables)}"


def _imbalance(figures: _Figures) -> list[str]:
    busiest = max(figures.ranks, key=figures.perf_ms.__getitem__)
    fullest = max(figures.ranks, key=figures.storage_bytes.__getitem__)
    return [
        f"perf: bottleneck rank / mean = {_ratio(figures.perf_ms):.2f} (rank {busiest}):"
        f" {_ms(figures.perf_ms[busiest])} against {_ms(figures.mean_ms)} ms",
        *(_reasons(figures, busiest) if _ratio(figures.perf_ms) > _EVEN else []),
        f"storage: fullest rank / mean = {_ratio(figures.storage_bytes):.2f} (rank {fullest}),"
        f" limit {format_bytes(figures.capacity_bytes[fullest])}",
    ]


def _reasons(figures: _Figures, busiest: int) -> list[str]:
    """Format a line for each table that loads the busiest rank most above its mean, with the reason."""
    above = _above_mean(figures.tables, busiest, len(figures.ranks))
    worst = sorted(above, key=lambda name: -above[name])[:_NAMED_TABLES]
    tables = {table.name: table for table in figures.tables}
    return [f"  {_clip(name, 16)} +{_ms(above[name])} ms: {_reason(figures, busiest, tables[name])}" for name in worst]


def _reason(figures: _Figures, busiest: int, table: PlannedTable) -> str:
    """Return why the table's slowest shard on the busiest rank is not elsewhere."""
    kind = ShardingKind(table.sharding_type)
    if kind.is_on_all_ranks:
        return "every rank has a shard of it, and this one's is larger"
    shard = max((shard for shard in table.shards if shard.rank == busiest), key=lambda shard: shard.perf_ms)
    if shard.perf_ms >= figures.mean_ms:
        return "one shard takes longer than the mean rank; only a finer cut would help"
    if kind.is_on_hosts:
        return "its shards stay together on a host"
    return _reason_to_stay(figures, busiest, shard)


def _reason_to_stay(figures: _Figures, busiest: int, shard: PlanRow) -> str:
    free = [capacity - used for capacity, used in zip(figures.capacity_bytes, figures.storage_bytes, strict=True)]
    roomy = [rank for rank in figures.ranks if rank != busiest and free[rank] >= shard.storage_bytes]
    if not roomy:
        return f"no other rank has {format_bytes(shard.storage_bytes)} left"
    least = min(roomy, key=figures.perf_ms.__getitem__)
    if figures.perf_ms[least] + shard.perf_ms >= figures.perf_ms[busiest]:
        return f"rank {least}, the least busy with room, would become as busy"
    return f"was placed early; rank {least} now has room and less load"


def _above_mean(tables: Sequence[PlannedTable], rank: int, world_size: int) -> dict[str, float]:
    """Return by table how many ms more it costs this rank than the mean rank; only positive differences."""
    own = rank_loads(tables, [rank])[rank]
    each = {table.name: (repeat(shard.perf_ms, count) for count, shard in runs_of(table.shards)) for table in tables}
    mean = {name: sum(chain.from_iterable(ms)) / world_size for name, ms in each.items()}
    return {name: ms - mean[name] for name, ms in own.items() if ms > mean[name] * (1 + 1e-9)}


def rank_loads(tables: Sequence[PlannedTable], ranks: Sequence[int]) -> dict[int, dict[str, float]]:
    """Return the ms of each table on each of these ranks, which must ascend."""
    loads: dict[int, dict[str, float]] = {rank: {} for rank in ranks}
    for table in tables:
        for run in runs_of(table.shards):
            on = _on(run)
            for rank in ranks[bisect_left(ranks, on.start) : bisect_left(ranks, on.stop)]:
                loads[rank][table.name] = loads[rank].get(table.name, 0.0) + run[1].perf_ms
    return loads


def rank_ranges(ranks: Sequence[int]) -> str:
    """Format sorted ranks: [0, 1, 2, 5] is "0-2,5"."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _causes(loads: dict[str, float]) -> str:
    worst = sorted(loads, key=lambda name: -loads[name])[:_NAMED_TABLES]
    said = [f"{_clip(name, 16)} {_ms(loads[name])}" for name in worst if loads[name] > 0]
    while len(", ".join(said)) > _CAUSES:
        said.pop()
    return ", ".join(said)


def _few(ranks: Sequence[int]) -> str:
    """Format sorted ranks in the width of their column: their ranges, or their number if ranges are too long."""
    words = rank_ranges(ranks)
    return words if len(words) <= _RANKS else f"{len(ranks):,} ranks"


def _ms(perf_ms: float) -> str:
    return f"{perf_ms:.3g}"


def _ratio(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return max(values) / mean if mean else 1.0


def _clip(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
