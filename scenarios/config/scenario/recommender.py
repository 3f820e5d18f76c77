"""The recommender of a scenario, and the options of its planner."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from scenarios.compute_kernel import DEFAULT_KERNEL, ComputeKernel, LookUpKernel
from scenarios.config.keys import Key
from scenarios.config.scenario.optimizers import DenseOptimizer, Optimizer
from scenarios.config.toml.values import (
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

# Share of a table's rows that its cache holds, as in TorchRec 1.8.
CACHE_LOAD_FACTOR = 0.2

# Columns of a shard below which TorchRec 1.8 does not cut by default.
MIN_PARTITION = 128

Bag = Literal["pooled", "weighted", "sequence", "distinct"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanIds:
    """A random number of ids a sample."""

    mean: Annotated[IdsMean, "The mean of a Poisson distribution. Required."]


@dataclass(frozen=True, slots=True, kw_only=True)
class ZipfIds:
    """Ids of which some are much more frequent than others."""

    zipf: Annotated[Exponent, "Exponent: the k-th most frequent row has a weight of k ** -zipf. Required."]
    order: Annotated[
        Literal["shuffled", "by_frequency"],
        "'shuffled': frequent rows lie where the table's name has it, as if hashed; 'by_frequency': first. Default"
        " 'shuffled'.",
    ] = "shuffled"
    bags: Annotated[
        Literal["independent", "by_first"],
        "'by_first': only a sample's first id is drawn so; each other one is uniform over rows, but always the same"
        " for the same first one, as in MLPerf's Criteo. Default 'independent'.",
    ] = "independent"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIds:
    """Ids from a file."""

    file: Annotated[File, "CSV without a header: a sample a line, ids separated by spaces. Relative to this file."]


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
    """Bags of ids that read a table's rows, for a table that several features share."""

    name: Annotated[Name, "Its name, unlike those of all features. Required."]
    ids_per_sample: Annotated[float, Key(doc="As a table's. Required, unless from a file.", accepts=IdsCount | MeanIds)]
    ids_per_sample_kind: Literal["fixed", "poisson"] = "fixed"
    ids: Annotated[Ids, Key(doc="As a table's. Default 'uniform'.", accepts=Uniform | ZipfIds | FileIds)] = Ids()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One embedding table.

    `ids_per_sample` is the bag's length, or its mean where `ids_per_sample_kind` is "poisson". Every table is "fused"
    on CPU processes, which have one memory (`Scenario.kernel_of`).

    If there are `features` (TorchRec's `feature_names`), each has bags of its own, `ids_per_sample` is their sum, and
    `ids` is unused; otherwise the table has one feature, of its own name. `by_feature` has one table for each feature
    in both cases, with the real table's name in `feature_of`.
    """

    file_keys: ClassVar[tuple[Key, ...]] = (
        Key(
            "hosts",
            "The hosts on all of whose ranks it lies. Default: the planner's choice.",
            accepts=list[Place],
            after="cache_load_factor",
        ),
    )

    name: Annotated[Name, "Its name, unlike all others. Required."]
    rows: Annotated[Count, "Number of ids that it knows. Required."]
    dim: Annotated[Width, "Elements a row. Default: model.embedding_dim."]
    ids_per_sample: Annotated[
        float,
        Key(
            doc="Ids in a sample's bag: always 3, or {mean = 2.5} for a Poisson distribution. Required, unless from a"
            " file, or with features.",
            accepts=IdsCount | MeanIds,
        ),
    ]
    ids_per_sample_kind: Literal["fixed", "poisson"] = "fixed"
    ids: Annotated[
        Ids,
        Key(
            doc="How ids are drawn: 'uniform', {zipf = 1.05, order = 'shuffled'} or {file = 'ids.csv'}. Default"
            " 'uniform'.",
            accepts=Uniform | ZipfIds | FileIds,
        ),
    ] = Ids()
    sharding: Annotated[
        tuple[ShardingType, ...],
        "Sharding types that it may take. Default: sharding.types; of a table with ranks or hosts, all.",
    ]
    ranks: Annotated[
        tuple[Place, ...],
        Key(doc="The ranks on which it lies, in this order. Default: the planner's choice.", after="cache_load_factor"),
    ] = ()
    min_partition: Annotated[Width, "Columns of a shard at least, where it is cut by columns. Default 128."] = (
        MIN_PARTITION
    )
    weighted: Annotated[bool, "Whether ids have weights by which their rows are summed. Default false."] = False
    sequence: Annotated[
        MostRows,
        "The most rows of a sample that model.dense gets one by one, [batch, sequence, dim], zeros behind the last."
        " Default: rows are summed.",
    ] = 0
    index_dedup: Annotated[
        bool,
        "Whether a row travels home once for all ids of a rank's batch that name it, and bags are summed there."
        " Default false.",
    ] = False
    kernel: Annotated[
        ComputeKernel,
        Key(
            doc="Where its rows lie, as TorchRec's compute kernels: 'fused' in the GPU's memory, 'fused_uvm' in the"
            " host's, 'fused_uvm_caching' there with a cache in the GPU's. Default: sharding.plan's, else 'fused'.",
            accepts=LookUpKernel,
            read=ComputeKernel,
        ),
    ] = DEFAULT_KERNEL
    cache_load_factor: Annotated[
        Efficient,
        "The share of its rows that the cache of 'fused_uvm_caching' holds. Default: sharding.plan's, else 0.2.",
    ] = CACHE_LOAD_FACTOR
    features: Annotated[
        tuple[Feature, ...],
        Key(
            doc="The features whose ids name its rows, each with bags of its own. Default: one, of the table's name.",
            after="ids",
        ),
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
    """How dense and sparse features meet."""

    kind: Annotated[
        Literal["cat", "dot", "dcn"],
        "'cat': side by side; 'dot': all pairs' dot products; 'dcn': cross layers, as in DLRM-DCNv2. Required.",
    ]
    layers: Annotated[Layers, "Cross layers; required by 'dcn', of no use to others."] = 0
    low_rank: Annotated[Width, "Rank of a cross layer's matrices; required by 'dcn', of no use to others."] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The recommender, for program 'dlrm'.

    `dtype` is also the dtype of what tables give the dense part and get back; their rows have `embedding_dtype`.
    `optimizer` updates the tables, and the dense part unless there is a `dense_optimizer`.
    """

    file_keys: ClassVar[tuple[Key, ...]] = (
        Key(
            "embedding_dim",
            "Elements a row of the tables that do not say. Default: none.",
            accepts=Width,
            after="tf32",
        ),
    )

    dense_features: Annotated[Width, "Numbers a sample that enter the bottom layers. Required."]
    tables: Annotated[tuple[Table, ...], "The embedding tables. Required."]
    bottom: Annotated[tuple[Width, ...], "Widths of the layers over the dense features. Required without dense."] = ()
    interaction: Annotated[
        Interaction, Key(doc="How dense and sparse features meet. Required without dense.", after="top")
    ] = Interaction(kind="cat")
    top: Annotated[
        tuple[Width, ...], "Widths of the layers over the interaction; the last is 1. Required without dense."
    ] = ()
    dense: Annotated[
        Text, "A module in place of these three: 'package.module:Class' or './file.py:Class'. Default: none."
    ] = ""
    dense_options: Annotated[Mapping[str, Any], "What its class is given by name. Default: nothing."] = (
        dataclasses.field(default_factory=dict)
    )
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"],
        "Dtype of the dense part's weights and arithmetic, and of what tables give it and get back. Default 'float32'.",
    ] = "float32"
    embedding_dtype: Annotated[
        Literal["float32", "bfloat16", "float16"], "Dtype of the tables' rows. Default: dtype."
    ] = "float32"
    ids_dtype: Annotated[Literal["int32", "int64"], Key(doc="Dtype of ids. Default 'int64'.", after="tf32")] = "int64"
    lengths_dtype: Annotated[
        Literal["int32", "int64"], Key(doc="Dtype of bags' lengths. Default 'int64'.", after="ids_dtype")
    ] = "int64"
    optimizer: Annotated[Optimizer, Key(doc="How parameters are updated. Default: sgd.", after="lengths_dtype")] = (
        Optimizer()
    )
    dense_optimizer: Annotated[
        DenseOptimizer | None,
        Key(doc="How the dense part is updated. Default: as the tables are.", after="dense_options"),
    ] = None
    autocast: Annotated[
        Literal["", "bfloat16", "float16"],
        Key(
            doc="What torch.autocast lowers the dense part's forward pass to; its parameters stay float32. Default:"
            " nothing.",
            accepts=Literal["float16", "bfloat16"],
        ),
    ] = ""
    loss_scaling: Annotated[
        Scaling | None,
        "What losses are scaled by, as torch.amp.GradScaler does it: 'dynamic', or a number that stays. Default: none.",
    ] = None
    tf32: Annotated[
        bool | None,
        "Whether GPUs round the dense part's products of float32 to TF32. Default: as PyTorch does it, false.",
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
    """How the planner places tables, for program 'dlrm'.

    If there is a `plan`, no table is placed, and each table's `sharding` is its type in the plan.
    """

    file_keys: ClassVar[tuple[Key, ...]] = (
        Key(
            "types",
            "Sharding types for tables that do not say. Default: all, as on TorchRec's GPUs.",
            accepts=list[ShardingType],
            after="choose",
        ),
    )

    choose: Annotated[
        Literal["estimated", "simulated"],
        "Whether the plan is the one that the planner expects to be quickest, or of some of its proposals the one"
        " that is quickest when simulated. Default 'estimated'.",
    ] = "estimated"
    sort_by: Annotated[Literal["storage", "perf"], "What the partitioner places first. Default 'storage'."] = "storage"
    balance_modules: Annotated[bool, "Whether each module is balanced on its own. Default false."] = False
    reserved_share: Annotated[Reserve, "Part of a GPU's memory that is kept from tables. Default 0.15."] = 0.15
    plan: Annotated[
        PlanFile | None,
        Key(
            doc="A plan in JSON, as TorchRec makes or `python -m scenarios plan` writes it: taken as it is, whatever"
            " the tables' sharding, types, sort_by and balance_modules say. Relative to this file. Default: none.",
            accepts=File,
        ),
    ] = None
