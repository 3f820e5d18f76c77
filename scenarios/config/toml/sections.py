"""The shape of a scenario file: its tables, keys and what each accepts; whether they fit each other is for `checks`.

Every key may be absent here, because another file may supply it: `checks` says what is missing in the end. The
descriptions are what editors show and what `docs/scenario.md` prints.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationInfo, model_validator

from scenarios.config.scenario import ShardingType
from scenarios.config.toml.values import (
    Acknowledged,
    AtLeastOne,
    Count,
    CountOrZero,
    Duration,
    Efficient,
    Error,
    Exponent,
    File,
    FlopRate,
    Flops,
    IdsCount,
    IdsMean,
    Latency,
    LearningRate,
    Machines,
    Name,
    NotNegative,
    NvLinks,
    Payload,
    Place,
    Positive,
    Profile,
    Quantiles,
    Rate,
    Repeats,
    Reserve,
    Seed32,
    Size,
    Skew,
    Text,
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


def about(description: str) -> Any:
    """A key that may be absent, and what it means."""
    return Field(default=None, description=description)


class Section(BaseModel):
    """One TOML table. The validation context, a dict, learns which class read which table."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _remember(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, dict) and info.context is not None:
            info.context[id(value)] = cls
        return value


class RunSection(Section):
    """How the steps are played."""

    steps: Repeats | None = about("Training steps to play. Default 3.")
    seed: CountOrZero | None = about("Seed of ids, splits and initial weights. Default 0.")
    batch_size: Repeats | None = about("Samples a rank and step; required by program 'dlrm', of no use to others.")
    payload: Literal["values", "sizes"] | None = about(
        "'values' moves and computes true tensors, 'sizes' only their shapes. Default 'sizes'."
    )
    fidelity: Literal["flows", "links"] | None = about(
        "'flows' simulates each transfer of a collective; 'links' does so in groups of up to 64 ranks, and of larger"
        " ones more coarsely. Default 'flows'."
    )
    ranks: Literal["each", "alike"] | None = about(
        "'each' plays every rank; 'alike' plays one host for all that are expected to have the same to do, with"
        " expected numbers of ids in place of drawn ones. Wants fidelity 'links', payload 'sizes', library 'nccl', and"
        " splits that are not random. Default 'alike' above 256 GPUs where that is given, else 'each'."
    )
    library: Literal["gloo", "nccl"] | None = about(
        "The collectives' library. Default 'nccl' where cluster.gpu.kind is 'cuda', else 'gloo'."
    )
    timeout: Duration | None = about("After how long without progress a real run gives up. Default '60 s'.")
    compute_times: File | None = about(
        "CSV of measured times of computations, which the prediction takes. Relative to this file. Default: none."
    )


class Efficiency(Section):
    """The share of the peak rates that each kind of kernel reaches; 'default' is for those not listed."""

    gemm: Efficient | None = about("Matrix multiplications. Default: that of 'default'.")
    embedding_lookup: Efficient | None = about("Gathering and pooling embedding rows. Default: that of 'default'.")
    embedding_update: Efficient | None = about("Scattering gradients into embedding rows. Default: that of 'default'.")
    bucketize: Efficient | None = about("Sorting ids into the buckets of their shards. Default: that of 'default'.")
    permute: Efficient | None = about("Reordering jagged features. Default: that of 'default'.")
    elementwise: Efficient | None = about("Activations, sums and copies. Default: that of 'default'.")
    reduction: Efficient | None = about("Checksums. Default: that of 'default'.")
    qr: Efficient | None = about("QR in PowerSGD. Default: that of 'default'.")
    optimizer: Efficient | None = about("Updating dense parameters. Default: that of 'default'.")
    default: Efficient | None = about("Every kind of kernel that is not listed. Default 1.")


class Launches(Section):
    """What launching one kernel of each kind costs, where that differs; a calibration writes it."""

    gemm: Latency | None = about("Matrix multiplications. Default: cluster.gpu.launch.")
    embedding_lookup: Latency | None = about("Gathering and pooling embedding rows. Default: cluster.gpu.launch.")
    embedding_update: Latency | None = about("Scattering gradients into rows. Default: cluster.gpu.launch.")
    bucketize: Latency | None = about("Sorting ids into buckets. Default: cluster.gpu.launch.")
    permute: Latency | None = about("Reordering jagged features. Default: cluster.gpu.launch.")
    elementwise: Latency | None = about("Activations, sums and copies. Default: cluster.gpu.launch.")
    reduction: Latency | None = about("Checksums. Default: cluster.gpu.launch.")
    qr: Latency | None = about("QR in PowerSGD. Default: cluster.gpu.launch.")
    optimizer: Latency | None = about("Updating dense parameters. Default: cluster.gpu.launch.")


class Ramps(Section):
    """What one kernel of each kind takes beyond its work: so small ones have a smaller efficiency."""

    gemm: Latency | None = about("Matrix multiplications. Default: cluster.gpu.ramp.")
    embedding_lookup: Latency | None = about("Gathering and pooling embedding rows. Default: cluster.gpu.ramp.")
    embedding_update: Latency | None = about("Scattering gradients into rows. Default: cluster.gpu.ramp.")
    bucketize: Latency | None = about("Sorting ids into buckets. Default: cluster.gpu.ramp.")
    permute: Latency | None = about("Reordering jagged features. Default: cluster.gpu.ramp.")
    elementwise: Latency | None = about("Activations, sums and copies. Default: cluster.gpu.ramp.")
    reduction: Latency | None = about("Checksums. Default: cluster.gpu.ramp.")
    qr: Latency | None = about("QR in PowerSGD. Default: cluster.gpu.ramp.")
    optimizer: Latency | None = about("Updating dense parameters. Default: cluster.gpu.ramp.")


class FlopRates(Section):
    """Peak arithmetic by dtype, from the datasheet and without sparsity."""

    float64: FlopRate | None = about("Peak of float64, such as '33.5 TFLOP/s'.")
    float32: FlopRate | None = about("Peak of float32, such as '67 TFLOP/s'; required.")
    bfloat16: FlopRate | None = about("Peak of bfloat16; required where a model computes in it.")
    float16: FlopRate | None = about("Peak of float16; required where a model computes in it.")


class GpuSection(Section):
    """One accelerator, or the CPU process that stands for it."""

    name: Name | None = about("What reports call it. Default: its kind.")
    kind: Literal["cuda", "cpu"] | None = about("'cuda', or 'cpu' for a process on the host's cores. Required.")
    memory: Size | None = about("Memory of one GPU, such as '80 GB'. Required.")
    memory_rate: Rate | None = about("Peak rate of that memory, such as '3.35 TB/s'. Required.")
    launch: Latency | None = about(
        "The host's time to launch one kernel, such as '4 us'; a 'cuda' GPU is at work on earlier ones meanwhile."
        " Default '0 ns'."
    )
    launches: Launches | None = about("What launching costs by kind of kernel. Default: `launch` for all.")
    ramp: Latency | None = about(
        "What one kernel takes beyond its work, until all of the GPU is busy and until its last block is through."
        " Work that takes as long reaches half of `efficiency`. Default '0 ns'."
    )
    ramps: Ramps | None = about("The same by kind of kernel. Default: `ramp` for all.")
    spread: Quantiles | None = about(
        "Quantiles of a kernel's time over its mean, equally far apart, such as [0.8, 1, 1.4]. Default: all are the"
        " mean."
    )
    compute_capability: Literal["7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"] | None = about(
        "NVIDIA's number for the GPU, such as '9.0': NCCL's choices depend on it. Default '9.0'."
    )
    multiprocessors: Count | None = about(
        "Of which each of NCCL's channels takes one from kernels. Default: NCCL takes nothing from them."
    )
    flops: FlopRates | None = about("Peak arithmetic by dtype. Required.")
    efficiency: Efficiency | None = about("The share of both peaks that kernels reach. Default 1 for all.")


class InsideSection(Section):
    """How the GPUs of one host reach each other."""

    kind: Literal["nvlink", "nvlink_mesh", "pcie", "memory"] | None = about(
        "'nvlink': every pair at a GPU's full rate; 'nvlink_mesh': by NVLinks between pairs, without a switch; 'pcie':"
        " also through a shared bridge; 'memory': through host memory that all share. Required."
    )
    rate: Rate | None = about(
        "One GPU's rate in each direction, such as '450 GB/s'; with 'nvlink_mesh' one NVLink's. Required."
    )
    latency: Latency | None = about("One way between two GPUs, such as '1 us'. Required.")
    bridge_rate: Rate | None = about(
        "What all GPUs of the host share, in each direction; required by 'pcie' and 'memory', of no use to 'nvlink'."
        " With 'nvlink_mesh', where some pair has no NVLink: what such pairs share."
    )
    links: list[list[NvLinks]] | None = about(
        "NVLinks between each two GPUs, a row for each GPU, as `nvidia-smi topo -m` prints them: [[0, 2], [2, 0]]. Of"
        " more rows the first gpus_per_host count. Required by 'nvlink_mesh', of no use to others."
    )


class NicSection(Section):
    """The host's network interfaces."""

    per: Literal["gpu", "host"] | None = about("'gpu': one for each GPU; 'host': `count` for all of them. Required.")
    count: Machines | None = about("Interfaces a host; required with per = 'host', else one for each GPU.")
    rate: Rate | None = about("Rate of one interface in each direction, such as '400 Gbit/s'. Required.")
    latency: Latency | None = about("What crossing one interface takes, such as '1 us'. Required.")
    burst: Size | None = about(
        "What a shaper (tc tbf) on a link of the network lets pass at once after a pause, such as '16 KiB'."
    )
    connection_rate: Rate | None = about(
        "What one TCP connection carries at most, such as '5 Gbit/s'; NCCL opens several. Default: the links' rate."
    )
    window: Size | None = about(
        "What a TCP connection has on its way at most, such as '2.5 MB'; NCCL opens several. Default: no limit."
    )
    initial_window: Size | None = about(
        "What a TCP connection sends before anything is acknowledged, such as '14600 B', and twice as much in each"
        " round trip that follows. Default: no slow start."
    )


class NetworkSection(Section):
    """What joins the hosts."""

    kind: Literal["non_blocking", "leaf_spine"] | None = about(
        "'non_blocking': one ideal switch; 'leaf_spine': uplinks may be too narrow. Default 'non_blocking'."
    )
    latency: Latency | None = about("What crossing one switch takes. Default '0 ns'.")
    hosts_per_leaf: Machines | None = about(
        "Hosts on one leaf; the last leaf may have fewer. Required by 'leaf_spine'."
    )
    oversubscription: AtLeastOne | None = about(
        "A leaf's host rates over its uplink rates; 1 is enough for all. Only for 'leaf_spine'. Default 1."
    )


class TcpSection(Section):
    """What TCP and gloo's threads cost on the hosts, and how much waits where; a calibration writes it."""

    queue: Size | None = about("Bytes of one connection in the queue of its interface, such as '128 KiB'. Required.")
    send_buffer: Size | None = about("Bytes that a socket takes beyond what was acknowledged. Required.")
    acknowledgements: Acknowledged | None = about("Bytes that go back for each byte of payload. Required.")
    send_rate: Rate | None = about("What one core writes to sockets, such as '2 GB/s'. Required.")
    receive_rate: Rate | None = about("What one core reads from sockets, such as '1.5 GB/s'. Required.")
    message: Latency | None = about(
        "A core's time to read a message beside its bytes, or to go on after a wait, such as '5 us'. Required."
    )
    post: Latency | None = about("A core's time to write a message beside its bytes, such as '5 us'. Required.")
    issue: Latency | None = about("A core's time before an operation begins to send, such as '15 us'. Required.")
    wake: Latency | None = about("Until a sleeping thread runs on an idle core, in the mean: '30 us'. Required.")
    wake_spread: Quantiles | None = about(
        "Quantiles of that time over its mean, equally far apart, such as [0.6, 1, 4]. Default: all are the mean."
    )
    issue_spread: Quantiles | None = about("The same of `issue`. Default: all are the mean.")
    nap: Latency | None = about("A core that has been idle for less wakes up sooner. Default 0: none does.")
    wake_soon: Latency | None = about("Until a sleeping thread runs on such a core. Default 0.")
    verb: Latency | None = about("A core's time for a computation beside its kernel, such as '80 us'. Default 0.")
    cold: Latency | None = about("Added to `issue` after a computation of the same step. Default 0.")
    spin: Latency | None = about("How long a thread spins at most on a lock whose owner waits for a core. Default 0.")
    spin_share: Acknowledged | None = about(
        "How many of the messages are held up so that are posted while their group's are served and cores are short."
        " Default 0."
    )
    stay_share: Acknowledged | None = about(
        "How often a thread whose core is taken does not move to an idle one. Default 0."
    )


class SlowSection(Section):
    """A GPU, a NIC or a leaf that a fault makes slower than its like; neither planner nor library knows of it."""

    host: Place | None = about("Whose GPU or NIC; the first is 0. Required, except with `leaf`.")
    gpu: Place | None = about("Which GPU of the host: its kernels take longer, their launches do not.")
    nic: Place | None = about("Which interface of the host, in both directions.")
    leaf: Place | None = about("Which leaf, by its uplinks in both directions. Only for 'leaf_spine'.")
    speed: Efficient | None = about("The share of its rates that it reaches, such as 0.5. Required.")


class ClusterSection(Section):
    """Hosts that are alike, but for what is slow."""

    profile: Profile | None = about("A ready profile by name, or a path that ends in .toml. Default: none.")
    hosts: Machines | None = about("How many machines. Required.")
    gpus_per_host: Machines | None = about("GPUs, and thus ranks, on each. Required.")
    cores: Machines | None = about("CPU cores of one host. Required.")
    hosts_share_cores: bool | None = about(
        "Whether the hosts are emulated on one machine, whose cores they share. Default false."
    )
    host_memory: Size | None = about("Memory of one host, such as '2 TiB'. Required.")
    payload_share: Payload | None = about("The part of a network link's rate that headers leave to payload. Default 1.")
    nccl_efficiency: Efficient | None = about("What NCCL's pipelines reach of what all links carry. Default 1.")
    nccl_start: Latency | None = about(
        "What NCCL's collectives take at most to get going, beyond its own latencies; a tree over nodes has levels"
        " instead. Default '32 us'."
    )
    nccl_floor: Latency | None = about("What NCCL's collectives take at least, however small. Default '0 ns'.")
    nccl_sockets: Count | None = about("TCP connections that NCCL has for each pair of ranks. Default 1.")
    nccl_p2p_share: Efficient | None = about(
        "What NCCL's point-to-point exchanges reach of what it counts an NVLink for. Default 0.88."
    )
    core_rate: Rate | None = about(
        "What a core reads and writes of host memory where gloo adds for GPUs, such as '3 GB/s'. Default: no limit."
    )
    gpu: GpuSection | None = about("The accelerator. Required.")
    inside: InsideSection | None = about("Links between the GPUs of a host. Required.")
    nic: NicSection | None = about("The host's network interfaces. Required.")
    network: NetworkSection | None = about("What joins the hosts. Default: one ideal switch.")
    tcp: TcpSection | None = about("The hosts' side of gloo's messages. Default: it costs nothing.")
    slow: list[SlowSection] | None = about("Parts that are slower than their like, each one once. Default: none.")


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


class MeasuredGroup(Section):
    """One group of parameters: how far the model with them is off what was measured, relative to that."""

    name: Text | None = about("What they describe: a kind of kernel, or of link. Required.")
    median_error: Error | None = about("The median of predicted over measured, less 1. Required.")
    typical_error: Error | None = about("The median of the errors without their signs. Required.")
    worst_error: Error | None = about("That of the measurement which the model misses most. Required.")
    spread: Error | None = about(
        "Interquartile range of a measurement's repeats over their median, in the median. Default: not known."
    )
    least: Size | None = about("The smallest size measured; what is smaller is extrapolated. Required.")
    most: Size | None = about("The largest size measured; what is larger is extrapolated. Required.")


class MeasuredSection(Section):
    """Where a profile's figures come from; allowed in profiles only, and without influence on what they predict."""

    machine: Text | None = about("The machine's name. Required.")
    cpu: Text | None = about("Its processor. Default: not known.")
    kernel: Text | None = about("Its operating system's kernel. Default: not known.")
    python: Text | None = about("Version of Python. Default: not known.")
    torch: Text | None = about("Version of PyTorch. Default: not known.")
    date: Text | None = about("When: an ISO time. Required.")
    command: Text | None = about("What repeats it. Required.")
    ranks: Machines | None = about("Ranks that took part. Required.")
    duration: Duration | None = about("How long it took. Default: not known.")
    groups: list[MeasuredGroup] | None = about("Groups of parameters, and how good they are. Default: none.")


class Document(Section):
    """A scenario of Twinstep: the cluster, the workload, and how a step is played."""

    name: Name | None = about("What reports call it. Default: the file's name without .toml.")
    description: Text | None = about("A line for lists of scenarios and profiles.")
    include: File | list[File] | None = about("Files that supply what this one leaves out; later ones before earlier.")
    measured: MeasuredSection | None = about("Where a profile's figures come from. Only in profiles.")
    program: Literal["dlrm", "all_to_all", "collective", "powersgd"] | None = about(
        "'dlrm': a training step; 'all_to_all': an exchange alone; 'collective': any collective alone; 'powersgd':"
        " gradient compression alone. Required."
    )
    run: RunSection | None = about("Steps, seed, batch and what plays them. Default: all its defaults.")
    cluster: ClusterSection | None = about("The machines. Required.")
    model: ModelSection | None = about("The recommender. Required by program 'dlrm'.")
    sharding: ShardingSection | None = about("What the planner may do. Default: all its defaults.")
    buckets: BucketsSection | None = about("Sizes of gradient buckets. Default: those of DDP.")
    compression: CompressionSection | None = about("How gradients are compressed. Default: not at all.")
    exchange: ExchangeSection | None = about("The exchange. Required by program 'all_to_all'.")
    collective: CollectiveSection | None = about("The call. Required by program 'collective'.")
    gradients: GradientsSection | None = about("The gradients. Required by program 'powersgd'.")
