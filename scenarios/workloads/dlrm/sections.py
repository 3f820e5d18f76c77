"""The keys of the tables `model` and `sharding` of a scenario file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Discriminator, Tag

from scenarios.compute_kernel import LookUpKernel
from scenarios.config.scenario import OptimizerKind
from scenarios.config.toml.program_spec import FreeOptions
from scenarios.config.toml.section import TAG, Section, about
from scenarios.config.toml.values import (
    Count,
    Decay,
    Efficient,
    Exponent,
    File,
    IdsCount,
    IdsMean,
    Layers,
    LearningRate,
    MostRows,
    Name,
    Place,
    Positive,
    Reserve,
    Scaling,
    Skew,
    Text,
    Uniform,
    Width,
)
from scenarios.sharding_kind import ShardingType


class MeanIds(Section):
    """A random number of ids a sample."""

    mean: IdsMean | None = about("The mean of a Poisson distribution. Required.")


class ZipfIds(Section):
    """Ids of which some are much more frequent than others."""

    zipf: Exponent | None = about("Exponent: the k-th most frequent row has a weight of k ** -zipf. Required.")
    order: Literal["shuffled", "by_frequency"] | None = about(
        "'shuffled': frequent rows lie where the table's name has it, as if hashed; 'by_frequency': first. Default"
        " 'shuffled'."
    )
    bags: Literal["independent", "by_first"] | None = about(
        "'by_first': only a sample's first id is drawn so; each other one is uniform over rows, but always the same for"
        " the same first one, as in MLPerf's Criteo. Default 'independent'."
    )


class FileIds(Section):
    """Ids from a file."""

    file: File | None = about("CSV without a header: a sample a line, ids separated by spaces. Relative to this file.")


def _tag_ids_per_sample(value: object) -> str:
    return f"{TAG}table" if isinstance(value, dict) else f"{TAG}number"


def _tag_ids(value: object) -> str:
    if not isinstance(value, dict):
        return f"{TAG}word"
    return f"{TAG}file" if "file" in value and "zipf" not in value else f"{TAG}zipf"


IdsPerSample = Annotated[
    Annotated[IdsCount, Tag(f"{TAG}number")] | Annotated[MeanIds, Tag(f"{TAG}table")],
    Discriminator(_tag_ids_per_sample),
]


IdsKind = Annotated[
    Annotated[Uniform, Tag(f"{TAG}word")]
    | Annotated[ZipfIds, Tag(f"{TAG}zipf")]
    | Annotated[FileIds, Tag(f"{TAG}file")],
    Discriminator(_tag_ids),
]


class FeatureSection(Section):
    """Bags of ids that read a table's rows, for a table that several features share."""

    name: Name | None = about("Its name, unlike those of all features. Required.")
    ids_per_sample: IdsPerSample | None = about("As a table's. Required, unless from a file.")
    ids: IdsKind | None = about("As a table's. Default 'uniform'.")


class TableSection(Section):
    """One embedding table."""

    name: Name | None = about("Its name, unlike all others. Required.")
    rows: Count | None = about("Number of ids that it knows. Required.")
    dim: Width | None = about("Elements a row. Default: model.embedding_dim.")
    ids_per_sample: IdsPerSample | None = about(
        "Ids in a sample's bag: always 3, or {mean = 2.5} for a Poisson distribution. Required, unless from a file, or"
        " with features."
    )
    ids: IdsKind | None = about(
        "How ids are drawn: 'uniform', {zipf = 1.05, order = 'shuffled'} or {file = 'ids.csv'}. Default 'uniform'."
    )
    features: list[FeatureSection] | None = about(
        "The features whose ids name its rows, each with bags of its own. Default: one, of the table's name."
    )
    sharding: list[ShardingType] | None = about(
        "Sharding types that it may take. Default: sharding.types; of a table with ranks or hosts, all."
    )
    min_partition: Width | None = about("Columns of a shard at least, where it is cut by columns. Default 128.")
    weighted: bool | None = about("Whether ids have weights by which their rows are summed. Default false.")
    sequence: MostRows | None = about(
        "The most rows of a sample that model.dense gets one by one, [batch, sequence, dim], zeros behind the last."
        " Default: rows are summed."
    )
    index_dedup: bool | None = about(
        "Whether a row travels home once for all ids of a rank's batch that name it, and bags are summed there. Default"
        " false."
    )
    kernel: LookUpKernel | None = about(
        "Where its rows lie, as TorchRec's compute kernels: 'fused' in the GPU's memory, 'fused_uvm' in the host's,"
        " 'fused_uvm_caching' there with a cache in the GPU's. Default: sharding.plan's, else 'fused'."
    )
    cache_load_factor: Efficient | None = about(
        "The share of its rows that the cache of 'fused_uvm_caching' holds. Default: sharding.plan's, else 0.2."
    )
    ranks: list[Place] | None = about("The ranks on which it lies, in this order. Default: the planner's choice.")
    hosts: list[Place] | None = about("The hosts on all of whose ranks it lies. Default: the planner's choice.")


class InteractionSection(Section):
    """How dense and sparse features meet."""

    kind: Literal["cat", "dot", "dcn"] | None = about(
        "'cat': side by side; 'dot': all pairs' dot products; 'dcn': cross layers, as in DLRM-DCNv2. Required."
    )
    layers: Layers | None = about("Cross layers; required by 'dcn', of no use to others.")
    low_rank: Width | None = about("Rank of a cross layer's matrices; required by 'dcn', of no use to others.")


class OptimizerSection(Section):
    """How parameters are updated."""

    kind: OptimizerKind | None = about(
        "SGD; Adagrad (steps shrink as gradients accumulate); Adam and LAMB (moments), as in fbgemm. Default 'sgd'."
    )
    state: Literal["row", "element"] | None = about(
        "Whether 'adagrad' keeps one float32 for each row of a table, or for each element. Default 'row'."
    )
    learning_rate: LearningRate | None = about("Learning rate. Default 0.01.")
    eps: Positive | None = about("What is added to roots of squares. Default 1e-10 with 'adagrad', else 1e-8.")
    beta1: Decay | None = about("What the mean of gradients keeps in a step, of 'adam' and those below. Default 0.9.")
    beta2: Decay | None = about("What the mean of their squares keeps. Default 0.999.")
    weight_decay: Skew | None = about("The share of weights that a step takes, times the learning rate. Default 0.")


class DenseOptimizerSection(Section):
    """How the dense part is updated: an optimizer of torch.optim. All keys but `kind` are its arguments."""

    model_config = ConfigDict(extra="allow")

    kind: Name | None = about("Its class, such as 'Adam' or 'AdamW'. Required.")


class ModelSection(Section):
    """The recommender, for program 'dlrm'."""

    dense_features: Width | None = about("Numbers a sample that enter the bottom layers. Required.")
    bottom: list[Width] | None = about("Widths of the layers over the dense features. Required without dense.")
    top: list[Width] | None = about("Widths of the layers over the interaction; the last is 1. Required without dense.")
    interaction: InteractionSection | None = about("How dense and sparse features meet. Required without dense.")
    dense: Text | None = about(
        "A module in place of these three: 'package.module:Class' or './file.py:Class'. Default: none."
    )
    dense_options: FreeOptions | None = about("What its class is given by name. Default: nothing.")
    dense_optimizer: DenseOptimizerSection | None = about("How the dense part is updated. Default: as the tables are.")
    dtype: Literal["float32", "bfloat16", "float16"] | None = about(
        "Dtype of the dense part's weights and arithmetic, and of what tables give it and get back. Default 'float32'."
    )
    embedding_dtype: Literal["float32", "bfloat16", "float16"] | None = about(
        "Dtype of the tables' rows. Default: dtype."
    )
    autocast: Literal["float16", "bfloat16"] | None = about(
        "What torch.autocast lowers the dense part's forward pass to; its parameters stay float32. Default: nothing."
    )
    loss_scaling: Scaling | None = about(
        "What losses are scaled by, as torch.amp.GradScaler does it: 'dynamic', or a number that stays. Default: none."
    )
    tf32: bool | None = about(
        "Whether GPUs round the dense part's products of float32 to TF32. Default: as PyTorch does it, false."
    )
    ids_dtype: Literal["int32", "int64"] | None = about("Dtype of ids. Default 'int64'.")
    lengths_dtype: Literal["int32", "int64"] | None = about("Dtype of bags' lengths. Default 'int64'.")
    optimizer: OptimizerSection | None = about("How parameters are updated. Default: sgd.")
    embedding_dim: Width | None = about("Elements a row of the tables that do not say. Default: none.")
    tables: list[TableSection] | None = about("The embedding tables. Required.")


class ShardingSection(Section):
    """How the planner places tables, for program 'dlrm'."""

    choose: Literal["estimated", "simulated"] | None = about(
        "Whether the plan is the one that the planner expects to be quickest, or of some of its proposals the one that"
        " is quickest when simulated. Default 'estimated'."
    )
    types: list[ShardingType] | None = about(
        "Sharding types for tables that do not say. Default: all, as on TorchRec's GPUs."
    )
    sort_by: Literal["storage", "perf"] | None = about("What the partitioner places first. Default 'storage'.")
    balance_modules: bool | None = about("Whether each module is balanced on its own. Default false.")
    reserved_share: Reserve | None = about("Part of a GPU's memory that is kept from tables. Default 0.15.")
    plan: File | None = about(
        "A plan in JSON, as TorchRec makes or `python -m scenarios plan` writes it: taken as it is, whatever the"
        " tables' sharding, types, sort_by and balance_modules say. Relative to this file. Default: none."
    )
