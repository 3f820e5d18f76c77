"""The shape of a scenario file's workload: its tables, keys and what each accepts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Tag

from scenarios.config.scenario import ShardingType
from scenarios.config.toml.section import Section, about
from scenarios.config.toml.values import (
    Count,
    CountOrZero,
    Exponent,
    File,
    Flops,
    IdsCount,
    IdsMean,
    LearningRate,
    Name,
    NotNegative,
    Positive,
    Reserve,
    Seed32,
    Size,
    Skew,
    Uniform,
    Width,
)

ElementType = Literal[
    "float64",
    "float32",
    "bfloat16",
    "float16",
    "complex64",
    "complex128",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
]


class MeanIds(Section):
    """A random number of ids a sample."""

    mean: IdsMean | None = about("The mean of a Poisson distribution. Required.")


class ZipfIds(Section):
    """Ids of which some are much more frequent than others."""

    zipf: Exponent | None = about("Exponent: the k-th most frequent row has a weight of k ** -zipf. Required.")
    order: Literal["shuffled", "by_frequency"] | None = about(
        "Whether frequent rows lie anywhere or first. Default 'shuffled'."
    )


class FileIds(Section):
    """Ids from a file."""

    file: File | None = about("CSV without a header: a sample a line, ids separated by spaces. Relative to this file.")


def _tag_ids_per_sample(value: object) -> str:
    return "table" if isinstance(value, dict) else "number"


def _tag_ids(value: object) -> str:
    if not isinstance(value, dict):
        return "word"
    return "file" if "file" in value and "zipf" not in value else "zipf"


TAGGED = ("ids_per_sample", "ids")  # keys of a table, behind which pydantic's places have a tag; any other has none


IdsPerSample = Annotated[
    Annotated[IdsCount, Tag("number")] | Annotated[MeanIds, Tag("table")], Discriminator(_tag_ids_per_sample)
]


IdsKind = Annotated[
    Annotated[Uniform, Tag("word")] | Annotated[ZipfIds, Tag("zipf")] | Annotated[FileIds, Tag("file")],
    Discriminator(_tag_ids),
]


class TableSection(Section):
    """One embedding table."""

    name: Name | None = about("Its name, unlike all others. Required.")
    rows: Count | None = about("Number of ids that it knows. Required.")
    dim: Width | None = about("Elements a row. Default: model.embedding_dim.")
    ids_per_sample: IdsPerSample | None = about(
        "Ids in a sample's bag: always 3, or {mean = 2.5} for a Poisson distribution. Required, unless from a file."
    )
    ids: IdsKind | None = about(
        "How ids are drawn: 'uniform', {zipf = 1.05, order = 'shuffled'} or {file = 'ids.csv'}. Default 'uniform'."
    )
    sharding: list[ShardingType] | None = about("Sharding types that it may take. Default: sharding.types.")


class InteractionSection(Section):
    """How dense and sparse features meet."""

    kind: Literal["cat", "dot", "dcn"] | None = about(
        "'cat': side by side; 'dot': all pairs' dot products; 'dcn': cross layers, as in DLRM-DCNv2. Required."
    )
    layers: Width | None = about("Cross layers; required by 'dcn', of no use to others.")
    low_rank: Width | None = about("Rank of a cross layer's matrices; required by 'dcn', of no use to others.")


class OptimizerSection(Section):
    """How parameters are updated."""

    kind: Literal["sgd", "adagrad"] | None = about("'adagrad' keeps one float32 a row of each table. Default 'sgd'.")
    learning_rate: LearningRate | None = about("Learning rate. Default 0.01.")


class ModelSection(Section):
    """The recommender, for program 'dlrm'."""

    dense_features: Width | None = about("Numbers a sample that enter the bottom layers. Required.")
    bottom: list[Width] | None = about("Widths of the layers over the dense features. Required.")
    top: list[Width] | None = about("Widths of the layers over the interaction; the last is 1. Required.")
    interaction: InteractionSection | None = about("How dense and sparse features meet. Required.")
    dtype: Literal["float32", "bfloat16", "float16"] | None = about("Of weights and arithmetic. Default 'float32'.")
    optimizer: OptimizerSection | None = about("How parameters are updated. Default: sgd.")
    embedding_dim: Width | None = about("Elements a row of the tables that do not say. Default: none.")
    tables: list[TableSection] | None = about("The embedding tables. Required.")


class ShardingSection(Section):
    """How the planner places tables, for program 'dlrm'."""

    types: list[ShardingType] | None = about(
        "Sharding types for tables that do not say. Default: table_wise, row_wise, table_row_wise, data_parallel."
    )
    sort_by: Literal["storage", "perf"] | None = about("What the partitioner places first. Default 'storage'.")
    balance_modules: bool | None = about("Whether each module is balanced on its own. Default false.")
    reserved_share: Reserve | None = about("Part of a GPU's memory that is kept from tables. Default 0.15.")


class BucketsSection(Section):
    """Gradient buckets, as DDP makes them, for programs 'dlrm' and 'powersgd'."""

    first: Size | None = about("Cap of the first bucket. Default '1 MiB'.")
    cap: Size | None = about("Cap of the others. Default '25 MiB'.")


class CompressionSection(Section):
    """Gradient compression, with PowerSGDState's names, for programs 'dlrm' and 'powersgd'."""

    kind: Literal["none", "batched_powersgd", "layerwise_powersgd"] | None = about(
        "'none' leaves the other options without effect. Default 'none'."
    )
    matrix_approximation_rank: Width | None = about("Rank of the approximation. Default 1.")
    start_powerSGD_iter: CountOrZero | None = about(  # noqa: N815 - PowerSGDState's own name
        "Steps of plain all-reduce before; at least 2 with error feedback or warm start. Default 1000."
    )
    min_compression_rate: Positive | None = about("Below this gain, layers are not compressed. Default 2.")
    use_error_feedback: bool | None = about("Whether what was lost is added to the next gradient. Default true.")
    warm_start: bool | None = about("Whether the last step's Q is the next one's start. Default true.")
    orthogonalization_epsilon: NotNegative | None = about("Added to norms to keep them from zero. Default 0.")
    random_seed: Seed32 | None = about("Of the initial Q, alike on all ranks. Default 0.")
    compression_stats_logging_frequency: Count | None = about("Steps between two statistics. Default 10000.")
    batch_tensors_with_same_shape: bool | None = about(
        "Whether alike layers are orthogonalized at once. Default false."
    )


class ExchangeSection(Section):
    """What program 'all_to_all' sends."""

    size: Size | None = about("What one rank sends in all, such as '64 MiB'. Required.")
    splits: Literal["even", "random"] | None = about("Alike for all peers, or drawn anew each step. Default 'even'.")
    skew: Skew | None = about("With random splits: peer k gets a weight of (k + 1) ** -skew. Default 0.")
    dtype: ElementType | None = about("Of the elements. Default 'float32'.")


class CollectiveSection(Section):
    """What program 'collective' calls each step."""

    op: Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"] | None = about(
        "The collective; a broadcast is rank 0's. Required."
    )
    size: Size | None = about("A rank's larger buffer: what all_gather gives out, what the others take. Required.")
    splits: Literal["even", "random"] | None = about("Of an all_to_all, as in `exchange`. Default 'even'.")
    skew: Skew | None = about("With random splits: peer k gets a weight of (k + 1) ** -skew. Default 0.")
    dtype: ElementType | None = about("Of the elements. Default 'float32'.")


class GradientsSection(Section):
    """What program 'powersgd' reduces."""

    model: Literal["resnet50"] | None = about("A known model's parameter shapes, instead of `shapes`.")
    shapes: list[list[Count]] | None = about("Parameter shapes in the order of the forward pass.")
    forward_flops: Flops | None = about("A rank's forward pass, before the backward pass. Default '0 FLOP'.")
    backward_flops: Flops | None = about("A rank's backward pass, such as '250 GFLOP'. Default '0 FLOP'.")
    dtype: Literal["float32", "float64", "bfloat16", "float16"] | None = about("Of gradients. Default 'float32'.")
