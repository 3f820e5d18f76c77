"""The cost of a table's shard on its rank: its part of lookup and update, which are one pass over all shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from scenarios.config.scenario import Recommender, Scenario
from scenarios.planner.placed import Plan, next_row
from scenarios.run_length import Runs
from scenarios.seam.kernel import Kernel
from scenarios.sharding_kind import ShardingKind
from scenarios.sparse.expected import ExpectedJagged
from scenarios.workloads.dlrm.ids.distinct import distinct_rows, expected_ids
from scenarios.workloads.dlrm.tables.caching import CachedPiece, RowCache, count_fetched_rows
from scenarios.workloads.dlrm.tables.prices import PricedPiece, RowPrices


def with_moved_bytes(plan: Plan, scenario: Scenario) -> Plan:
    """Return the plan with the bytes that lookups and updates of each shard move."""
    numbers = {table.name: number for number, table in enumerate(scenario.workload.tables)}
    runs = []
    for count, row in plan.row_runs.runs:
        rows = range(row.row_offset, row.row_offset + row.rows)
        columns = range(row.column_offset, row.column_offset + row.columns)
        kernels = shard_kernels(scenario, numbers[row.table], row.sharding_kind, rows, columns)
        look_up, update = map(_moved_bytes, kernels)
        runs.append((count, replace(row, look_up_bytes=look_up, update_bytes=update)))
    return replace(plan, row_runs=Runs(runs, next_row))


def _moved_bytes(kernel: Kernel) -> float:
    """Return the bytes moved from and to both memories, without those found in L2."""
    host = kernel.host_read + kernel.host_written
    return kernel.bytes_read - kernel.bytes_reread + kernel.bytes_written + host


def shard_kernels(
    scenario: Scenario, number: int, kind: ShardingKind, rows: range, columns: range
) -> tuple[Kernel, Kernel]:
    """Return the lookup and the update of a shard of table `number`, with the expected ids."""
    held, features = _price_shard(scenario, number, kind, rows, columns)
    update = held.dense_gradients_kernel if kind.is_copied else held.update_kernel
    return held.look_up_kernel(features), update(features)


def shard_fill_kernel(
    scenario: Scenario, number: int, kind: ShardingKind, rows: range, columns: range
) -> Kernel | None:
    """Return the filling of the shard's cache before a lookup, as if no other table shared it; None without a cache."""
    held, features = _price_shard(scenario, number, kind, rows, columns)
    return None if held.cache is None else held.fill_kernel(features)


def prices_of(
    pieces: Sequence[PricedPiece], scenario: Scenario, *, unpooled: bool, is_fbgemms: bool = False
) -> RowPrices:
    """Return the prices of pieces of a scenario's tables on one rank."""
    model, tables, gpu = Recommender.of(scenario.workload).model, scenario.workload.tables, scenario.cluster.host.gpu
    samples, l2_bytes = scenario.run.batch_size * scenario.sharding_ranks, gpu.l2_bytes or 0

    def drawn(table: int, rows: range, ids: Sequence[float]) -> Sequence[float]:
        """Return the number of drawn ids if ranks deduplicate ids before the exchange (`index_dedup`); else `ids`."""
        return expected_ids(tables[table], rows, samples) if tables[table].index_dedup else ids

    def distinct(table: int, rows: range, ids: Sequence[float]) -> float:
        return min(sum(ids), distinct_rows(tables[table], rows, drawn(table, rows, ids)))

    def fetched(table: int, rows: range, ids: Sequence[float], row_bytes: int) -> float:
        room = l2_bytes / row_bytes
        return min(sum(ids), count_fetched_rows(tables[table], rows, drawn(table, rows, ids), room))

    return RowPrices(
        pieces,
        getattr(torch, model.embedding_dtype),
        optimizer=model.optimizer,
        unpooled=unpooled,
        travels_as=getattr(torch, model.dtype),
        distinct=distinct,
        fetched=fetched if l2_bytes else None,
        cache=_row_cache(pieces, scenario),
        sorts_all=gpu.device.sorts_ids,
        is_fbgemms=is_fbgemms,
    )


def _row_cache(pieces: Sequence[PricedPiece], scenario: Scenario) -> RowCache | None:
    """Return the cache of a rank's cached pieces; None if there are none."""
    model = Recommender.of(scenario.workload).model
    tables, element_bytes = model.tables, getattr(torch, model.embedding_dtype).itemsize
    cached = [
        CachedPiece(
            table=tables[piece.table],
            rows=piece.rows,
            row_bytes=len(piece.columns) * element_bytes,
            load_factor=tables[piece.table].cache_load_factor,
        )
        for piece in pieces
        if piece.kernel.is_cached
    ]
    return RowCache(cached, scenario.run.batch_size * scenario.sharding_ranks) if cached else None


def _price_shard(
    scenario: Scenario, number: int, kind: ShardingKind, rows: range, columns: range
) -> tuple[RowPrices, ExpectedJagged]:
    """Return the prices of a single shard of table `number`, and its expected features in a batch."""
    model = Recommender.of(scenario.workload).model
    table = model.tables[number]
    samples = scenario.run.batch_size * (1 if kind.is_copied else scenario.sharding_ranks)
    piece = PricedPiece(
        table=number, rows=rows, columns=columns, kernel=scenario.kernel_of(table), keys=len(table.by_feature)
    )
    held = prices_of([piece], scenario, unpooled=table.sequence > 0)
    features = ExpectedJagged(
        keys=tuple(feature.name for feature in table.by_feature),
        ids=tuple(expected_ids(table, rows, samples)),
        stride=samples,
        weighted=table.weighted,
        ids_dtype=getattr(torch, model.ids_dtype),
        lengths_dtype=getattr(torch, model.lengths_dtype),
    )
    return held, features
