"""The recommender of a scenario, and the options of its planner."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from scenarios.compute_kernel import DEFAULT_KERNEL, SCENARIO_KERNELS, ComputeKernel
from scenarios.config.keys import Key
from scenarios.config.scenario.optimizers import DenseOptimizer, Optimizer
from scenarios.config.toml.values import (
    Alike,
    Count,
    Efficient,
    Exponent,
    File,
    IdsCount,
    IdsMean,
    Layers,
    MostRows,
    Name,
    Place,
    Reserve,
    Scaling,
    Text,
    Uniform,
    Width,
)
from scenarios.sharding_kind import ShardingType

CACHE_LOAD_FACTOR = 0.2
MIN_PARTITION = 128

Bag = Literal["pooled", "weighted", "sequence", "distinct"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanIds:
    """A random number of ids per bag."""

    mean: Annotated[IdsMean, "Mean of the Poisson distribution. Required."]


@dataclass(frozen=True, slots=True, kw_only=True)
class ZipfIds:
    """Ids by a Zipf distribution: some are much more frequent than others."""

    zipf: Annotated[Exponent, "Exponent: the k-th most frequent row has a weight of k ** -zipf. Required."]
    order: Annotated[
        Literal["shuffled", "by_frequency"],
        "'shuffled': frequent rows are spread over the table, as if hashed; 'by_frequency': row 0 is the most"
        " frequent, row 1 the next. Default 'shuffled'.",
    ] = "shuffled"
    bags: Annotated[
        Literal["independent", "by_first"],
        "'independent': each id of a bag is drawn separately; 'by_first': only the first id is drawn, and determines"
        " the others, which are spread evenly over rows, as in MLPerf's Criteo. Default 'independent'.",
    ] = "independent"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIds:
    """Ids from a file."""

    file: Annotated[File, "CSV without a header: one line per sample, ids separated by spaces. Relative to this file."]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ids:
    """How a table's ids are drawn.

    "uniform": all rows with equal probability. "zipf": the k-th most frequent row with a weight of k ** -exponent; the
    table's name decides which row is k-th, unless `order = "by_frequency"` (then id 0 is the most frequent). "file":
    bags of ids read from `path` in order, sample after sample over ranks and steps, starting over at the end. If `bags
    = "by_first"`, only the first id of a bag is drawn; the others are uniform over rows, but a function of the first.
    """

    kind: Literal["uniform", "zipf", "file"] = "uniform"
    exponent: float = 0.0
    order: Literal["shuffled", "by_frequency"] = "shuffled"
    bags: Literal["independent", "by_first"] = "independent"
    path: Path | None = None
    sha256: str = ""  # of the file's content, so that a changed file is a changed scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A feature whose ids look up rows of a table, for tables that several features share."""

    name: Annotated[Name, "Name of the feature, unique among all features. Required."]
    ids_per_sample: Annotated[
        float, "Ids per bag, as for a table. Required, unless ids come from a file.", Key(accepts=IdsCount | MeanIds)
    ]
    ids_per_sample_kind: Literal["fixed", "poisson"] = "fixed"
    ids: Annotated[
        Ids, "How ids are drawn, as for a table. Default 'uniform'.", Key(accepts=Uniform | ZipfIds | FileIds)
    ] = Ids()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """An embedding table.

    `ids_per_sample` is the bag's length, or its mean where `ids_per_sample_kind` is "poisson". Every table is "fused"
    on CPU processes, which have one memory (`Scenario.kernel_of`).

    If there are `features` (TorchRec's `feature_names`), each has bags of its own, `ids_per_sample` is their sum, and
    `ids` is unused; otherwise the table has one feature, of its own name. `by_feature` has one table for each feature
    in both cases, with the real table's name in `feature_of`.
    """

    file_keys: ClassVar[tuple[Key, ...]] = (
        Key(
            "hosts",
            "Numbers of the hosts on whose ranks the table lies. Default: the planner's choice.",
            accepts=list[Place],
            after="cache_load_factor",
        ),
        Key(
            "count",
            "Number of equal tables that this entry describes; their names, and those of their features, end in _0,"
            " _1, ... Default: one table.",
            accepts=Alike,
            after="hosts",
        ),
    )

    name: Annotated[Name, "Name of the table, unique among all tables. Required."]
    rows: Annotated[Count, "Number of rows; ids are below it. Required."]
    dim: Annotated[Width, "Elements per row. Default: model.embedding_dim."]
    ids_per_sample: Annotated[
        float,
        "Ids per bag: a fixed number such as 3, or {mean = 2.5} for a Poisson distribution. Required, unless"
        " ids come from a file or there are `features`.",
        Key(accepts=IdsCount | MeanIds),
    ]
    ids_per_sample_kind: Literal["fixed", "poisson"] = "fixed"
    ids: Annotated[
        Ids,
        "How ids are drawn: 'uniform', {zipf = 1.05, order = 'shuffled'} or {file = 'ids.csv'}. Default 'uniform'.",
        Key(accepts=Uniform | ZipfIds | FileIds),
    ] = Ids()
    sharding: Annotated[
        tuple[ShardingType, ...],
        "Sharding types that the planner may choose. Default: sharding.types; with `ranks` or `hosts`, all.",
    ]
    ranks: Annotated[
        tuple[Place, ...],
        "Ranks on which the table lies, in this order. Default: the planner's choice.",
        Key(after="cache_load_factor"),
    ] = ()
    min_partition: Annotated[
        Width,
        "Minimal number of columns of a shard, if the table is cut by columns. Default 128; source: TorchRec 1.8.",
    ] = MIN_PARTITION
    weighted: Annotated[
        bool, "Whether ids have weights, by which their rows are multiplied before they are summed. Default false."
    ] = False
    sequence: Annotated[
        MostRows,
        "Maximal number of rows per sample that model.dense gets unsummed, as [batch, sequence, dim], padded with"
        " zeros. Default: rows are summed.",
    ] = 0
    index_dedup: Annotated[
        bool,
        "Whether each distinct row of a rank's batch is sent once, and bags are summed on the receiving rank."
        " Default false.",
    ] = False
    kernel: Annotated[
        ComputeKernel,
        "Where rows lie, by TorchRec's compute kernels. 'fused': GPU memory; 'fused_uvm': host memory;"
        " 'fused_uvm_caching': host memory, with a cache in GPU memory. Default: that of sharding.plan, else"
        " 'fused'.",
        Key(accepts=Literal[SCENARIO_KERNELS]),
    ] = DEFAULT_KERNEL
    cache_load_factor: Annotated[
        Efficient,
        "Share of rows that the cache of 'fused_uvm_caching' holds. Default: that of sharding.plan, else 0.2;"
        " source: TorchRec 1.8.",
    ] = CACHE_LOAD_FACTOR
    features: Annotated[
        tuple[Feature, ...],
        "Features whose ids look up rows of this table, each with its own bags. Default: one feature, with the"
        " table's name.",
        Key(after="ids"),
    ] = ()
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
        """Whether one pooled row per bag is sent home, instead of one row per id."""
        return not self.sequence and not self.index_dedup

    @property
    def is_weighted(self) -> bool:
        """Whether ids have weights; the planner reads this name of modules."""
        return self.weighted

    @property
    def bag(self) -> Bag:
        """The kind of result that the rows of a bag become."""
        if self.index_dedup:
            return "distinct"
        return "sequence" if self.sequence else "weighted" if self.weighted else "pooled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """The combination of dense and sparse features."""

    kind: Annotated[
        Literal["cat", "dot", "dcn"],
        "'cat': concatenation; 'dot': dot products of all pairs; 'dcn': cross layers, as in DLRM-DCNv2. Required.",
    ]
    layers: Annotated[Layers, "Number of cross layers. Required by 'dcn', not used by others."] = 0
    low_rank: Annotated[Width, "Rank of a cross layer's matrices. Required by 'dcn', not used by others."] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The recommender, for program 'dlrm'.

    `dtype` is also the dtype of what tables give the dense part and get back; their rows have `embedding_dtype`.
    `optimizer` updates the tables, and the dense part unless there is a `dense_optimizer`.
    """

    file_keys: ClassVar[tuple[Key, ...]] = (
        Key(
            "embedding_dim",
            "Elements per row of tables without `dim`. Default: none.",
            accepts=Width,
            after="tf32",
        ),
        Key(
            "ids_per_sample",
            "Ids per bag of tables, and features, without `ids_per_sample`. Default: none.",
            accepts=IdsCount | MeanIds,
            after="embedding_dim",
        ),
    )

    dense_features: Annotated[Width, "Dense features per sample, the input of the bottom layers. Required."]
    tables: Annotated[
        tuple[Table, ...],
        "The embedding tables, or the path of a CSV or Parquet file of them, relative to this file. Required.",
        Key(or_file=True),
    ]
    bottom: Annotated[tuple[Width, ...], "Widths of the layers over the dense features. Required without `dense`."] = ()
    interaction: Annotated[
        Interaction, "How dense and sparse features are combined. Required without `dense`.", Key(after="top")
    ] = Interaction(kind="cat")
    top: Annotated[
        tuple[Width, ...], "Widths of the layers over the interaction; the last is 1. Required without `dense`."
    ] = ()
    dense: Annotated[
        Text,
        "Module of your own instead of bottom, interaction and top: 'package.module:Class' or './file.py:Class'."
        " Default: none.",
    ] = ""
    dense_options: Annotated[Mapping[str, Any], "Keyword arguments of that class. Default: none."] = dataclasses.field(
        default_factory=dict
    )
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"],
        "Dtype of the dense part's weights and arithmetic, and of embeddings and their gradients where they enter"
        " the dense part. Default 'float32'.",
    ] = "float32"
    embedding_dtype: Annotated[
        Literal["float32", "bfloat16", "float16"], "Dtype of the tables' rows. Default: `dtype`."
    ] = "float32"
    ids_dtype: Annotated[Literal["int32", "int64"], "Dtype of ids. Default 'int64'.", Key(after="tf32")] = "int64"
    lengths_dtype: Annotated[
        Literal["int32", "int64"], "Dtype of the bags' lengths. Default 'int64'.", Key(after="ids_dtype")
    ] = "int64"
    optimizer: Annotated[
        Optimizer,
        "Optimizer of the tables, and of the dense part without `dense_optimizer`. Default: SGD.",
        Key(after="lengths_dtype"),
    ] = Optimizer()
    dense_optimizer: Annotated[
        DenseOptimizer | None,
        "Optimizer of the dense part. Default: `optimizer`.",
        Key(after="dense_options"),
    ] = None
    autocast: Annotated[
        Literal["", "bfloat16", "float16"],
        "Dtype of torch.autocast in the dense part's forward pass; parameters stay float32. Default: none.",
        Key(accepts=Literal["float16", "bfloat16"]),
    ] = ""
    loss_scaling: Annotated[
        Scaling | None,
        "Loss scale, as in torch.amp.GradScaler: 'dynamic', or a constant number. Default: none.",
    ] = None
    tf32: Annotated[
        bool | None,
        "Whether GPUs round float32 products of the dense part to TF32. Default false, as in PyTorch.",
    ] = None

    @property
    def features(self) -> tuple[Table, ...]:
        """The tables as each of their features sees them, table by table."""
        return tuple([feature for table in self.tables for feature in table.by_feature])

    @property
    def bags(self) -> dict[Bag, tuple[Table, ...]]:
        """The tables by kind of bag, in the order in which the kinds first occur."""
        kinds = dict.fromkeys(table.bag for table in self.tables)
        return {kind: tuple(table for table in self.tables if table.bag == kind) for kind in kinds}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """A plan that is taken as it is; `sha256` is of its content, so that a changed plan is a changed scenario.

    `is_found`: simulation found the plan, so a run folder stores it.
    """

    path: Path
    sha256: str
    is_found: bool = dataclasses.field(default=False, metadata={"is_of_playing": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Options of the planner, which places tables, for program 'dlrm'.

    If there is a `plan`, no table is placed, and each table's `sharding` is its type in the plan.
    """

    file_keys: ClassVar[tuple[Key, ...]] = (
        Key(
            "types",
            "Sharding types of tables without `sharding`. Default: all, as TorchRec allows on GPUs.",
            accepts=list[ShardingType],
            after="choose",
        ),
    )

    choose: Annotated[
        Literal["estimated", "simulated"],
        "'estimated': the plan that the planner's estimates rank first; 'simulated': of several proposals, the"
        " plan that is fastest in the simulator. Default 'estimated'.",
    ] = "estimated"
    sort_by: Annotated[
        Literal["storage", "perf"],
        "Order in which the partitioner places tables: largest storage first, or largest estimated time first."
        " Default 'storage'.",
    ] = "storage"
    balance_modules: Annotated[bool, "Whether the planner balances each module separately. Default false."] = False
    reserved_share: Annotated[
        Reserve, "Share of each GPU's memory that tables may not use. Default 0.15; source: TorchRec 1.8's planner."
    ] = 0.15
    plan: Annotated[
        PlanFile | None,
        "Plan in JSON, as TorchRec or `twinstep plan` writes it. The plan overrides the tables'"
        " sharding, types, sort_by and balance_modules. Relative to this file. Default: none.",
        Key(accepts=File),
    ] = None
