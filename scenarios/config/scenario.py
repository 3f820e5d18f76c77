"""A scenario as frozen values: the cluster, the model, and how the step is played; `load` makes it true once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

from scenarios.config.compute_times import ComputeTimes
from scenarios.config.hardware import Cluster
from scenarios.config.interconnect import LibraryName
from scenarios.config.provenance import Measured
from scenarios.seam.trace import PLAYING

ShardingType = Literal[
    "data_parallel",
    "table_wise",
    "row_wise",
    "table_row_wise",
    "column_wise",
    "table_column_wise",
    "grid_shard",
]
# What TorchRec 1.8 shards an EmbeddingCollection by.
SEQUENCE_TYPES: tuple[ShardingType, ...] = ("data_parallel", "table_wise", "row_wise", "column_wise")

# Where a table's rows lie: in the GPU's memory, in the host's, or there with a cache of some in the GPU's.
LookUpKernel = Literal["fused", "fused_uvm", "fused_uvm_caching"]
# TorchRec 1.8's share of a table's rows that its cache holds.
CACHE_LOAD_FACTOR = 0.2

# Columns of a shard below which TorchRec 1.8 does not cut by default.
MIN_PARTITION = 128

Bag = Literal["pooled", "weighted", "sequence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ids:
    """How a table's ids are drawn.

    "uniform": every row alike. "zipf": the k-th most frequent row with a weight of k ** -exponent, rows shuffled
    unless `order = "by_frequency"` (then id 0 is the most frequent). "file": bags of ids read from `path` in order,
    sample after sample over ranks and steps, from the start again at the end. With `bags = "by_first"` the first id of
    a bag is drawn so, and each of the others is uniform over rows, but always the same for the same first id.
    """

    kind: Literal["uniform", "zipf", "file"] = "uniform"
    exponent: float = 0.0
    order: Literal["shuffled", "by_frequency"] = "shuffled"
    bags: Literal["independent", "by_first"] = "independent"
    path: Path | None = None
    sha256: str = ""  # of the file's content, so that a changed file is a changed scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One embedding table.

    `ids_per_sample` is the bag's length, or its mean where `ids_per_sample_kind` is "poisson".
    `sharding` are the types that the planner may give to this table, `ranks` those on which it is pinned; () is none.
    Shards that are cut by columns have `min_partition` of them at least.
    A bag's rows are summed, where it is `weighted` each times its id's weight; or given one by one, up to `sequence`
    of them, where that is not 0. `kernel` and `cache_load_factor`, the share of rows that its cache holds, are
    TorchRec's; on CPU processes, which have one memory, every table is "fused" (`Scenario.kernel_of`).
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
    kernel: LookUpKernel = "fused"
    cache_load_factor: float = CACHE_LOAD_FACTOR

    @property
    def is_pooled(self) -> bool:
        return not self.sequence

    @property
    def bag(self) -> Bag:
        """What becomes of a bag's rows."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """ "sgd", or "adagrad"; in embedding tables with a float32 for each row, or for each element."""

    kind: Literal["sgd", "adagrad"] = "sgd"
    learning_rate: float = 0.01
    state: Literal["row", "element"] = "row"

    @property
    def has_state(self) -> Literal["none", "row", "element"]:
        """What there is a float32 of in tables."""
        return "none" if self.kind == "sgd" else self.state

    def state_bytes(self, columns: int) -> int:
        """What a row of so many columns has beside its weights."""
        return 0 if self.kind == "sgd" else 4 * (columns if self.state == "element" else 1)


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

    @property
    def bags(self) -> dict[Bag, tuple[Table, ...]]:
        """The tables by what becomes of their bags' rows, in the order in which that first comes."""
        kinds = dict.fromkeys(table.bag for table in self.tables)
        return {kind: tuple(table for table in self.tables if table.bag == kind) for kind in kinds}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """A plan that is taken as it is; `sha256` is of its content, so that a changed plan is a changed scenario."""

    path: Path
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """How GreedyPerfPartitioner places shards. `reserved_share` of a GPU's memory is kept from embedding tables.

    With a `plan` nothing is placed: each table's `sharding` then is the type that the plan gives it.
    """

    sort_by: Literal["storage", "perf"] = "storage"
    balance_modules: bool = False
    reserved_share: float = 0.15
    plan: PlanFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """Gradient buckets as DDP makes them."""

    first_bytes: int = 1 << 20
    cap_bytes: int = 25 << 20


LEAST_POWERSGD_START = 2  # where something is carried from step to step


@dataclass(frozen=True, slots=True, kw_only=True)
class Compression:
    """Gradient compression, with PowerSGDState's own option names and defaults."""

    kind: Literal["none", "batched_powersgd", "layerwise_powersgd"] = "none"
    matrix_approximation_rank: int = 1
    start_powerSGD_iter: int = 1000
    min_compression_rate: float = 2.0
    use_error_feedback: bool = True
    warm_start: bool = True
    orthogonalization_epsilon: float = 0.0
    random_seed: int = 0
    compression_stats_logging_frequency: int = 10_000
    batch_tensors_with_same_shape: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """What goes on beside what. "sparse_dist": the next batch's input exchange beside a step. "prefetch_sparse_dist":
    the one after next's, and rows that the next batch misses in caches are fetched.

    In the `order` "eager" a step waits for the exchanges of rows and of their gradients where a model calls TorchRec's
    modules; "overlapped": where it uses what they give.
    """

    kind: Literal["none", "sparse_dist", "prefetch_sparse_dist"] = "none"
    order: Literal["eager", "overlapped"] = "eager"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launching:
    """How kernels are launched on GPUs; only predictions heed it."""

    cuda_graphs: bool = False
    fusion: bool = False


CommPrecision = Literal["fp32", "fp16", "bf16", "fp8", "int8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QComms:
    """How exchanges of embeddings are quantized, with the option names and defaults of TorchRec's QCommsConfig."""

    forward_precision: CommPrecision = "fp32"
    backward_precision: CommPrecision = "fp32"
    forward_loss_scale: float | None = None
    backward_loss_scale: float | None = None
    fp8_quantize_dim: int | None = None
    fp8_quantize_dim_bwd: int | None = None
    fp8_bwd_uses_143: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What the program `all_to_all` sends: `size_bytes` a rank; "random" splits are drawn anew each step.

    `skew` is the exponent of the peers' shares: 0 is even in expectation; peer k gets a weight of (k+1) ** -skew.
    """

    size_bytes: int
    splits: Literal["even", "random"] = "even"
    skew: float = 0.0
    dtype: str = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """What the program `collective` calls each step; `size_bytes` is a rank's larger buffer.

    `splits` and `skew` are as in `Exchange`.
    """

    op: Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"]
    size_bytes: int
    splits: Literal["even", "random"] = "even"
    skew: float = 0.0
    dtype: str = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """What the program `powersgd` reduces: parameter shapes in the order of the forward pass.

    `forward_flops` and `backward_flops` a step on each rank are spread over the parameters by their number of elements.
    """

    shapes: tuple[tuple[int, ...], ...]
    forward_flops: float = 0.0
    backward_flops: float = 0.0
    dtype: Literal["float32", "float64", "bfloat16", "float16"] = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file of a program of one's own; `name` is relative to the folder of the program's file or package."""

    name: str
    text: str

    @property
    def sha256(self) -> str:
        """Of the text, in UTF-8."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that a run needs. `model` for `dlrm`, and for the others what they are about."""

    name: str
    path: Path
    program: str  # its name, "package.module:factory" or "./file.py:factory"
    cluster: Cluster
    batch_size: int
    steps: int
    seed: int
    payload: Literal["values", "sizes"]
    fidelity: Literal["flows", "links"]
    library: LibraryName
    timeout_s: float
    ranks: Literal["each", "alike"] = "each"
    rests_on: str = ""  # where the figures of its hardware come from
    measured: Measured | None = None  # the same of its profile, if that was calibrated
    chosen: str = ""  # why `ranks` and `fidelity` are what they are, where the file leaves that open
    model: Model | None = None
    planner: Planner = Planner()
    buckets: Buckets = Buckets()
    compression: Compression = Compression()
    pipeline: Pipeline = Pipeline()
    launching: Launching = Launching()
    qcomms: QComms = QComms()
    exchange: Exchange | None = None
    collective: Collective | None = None
    gradients: Gradients | None = None
    options: Any = None  # of a program of one's own: its `Options`, or whatever the table `options` says
    sources: tuple[Source, ...] = ()  # of a program of one's own
    named_in: Path | None = None  # the folder of the file that names the program; None: that of `path`
    compute_times: ComputeTimes | None = None  # in place of rooflines, in predictions only

    def kernel_of(self, table: Table) -> LookUpKernel:
        """Where the table's rows lie on this cluster."""
        return "fused" if self.cluster.host.gpu.kind == "cpu" else table.kernel

    @property
    def uses_host_memory(self) -> bool:
        """Whether GPUs look up rows of some table in their host's memory."""
        return self.model is not None and any(self.kernel_of(table) != "fused" for table in self.model.tables)

    def as_dict(self) -> dict[str, Any]:
        """The scenario as JSON-ready values."""
        plain = _plain(self)
        assert isinstance(plain, dict)
        if plain["options"] is None:
            del plain["options"]  # ours have none
        del plain["chosen"], plain["measured"], plain["named_in"], plain["sources"]
        if self.sources:
            plain["sources"] = {source.name: source.sha256 for source in self.sources}
        return plain

    @property
    def program_folder(self) -> Path:
        """The folder to which the program's file is relative."""
        return self.named_in or self.path.parent

    def digest(self) -> str:
        """A fingerprint of what is computed and sent; what is in `PLAYING`, such as payload, does not change it.

        Neither do faults, so that a faulty cluster can be compared with the cluster without it, and with a real run.
        """
        kept = {key: value for key, value in self.as_dict().items() if key not in PLAYING}
        del kept["cluster"]["faults"]
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(type(value), "model_fields"):  # pydantic's, which ranks need not load
        return {key: _plain(item) for key, item in dict(value).items()}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, (tuple, list, set, frozenset)):
        return [_plain(item) for item in value]
    return value.name if isinstance(value, Path) else value
