"""Where TorchRec has put a script's tables, read from its running modules."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from typing import Any

from scenarios.seam.trace import PlanRow

# Of an element of a table, whose type its plan does not say: TorchRec's default.
_FLOAT32_BYTES = 4


def plan_rows() -> list[PlanRow]:
    """A row for each shard under DistributedModelParallel, without expected times and ids; none without TorchRec."""
    parallel = sys.modules.get("torchrec.distributed.model_parallel")
    if parallel is None:
        return []
    kind = parallel.DistributedModelParallel
    found = [each for each in gc.get_objects() if issubclass(type(each), kind)]
    return [
        row
        for model in found
        for path, tables in model.plan.plan.items()
        for table, parameter in tables.items()
        for row in _shards(model, path, table, parameter)
    ]


def _shards(model: Any, path: str, table: str, parameter: Any) -> Iterator[PlanRow]:
    spec = parameter.sharding_spec
    if spec is not None:
        places = [(shard.placement.rank(), *shard.shard_offsets, *shard.shard_sizes) for shard in spec.shards]
    else:  # a copy on each rank
        rows, columns = _sizes(model, path, table)
        places = [(rank, 0, 0, rows, columns) for rank in parameter.ranks or ()]
    for number, (rank, row, column, rows, columns) in enumerate(places):
        yield PlanRow(
            table=table,
            sharding_type=parameter.sharding_type,
            compute_kernel=parameter.compute_kernel,
            shard=number,
            rank=rank,
            row_offset=row,
            column_offset=column,
            rows=rows,
            columns=columns,
            storage_bytes=rows * columns * _FLOAT32_BYTES,
            perf_ms=0.0,
            ids_per_step=0.0,
        )


def _sizes(model: Any, path: str, table: str) -> tuple[int, int]:
    """Rows and columns of a whole table."""
    for name, tensor in model.state_dict().items():
        if path in name and name.endswith(f".{table}.weight"):
            return int(tensor.shape[0]), int(tensor.shape[1])
    return 0, 0
