"""The recommender of a scenario, and what its planner may do."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from scenarios.compute_kernel import DEFAULT_KERNEL, ComputeKernel
from scenarios.sharding_kind import ShardingType

# TorchRec 1.8's share of a table's rows that its cache holds.
CACHE_LOAD_FACTOR = 0.2

# Columns of a shard below which TorchRec 1.8 does not cut by default.
MIN_PARTITION = 128

Bag = Literal["pooled", "weighted", "sequence", "distinct"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ids:
    """How a table's ids are drawn.

    "uniform": every row alike. "zipf": the k-th most frequent row with a weight of k ** -exponent, rows shuffled as
    follows from the table's name unless `order = "by_frequency"` (then id 0 is the most frequent). "file": bags of ids
    read from `path` in order, sample after sample over ranks and steps, from the start again at the end. With
    `bags = "by_first"` the first id of a bag is drawn so, and each of the others is uniform over rows, but always the
    same for the same first id.
    """

    kind: Literal["uniform", "zipf", "file"] = "uniform"
    exponent: float = 0.0
    order: Literal["shuffled", "by_frequency"] = "shuffled"
    bags: Literal["independent", "by_first"] = "independent"
    path: Path | None = None
    sha256: str = ""  # of the file's content, so that a changed file is a changed scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """Bags of ids that read a table's rows; `ids_per_sample`, its kind and `ids` are as in `Table`."""

    name: str
    ids_per_sample: float
    ids_per_sample_kind: Literal["fixed", "poisson"] = "fixed"
    ids: Ids = Ids()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One embedding table.

    `ids_per_sample` is the bag's length, or its mean where `ids_per_sample_kind` is "poisson".
    `sharding` are the types that the planner may give to this table, `ranks` those on which it is pinned; () is none.
    Shards that are cut by columns have `min_partition` of them at least.
    A bag's rows are summed, where it is `weighted` each times its id's weight; or given one by one, up to `sequence`
    of them, where that is not 0. With `index_dedup` each row travels home once for all ids of a rank's batch that name
    it, and bags are summed there. `kernel` and `cache_load_factor`, the share of rows that its cache holds, are
    TorchRec's; on CPU processes, which have one memory, no table is in another (`Scenario.kernel_of`).

    With `features`, as of TorchRec's `feature_names`, each has bags of its own, `ids_per_sample` is the sum of theirs,
    and `ids` counts for nothing. Without them there is one, of the table's name. `by_feature` hides the difference:
    there `feature_of` is the table's name.
    """

    name: str
    rows: int
    dim: int
    ids_per_sample: float
    ids_per_sample_kind: Literal["fixed", "poisson"] = "fixed"
    ids: Ids = Ids()
    sharding: tuple[ShardingType, ...]
    ranks: tuple[int, ...] = ()
    min_partition: int = MIN_PARTITION
    weighted: bool = False
    sequence: int = 0
    index_dedup: bool = False
    kernel: ComputeKernel = DEFAULT_KERNEL
    cache_load_factor: float = CACHE_LOAD_FACTOR
    features: tuple[Feature, ...] = ()
    feature_of: str = dataclasses.field(default="", metadata={"is_of_playing": True})

    @property
    def by_feature(self) -> tuple[Table, ...]:
        """The table as each of its features sees it: with the feature's name and ids."""
        if not self.features:
            return (self,)
        return tuple(
            dataclasses.replace(
                self,
                name=feature.name,
                feature_of=self.name,
                ids_per_sample=feature.ids_per_sample,
                ids_per_sample_kind=feature.ids_per_sample_kind,
                ids=feature.ids,
                features=(),
            )
            for feature in self.features
        )

    @property
    def is_pooled(self) -> bool:
        """Whether what travels home is a row a bag, not a row an id."""
        return not self.sequence and not self.index_dedup

    @property
    def is_weighted(self) -> bool:
        """As the planner asks it of a module."""
        return self.weighted

    @property
    def bag(self) -> Bag:
        """What becomes of a bag's rows."""
        if self.index_dedup:
            return "distinct"
        return "sequence" if self.sequence else "weighted" if self.weighted else "pooled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """How dense and embedded features meet.

    "cat": concatenated. "dot": pairwise dot products of the features (all dims equal) beside the dense one.
    "dcn": `layers` cross layers of rank `low_rank` over the concatenation (DLRM-DCNv2).
    """

    kind: Literal["cat", "dot", "dcn"]
    layers: int = 0
    low_rank: int = 0


OptimizerKind = Literal["sgd", "adagrad", "adam", "partial_rowwise_adam", "lamb", "partial_rowwise_lamb"]
# Their defaults are those of fbgemm 1.8, and of torch.optim; Adagrad's epsilon is torch.optim's.
ADAGRAD_EPSILON, MOMENTS_EPSILON = 1e-10, 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """How tables are updated: the name is fbgemm's, but "adagrad" with a float32 for each row, or for each `state`.

    Those with moments decay them by `beta1` and `beta2`, and weights by `weight_decay` of each step.
    """

    kind: OptimizerKind = "sgd"
    learning_rate: float = 0.01
    state: Literal["row", "element"] = "row"
    eps: float | None = None
    beta1: float = 0.9
    beta2: float = 0.999
    weight_decay: float = 0.0

    @property
    def epsilon(self) -> float:
        """`eps`, or its default."""
        return self.eps or (ADAGRAD_EPSILON if self.kind == "adagrad" else MOMENTS_EPSILON)

    @property
    def has_moments(self) -> bool:
        """Whether it is Adam or LAMB, in whichever form."""
        return self.kind not in ("sgd", "adagrad")

    @property
    def element_numbers(self) -> int:
        """How many float32 there are for each element of a table."""
        of_adagrad = int(self.state == "element")
        return {"sgd": 0, "adagrad": of_adagrad, "adam": 2, "lamb": 2}.get(self.kind, 1)

    @property
    def row_numbers(self) -> int:
        """How many there are for each row besides."""
        of_adagrad = int(self.state == "row")
        return {"sgd": 0, "adagrad": of_adagrad, "adam": 0, "lamb": 0}.get(self.kind, 1)

    def state_bytes(self, columns: int) -> int:
        """Bytes that a row of so many columns has beside its weights."""
        return 4 * (self.row_numbers + self.element_numbers * columns)

    @property
    def planned_bytes(self) -> tuple[int, int]:
        """Bytes that the planner counts for each row, and for each element.

        TorchRec 1.8.0 (`_get_optimizer_multipler`) knows SGD, Adam and row-wise Adagrad; for all others it counts as
        much as there is of weights, also for LAMB, which keeps twice that.
        """
        if self.kind in ("sgd", "adagrad", "adam"):
            return 4 * self.row_numbers, 4 * self.element_numbers
        return 0, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseOptimizer:
    """A class of torch.optim by its name, and what it is given beside the parameters."""

    kind: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A DLRM: dense features through `bottom`, tables, an interaction, then `top` to one logit.

    `dtype` is that of the dense part, and of what tables give it and get back; their rows are of `embedding_dtype`. Ids
    and bags' lengths travel as `ids_dtype` and `lengths_dtype`.

    `dense` names a module, given `dense_options`, that is there instead of the layers: "module:class" or
    "./file.py:class". `optimizer` is that of the tables, and of the rest unless there is a `dense_optimizer`.

    The dense part's forward pass is under torch.autocast to `autocast`, its losses are scaled as torch's GradScaler
    does it by a number or as it goes, and GPUs round its products of float32 to TF32, or not, or as torch says.
    """

    dense_features: int
    tables: tuple[Table, ...]
    bottom: tuple[int, ...] = ()
    interaction: Interaction = Interaction(kind="cat")
    top: tuple[int, ...] = ()
    dense: str = ""
    dense_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    embedding_dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    ids_dtype: Literal["int32", "int64"] = "int64"
    lengths_dtype: Literal["int32", "int64"] = "int64"
    optimizer: Optimizer = Optimizer()
    dense_optimizer: DenseOptimizer | None = None
    autocast: Literal["", "bfloat16", "float16"] = ""
    loss_scaling: float | Literal["dynamic"] | None = None
    tf32: bool | None = None

    @property
    def features(self) -> tuple[Table, ...]:
        """The tables as each of their features sees them, table by table."""
        return tuple(feature for table in self.tables for feature in table.by_feature)

    @property
    def bags(self) -> dict[Bag, tuple[Table, ...]]:
        """The tables by what becomes of their bags' rows, in the order in which that first comes."""
        kinds = dict.fromkeys(table.bag for table in self.tables)
        return {kind: tuple(table for table in self.tables if table.bag == kind) for kind in kinds}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """A plan that is taken as it is; `sha256` is of its content, so that a changed plan is a changed scenario.

    `is_found`: by simulation, so that a run keeps it.
    """

    path: Path
    sha256: str
    is_found: bool = dataclasses.field(default=False, metadata={"is_of_playing": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """How GreedyPerfPartitioner places shards. `reserved_share` of a GPU's memory is kept from embedding tables.

    With a `plan` nothing is placed: each table's `sharding` then is the type that the plan gives it. Else that is
    chosen which the planner expects to be quickest, or the one that is quickest in the simulator.
    """

    choose: Literal["estimated", "simulated"] = "estimated"
    sort_by: Literal["storage", "perf"] = "storage"
    balance_modules: bool = False
    reserved_share: float = 0.15
    plan: PlanFile | None = None
