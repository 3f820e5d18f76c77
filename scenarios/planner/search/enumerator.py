"""The planner's search space: every sharding option of every table, with sizes, offsets and costs of its shards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from scenarios.compute_kernel import USUAL_KERNELS
from scenarios.planner.estimators.perf import EmbeddingPerfEstimator
from scenarios.planner.estimators.storage import EmbeddingStorageEstimator
from scenarios.planner.topology import Topology
from scenarios.planner.types import (
    ParameterConstraints,
    PlannerError,
    PlannerErrorType,
    Shard,
    ShardingOption,
    TableTensor,
)
from scenarios.run_length import KeptRuns
from scenarios.sharding_kind import ShardingKind

BATCH_SIZE = 512
"""Samples a rank, unless given: TorchRec 1.8's default."""

MIN_CW_DIM = 128
"""Columns of a shard below which TorchRec 1.8 does not cut by default."""

COLUMN_ALIGNMENT = 4

# Other types are considered only for tables whose constraints name them.
USUAL_TYPES = tuple(kind for kind in ShardingKind if kind.is_usual)


class Estimator(Protocol):
    """An estimator that writes its costs, perf or storage, into the shards of sharding options."""

    def estimate(self, sharding_options: list[ShardingOption]) -> None: ...


class Sharder(Protocol):
    """A sharder of one type of module, like TorchRec's ModuleSharder."""

    @property
    def module_type(self) -> type: ...
    def shardable_parameters(self, module: Any) -> Mapping[str, TableTensor]: ...
    def sharding_types(self, compute_device_type: str) -> Sequence[str]: ...
    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> Sequence[str]: ...


class PlannedModule(Protocol):
    """The part of a model that the enumerator reads; torch.nn.Module has it."""

    def named_children(self) -> Iterable[tuple[str, Any]]: ...


class EmbeddingEnumerator:
    """An enumerator of sharding options under `constraints` by table name; by default estimates perf and storage."""

    def __init__(
        self,
        topology: Topology,
        batch_size: int = BATCH_SIZE,
        constraints: Mapping[str, ParameterConstraints] | None = None,
        estimator: Estimator | Sequence[Estimator] | None = None,
        use_exact_enumerate_order: bool = False,
    ) -> None:
        self._topology = topology
        self._batch_size = batch_size
        self._constraints = constraints or {}
        if estimator is None:
            estimator = [
                EmbeddingPerfEstimator(topology, self._constraints),
                EmbeddingStorageEstimator(topology, self._constraints),
            ]
        self._in_order = use_exact_enumerate_order
        self._estimators = list(estimator) if isinstance(estimator, Sequence) else [estimator]

    def enumerate(self, module: PlannedModule, sharders: Sequence[Sharder]) -> list[ShardingOption]:
        """Return options of every parameter that a sharder can shard, module by module.

        Children come in reverse, as in TorchRec; with `use_exact_enumerate_order` in the model's order.

        Raises:
            PlannerError: the constraints leave no option for a table (kind "no_options").
        """
        by_type = {sharder.module_type: sharder for sharder in sharders}
        options: list[ShardingOption] = []
        waiting: list[tuple[str, Any]] = [("", module)]
        while waiting:
            path, child = waiting.pop()
            sharder = by_type.get(type(child))
            if sharder is None:
                below = [(f"{path}.{name}" if path else name, each) for name, each in child.named_children()]
                waiting += reversed(below) if self._in_order else below
                continue
            for name, tensor in sharder.shardable_parameters(child).items():
                options += self.of_table(name, tensor, (path, child), sharder)
        return options

    def of_table(
        self, name: str, tensor: TableTensor, module: tuple[str, object], sharder: Sharder
    ) -> list[ShardingOption]:
        """Return the options of one table, with perf and storage.

        Raises:
            PlannerError: the constraints leave no option (kind "no_options").
        """
        wished, device = self._constraints.get(name, ParameterConstraints()), self._topology.compute_device
        rows, dim = tensor.shape
        types = wished.sharding_types or USUAL_TYPES
        kernels = wished.compute_kernels or USUAL_KERNELS
        options = [
            ShardingOption(
                name=name,
                tensor=tensor,
                module=module,
                input_lengths=wished.pooling_factors,
                batch_size=self._batch_size,
                sharding_type=kind,
                partition_by=ShardingKind(kind).partition_by,
                compute_kernel=kernel,
                shards=cut(kind, rows, dim, self._topology, min_partition=wished.min_partition),
                cache_params=wished.cache_params,
                enforce_hbm=wished.enforce_hbm,
                stochastic_rounding=wished.stochastic_rounding,
                bounds_check_mode=wished.bounds_check_mode,
                feature_names=wished.feature_names,
                output_dtype=wished.output_dtype,
                key_value_params=wished.key_value_params,
                is_pooled=_is_pooled(module[1]),
                num_poolings=wished.num_poolings,
            )
            for kind in sharder.sharding_types(device)
            if kind in types
            for kernel in sharder.compute_kernels(kind, device)
            if kernel in kernels
        ]
        if not options:
            message = f"table {name}: no sharding type and compute kernel of its constraints can be had on {device}"
            raise PlannerError(message, PlannerErrorType.STRICT_CONSTRAINTS, "no_options")
        for estimator in self._estimators:
            estimator.estimate(options)
        return options


def _is_pooled(module: object) -> bool:
    """Return whether bags become one row each, by the module's attribute; TorchRec's EmbeddingCollection has none."""
    named = any(base.__name__ == "EmbeddingCollectionInterface" for base in type(module).__mro__)
    return bool(getattr(module, "is_pooled", not named))


def cut(
    sharding_type: str, rows: int, dim: int, topology: Topology, *, min_partition: int | None = None
) -> Sequence[Shard]:
    """Cut a table [rows, dim] into shards without costs or ranks; each shard of a copied table is all of it.

    Shards on every rank come as `KeptRuns`, all others as a list.

    Raises:
        ValueError: an unknown sharding type.
    """
    kind, world = ShardingKind(sharding_type), topology.world_size
    if kind.is_copied:
        return KeptRuns([(world, Shard([rows, dim], [0, 0]))], _copy)
    blocks = kind.row_blocks(world, topology.intra_group_size)
    if kind.is_on_all_ranks:
        return _blocks(rows, blocks, dim, 0)
    width = column_width(dim, min_partition or MIN_CW_DIM) if kind.cuts_columns else dim
    return [shard for column in range(0, dim, width) for shard in _blocks(rows, blocks, width, column)]


def column_width(dim: int, min_partition: int) -> int:
    """Return the least multiple of 4 from `min_partition` on that divides `dim`; if there is none, `dim`."""
    for width in range(min_partition, dim):
        if dim % width == 0 and width % COLUMN_ALIGNMENT == 0:
            return width
    return dim


def _blocks(rows: int, count: int, width: int, column: int) -> KeptRuns[Shard]:
    """Return `count` equal blocks of rows; the last ones may be shorter or empty."""
    block = -(-rows // count)
    whole, rest = divmod(rows, block) if block else (0, 0)
    shorter = 1 if rest else 0
    runs = [
        (whole, Shard([block, width], [0, column])),
        (shorter, Shard([rest, width], [rows - rest, column])),
        (count - whole - shorter, Shard([0, width], [rows, column])),
    ]
    return KeptRuns(runs, _next_block)


def _copy(first: Shard, index: int) -> Shard:
    """Return the replica on the `index`-th rank after the first one's."""
    rank = None if first.rank is None else first.rank + index
    return Shard([*first.size], [*first.offset], first.storage, first.perf, rank)


def _next_block(first: Shard, index: int) -> Shard:
    """Return the block of rows `index` blocks after the first."""
    block = _copy(first, index)
    block.offset = [first.offset[0] + index * first.size[0], first.offset[1]]
    return block
