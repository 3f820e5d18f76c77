"""The bytes of a checkpoint by part and by rank, from a program's memory and plan; no times.

A checkpoint holds the tables with their optimizer state, and the dense part's parameters with theirs. Each rank writes
its shards. What several ranks hold is written once, by the ranks with the least to write, as by
torch.distributed.checkpoint (torch 2.13, `dedup_save_plans`); every rank loads all that it holds.

Bytes are those of the tensors in training: 12 for a float32 parameter with Adam, also under autocast. Megatron and
DeepSpeed also write each parameter's bfloat16 copy, 14 bytes in all: so MLPerf Storage's 105, 912 and 5,290 GB for
models of 8, 70 and 405 billion parameters, if these are GiB. BLOOM's 2.3 TB for 176 billion are 13 bytes, or 14.4 of
TiB.

Check-N-Run (NSDI 2022, abstract) writes 6 to 17 times less by rows that were looked up and quantized values. Of
`criteo_dlrm_8x8` (ids by Zipf's law with 1.05, rows of 128 values and one of optimizer state) every fourth checkpoint
whole and 10^7 samples between two are 5.7 times less with 8 bits, 10 with 4 and 17 with 2: the rows alone are 1.6, as
the hot ones are few and soon looked up. State of each element, which is not quantized, leaves `mlperf_dcnv2` 2.2 to
2.6 times less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scenarios.config.scenario import Model, Recommender, Scenario, Table
from scenarios.planner.placed import whole_bytes
from scenarios.seam.errors import ScenarioError
from scenarios.seam.kernel import ELEMENT_BYTES
from scenarios.seam.memory import GATHERED, OPTIMIZER, PARAMETERS, WEIGHTS
from scenarios.seam.program import Program
from scenarios.seam.trace import MemoryRow, PlanRow
from scenarios.workloads.dlrm.ids.distinct import distinct_rows, expected_ids

Floats = npt.NDArray[np.float64]

TABLES, TABLE_STATE, DENSE, DENSE_STATE = "tables", "table optimizer", "dense", "dense optimizer"

# A row of at most 8 bits a value has a scale and an offset, two float32, as fbgemm's rows of 8 bits.
_SCALE_BYTES, _MOST_SCALED = 8, 8
# Rows of an incremental checkpoint are written with their numbers, int64.
_NUMBER_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointBytes:
    """A checkpoint's bytes.

    Attributes:
        parts: bytes by part of the model, without replicas; empty if only the size is known.
        own: [ranks] bytes of each rank's shards; where several ranks hold a shard, each has a part of it.
        held: [ranks] bytes that each rank loads, replicas included.
        gpus: ranks of a host.
        common: bytes that all ranks hold.
    """

    parts: Mapping[str, float]
    own: Floats
    held: Floats
    gpus: int
    common: float = 0.0

    @property
    def written(self) -> Floats:
        """[ranks] the bytes that each rank writes: those with the least of their own also write what all hold."""
        ascending = np.sort(self.own)
        # The level to which the common bytes fill the first n ranks, for each n; the least is that of the right n.
        levels = (self.common + np.cumsum(ascending)) / np.arange(1, ascending.size + 1)
        return np.asarray(np.maximum(self.own, levels.min()))

    @property
    def total(self) -> float:
        """The bytes of all ranks, without replicas."""
        return float(self.own.sum()) + self.common

    @property
    def hosts_written(self) -> Floats:
        """[hosts] the bytes that each host writes."""
        return np.asarray(self.written.reshape(-1, self.gpus).sum(axis=1))

    @property
    def hosts_held(self) -> Floats:
        """[hosts] the bytes that each host loads, replicas included."""
        return np.asarray(self.held.reshape(-1, self.gpus).sum(axis=1))


def evenly(size_bytes: float, ranks: int, gpus: int) -> CheckpointBytes:
    """Return a checkpoint of a given size, of which each rank has an equal part."""
    each = np.full(ranks, size_bytes / ranks)
    return CheckpointBytes(parts={}, own=each, held=each, gpus=gpus)


def checkpoint_bytes(
    scenario: Scenario, program: Program, table_bits: int = 32, steps: int | None = None
) -> CheckpointBytes:
    """Return the bytes of a program's checkpoint.

    Parameters of a user's own program with gathered units count as sharded over all ranks.

    Args:
        scenario: the cluster, and the workload with its tables.
        program: has plan and memory, of each rank or of representatives.
        table_bits: bits of each value of a table; those in training, if they are fewer.
        steps: steps since the last whole checkpoint, if only rows that were looked up since are written; None: all.

    Raises:
        ScenarioError: the program does not say which of its memory belongs into a checkpoint.
    """
    cluster = scenario.cluster
    found = _Collected(cluster.world_size)
    if isinstance(scenario.workload, Recommender):
        _add_tables(found, scenario, program.plan, table_bits, steps)
    _add_dense(found, scenario, program.memory)
    if not any(found.parts.values()):
        raise ScenarioError(
            f"{scenario.path}: job.checkpoint.size: missing; expected the bytes of a checkpoint, which the memory of"
            f" program '{scenario.program}' does not tell"
        )
    return CheckpointBytes(
        parts=found.parts, own=found.own, held=found.held, gpus=cluster.host.gpus, common=found.common
    )


class _Collected:
    """Sums of bytes: by part without replicas, by rank, and `common` to all ranks."""

    def __init__(self, world: int) -> None:
        self.parts = dict.fromkeys((TABLES, TABLE_STATE, DENSE, DENSE_STATE), 0.0)
        self.own, self.held, self.common = np.zeros(world), np.zeros(world), 0.0

    def add(self, part: str, size_bytes: float, rank: int, copies: int) -> None:
        """Add bytes of one rank, of which `copies` ranks have a copy."""
        self.parts[part] += size_bytes / copies
        self.own[rank] += size_bytes / copies
        self.held[rank] += size_bytes

    def add_to_all(self, part: str, size_bytes: float, copies: int) -> None:
        """Add so many bytes on every rank, of which `copies` ranks have a copy."""
        world = len(self.held)
        self.parts[part] += size_bytes * world / copies
        self.held += size_bytes
        if copies == world:
            self.common += size_bytes
        else:
            self.own += size_bytes / copies


def _add_tables(
    found: _Collected, scenario: Scenario, plan: Iterable[PlanRow], table_bits: int, steps: int | None
) -> None:
    """Add rows and optimizer state of all shards; copied tables count once."""
    model, world = Recommender.of(scenario.workload).model, scenario.cluster.world_size
    tables, copied = {table.name: table for table in model.tables}, set[str]()
    samples = None if steps is None else float(steps) * samples_of_step(scenario)
    for shard in plan:
        share, numbers = 1.0, 0.0
        if samples is not None:
            share = _looked_up(tables[shard.table], shard, samples)
            numbers = _NUMBER_BYTES * share * shard.rows
        weights = _weight_bytes(shard, model, table_bits)
        # All rows without their numbers, if that is less.
        sizes = {TABLES: min(weights * share + numbers, weights), TABLE_STATE: whole_bytes(shard, model).state * share}
        for part, size_bytes in sizes.items():
            if not shard.sharding_kind.is_copied:
                found.add(part, size_bytes, shard.rank, world // scenario.sharding_ranks)
            elif shard.table not in copied:
                found.add_to_all(part, size_bytes, world)
        copied |= {shard.table} if shard.sharding_kind.is_copied else set()


def _weight_bytes(shard: PlanRow, model: Model, table_bits: int) -> float:
    """Return the bytes of a shard's rows without optimizer state, of values with `table_bits` at most."""
    if table_bits >= 8 * ELEMENT_BYTES[model.embedding_dtype]:
        return float(whole_bytes(shard, model).weights)
    scale_bytes = _SCALE_BYTES if table_bits <= _MOST_SCALED else 0
    return shard.rows * (shard.columns * table_bits / 8 + scale_bytes)


def samples_of_step(scenario: Scenario) -> int:
    """Return the samples of a step on all ranks, those of all micro-batches of a recommender."""
    workload = scenario.workload
    micro_batches = workload.pipeline.accumulation if isinstance(workload, Recommender) else 1
    return scenario.run.batch_size * scenario.cluster.world_size * micro_batches


def _looked_up(table: Table, shard: PlanRow, samples: float) -> float:
    """Return the expected share of a shard's rows that so many samples look up."""
    is_even = all(one.ids.kind != "file" and one.ids.order == "shuffled" for one in table.by_feature)
    # Blocks of rows are alike if ids fall evenly on the table, so one sum serves all shards.
    rows = range(table.rows) if is_even else range(shard.row_offset, shard.row_offset + shard.rows)
    return distinct_rows(table, rows, expected_ids(table, rows, samples)) / max(len(rows), 1)


def _add_dense(found: _Collected, scenario: Scenario, memory: Iterable[MemoryRow]) -> None:
    """Add parameters and optimizer state of the dense part, as the rank with the most has them."""
    world, rows = scenario.cluster.world_size, list(memory)
    if isinstance(scenario.workload, Recommender):
        groups = scenario.workload.dense_parallel.shard_ranks(world, scenario.cluster.host.gpus)
    else:
        groups = world if any(row.kind == GATHERED for row in rows) else 1
    for part, kinds in ((DENSE, (WEIGHTS, PARAMETERS)), (DENSE_STATE, (OPTIMIZER,))):
        by_rank = Counter[int]()
        for row in rows:
            if row.kind in kinds:
                by_rank[row.rank] += row.size_bytes
        found.add_to_all(part, max(by_rank.values(), default=0), world // groups)
