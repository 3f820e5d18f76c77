"""A plan for people: what went where, what each rank has to do, and which tables make it uneven; 96 columns wide."""

from __future__ import annotations

from collections.abc import Sequence

from scenarios.planner.planned import Plan, PlannedTable
from scenarios.units import format_bytes

_MOST_LINES = 16
_NAMED_TABLES = 3


def format_plan(plan: Plan) -> str:
    """Tables, then ranks, then imbalance; no trailing newline. Perf is the planner's estimate of a step, in ms."""
    return "\n".join([*_tables(plan), "", *_ranks(plan), "", *_imbalance(plan)])


def _tables(plan: Plan) -> list[str]:
    head = f"{'table':<20} {'sharding':<17} {'ranks':<14} {'shard':>18} {'storage':>11} {'perf ms':>9}"
    return [head, *(_table(table) for table in plan.tables)]


def _table(table: PlannedTable) -> str:
    largest = max(table.shards, key=lambda shard: shard.rows * shard.columns)
    storage = format_bytes(sum(shard.storage_bytes for shard in table.shards))
    perf = max(shard.perf_ms for shard in table.shards)
    ranks = _clip(rank_ranges(sorted({shard.rank for shard in table.shards})), 14)
    size = f"{largest.rows} x {largest.columns}"
    return f"{_clip(table.name, 20):<20} {table.sharding_type:<17} {ranks:<14} {size:>18} {storage:>11} {_ms(perf):>9}"


def _ranks(plan: Plan) -> list[str]:
    """Ranks that look the same are one line; with too many lines, the busiest."""
    loads = rank_loads(plan, range(plan.world_size))
    alike: dict[str, list[int]] = {}
    for rank in range(plan.world_size):
        alike.setdefault(_load(plan, rank, loads[rank]), []).append(rank)
    shown = list(alike)
    if len(shown) > _MOST_LINES:
        shown = sorted(shown, key=lambda line: -plan.perf_ms[alike[line][0]])[:_MOST_LINES]
    lines = [f"{'ranks':<14} {'storage':>11} {'of limit':>8} {'perf ms':>9}  most of it"]
    lines += [f"{_clip(rank_ranges(alike[line]), 14):<14} {line}".rstrip() for line in shown]
    hidden = plan.world_size - sum(len(alike[line]) for line in shown)
    return [*lines, f"{'...':<14} {hidden} more ranks, less busy"] if hidden else lines


def _load(plan: Plan, rank: int, tables: dict[str, float]) -> str:
    used = plan.storage_bytes[rank]
    share = f"{100 * used / plan.capacity_bytes:.0f} %" if plan.capacity_bytes else "-"
    return f"{format_bytes(used):>11} {share:>8} {_ms(plan.perf_ms[rank]):>9}  {_causes(tables)}"


def _imbalance(plan: Plan) -> list[str]:
    busiest = max(range(plan.world_size), key=lambda rank: plan.perf_ms[rank])
    fullest = max(range(plan.world_size), key=lambda rank: plan.storage_bytes[rank])
    causes = _causes(_above_mean(plan, busiest))
    return [
        f"perf: busiest rank / mean = {_ratio(plan.perf_ms):.2f} (rank {busiest})",
        *([f"  more than its share, in ms: {causes}"] if causes else []),
        f"storage: fullest rank / mean = {_ratio(plan.storage_bytes):.2f} (rank {fullest}),"
        f" limit {format_bytes(plan.capacity_bytes)}",
        f"proposals: {plan.tried} tried, {plan.fitting} fitted",
    ]


def _above_mean(plan: Plan, rank: int) -> dict[str, float]:
    """What each table costs this rank more than it costs a rank on average, in ms; only what is more."""
    own = rank_loads(plan, [rank])[rank]
    mean = {table.name: sum(shard.perf_ms for shard in table.shards) / plan.world_size for table in plan.tables}
    return {name: ms - mean[name] for name, ms in own.items() if ms > mean[name] * (1 + 1e-9)}


def rank_loads(plan: Plan, ranks: Sequence[int]) -> dict[int, dict[str, float]]:
    """Milliseconds by table on each of these ranks."""
    loads: dict[int, dict[str, float]] = {rank: {} for rank in ranks}
    for table in plan.tables:
        for shard in table.shards:
            if shard.rank in loads:
                mine = loads[shard.rank]
                mine[table.name] = mine.get(table.name, 0.0) + shard.perf_ms
    return loads


def rank_ranges(ranks: Sequence[int]) -> str:
    """Sorted ranks in short: [0, 1, 2, 5] is "0-2,5"."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _causes(loads: dict[str, float]) -> str:
    worst = sorted(loads, key=lambda name: -loads[name])[:_NAMED_TABLES]
    return _clip(", ".join(f"{_clip(name, 16)} {_ms(loads[name])}" for name in worst if loads[name] > 0), 48)


def _ms(perf_ms: float) -> str:
    return f"{perf_ms:.3g}"


def _ratio(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return max(values) / mean if mean else 1.0


def _clip(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
