"""How a step's gradients and embeddings travel, and which stages of other batches overlap with the step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from scenarios.config.keys import LATER, Key, OnlyWith
from scenarios.config.toml.values import (
    Count,
    CountOrZero,
    Machines,
    MicroBatches,
    NotNegative,
    Positive,
    Repeats,
    SamplesRate,
    Seed32,
    Size,
    Text,
    Width,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """Gradient buckets as in DDP, for programs 'dlrm' and 'powersgd' and recorded scripts."""

    first_bytes: Annotated[
        Size,
        "Maximal size of the first bucket. Default '1 MiB', with program 'dlrm' `cap`; source: torch's"
        " DDP, TorchRec's DistributedModelParallel.",
    ] = 1 << 20
    cap_bytes: Annotated[Size, "Maximal size of all other buckets. Default '25 MiB'; source: as `first`."] = 25 << 20


LEAST_POWERSGD_START = 2  # the minimum if state is carried from step to step


@dataclass(frozen=True, slots=True, kw_only=True)
class Compression:
    """Gradient compression with PowerSGDState's names, for programs 'dlrm' and 'powersgd' and recorded scripts."""

    kind: Annotated[
        Literal["none", "batched_powersgd", "layerwise_powersgd"],
        "Compression hook; 'none' ignores all other options. Default 'none'.",
    ] = "none"
    matrix_approximation_rank: Annotated[Width, "Rank of the low-rank approximation. Default 1."] = 1
    start_powerSGD_iter: Annotated[
        CountOrZero,
        "Number of steps with plain all-reduce before compression starts; at least 2 with error feedback or warm"
        " start. Default 1000; source: torch 2.13's PowerSGDState.",
    ] = 1000
    min_compression_rate: Annotated[
        Positive,
        "Layers whose compression rate would be lower are not compressed. Default 2; source: torch 2.13's"
        " PowerSGDState.",
    ] = 2.0
    use_error_feedback: Annotated[
        bool, "Whether the error of the compression is added to the next gradient. Default true."
    ] = True
    warm_start: Annotated[bool, "Whether Q of the last step is the start of the next one. Default true."] = True
    orthogonalization_epsilon: Annotated[
        NotNegative, "Number added to norms to avoid divisions by zero. Default 0."
    ] = 0.0
    random_seed: Annotated[Seed32, "Seed of the initial Q, equal on all ranks. Default 0."] = 0
    compression_stats_logging_frequency: Annotated[
        Count, "Number of steps between two logged statistics. Default 10000; source: torch 2.13's PowerSGDState."
    ] = 10_000
    batch_tensors_with_same_shape: Annotated[
        bool, "Whether layers of equal shape are orthogonalized together. Default false."
    ] = False


PipelineKind = Literal["none", "base", "sparse_dist", "prefetch_sparse_dist", "semi_sync"]
StageName = Literal["copy", "exchange", "fill", "look_up"]
Ahead = tuple[tuple[StageName, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """The stages of a pipeline, each with the number of batches that it is ahead of the trained one, in issue order.

    Stages begin `before` the trained batch's forward pass, or `between` that and its backward pass.
    """

    before: Ahead = ()
    between: Ahead = ()

    def ahead(self, name: StageName) -> int:
        """Return how many batches ahead a stage is; 0 if the pipeline lacks it."""
        return dict((*self.before, *self.between)).get(name, 0)


# Issue order of TorchRec's pipelines.
STAGES: Mapping[PipelineKind, Stages] = {
    "none": Stages(before=(("copy", 0),)),
    "base": Stages(between=(("copy", 1),)),  # issued behind the backward pass, when the GPU has hardly begun that pass
    "sparse_dist": Stages(before=(("exchange", 1), ("copy", 2))),
    "prefetch_sparse_dist": Stages(before=(("exchange", 2), ("fill", 1), ("copy", 3))),
    "semi_sync": Stages(before=(("exchange", 2),), between=(("copy", 3), ("look_up", 1))),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Stages of other batches that overlap with the step, for program 'dlrm'."""

    kind: Annotated[
        PipelineKind,
        "Stages that overlap with the step, as in TorchRec's pipelines. 'base' (TrainPipelineBase): copy of the"
        " next batch to the GPU; 'sparse_dist' (TrainPipelineSparseDist): input exchange of the next batch;"
        " 'prefetch_sparse_dist' (PrefetchTrainPipelineSparseDist): input exchange of the batch after next, and"
        " rows of the next batch that caches lack; 'semi_sync' (TrainPipelineSemiSync): input exchange of the"
        " batch after next, and lookups of the next batch, which miss this step's update. Default 'none'.",
    ] = "none"
    order: Annotated[
        Literal["eager", "overlapped"],
        "'eager': ids are exchanged and rows looked up where the dense part first uses an embedding, and the"
        " backward pass waits there until rows are updated, as autograd runs TorchRec's modules; 'overlapped':"
        " exchanges overlap with work that does not depend on them. Default 'eager'.",
    ] = "eager"
    accumulation: Annotated[
        MicroBatches,
        "Micro-batches per step, each of run.batch_size samples. Gradients of replicated parameters accumulate"
        " and are reduced once; sharded tables are updated after each micro-batch. Default 1.",
    ] = 1
    enqueue_batch_after_forward: Annotated[
        bool,
        "Whether 'sparse_dist' copies a batch to the GPU after the forward pass, not before: then copies and lookups"
        " in the host's memory do not share PCIe. TrainPipelineSparseDist's option. Default false.",
        OnlyWith(kind=("sparse_dist",)),
    ] = field(default=False, metadata=LATER)

    @property
    def stages(self) -> Stages:
        """The stages in which later batches are."""
        stages = STAGES[self.kind]
        if not self.enqueue_batch_after_forward:
            return stages
        copies = tuple(one for one in stages.before if one[0] == "copy")
        others = tuple(one for one in stages.before if one[0] != "copy")
        return Stages(before=others, between=(*copies, *stages.between))

    @property
    def exchanged_ahead(self) -> int:
        """The number of batches, besides the trained one, whose ids are already at the ranks that look them up."""
        return self.stages.ahead("exchange")

    @property
    def copied_ahead(self) -> int:
        """The number of batches, besides the trained one, that are already on the GPU, if batches are copied there."""
        return self.stages.ahead("copy")

    @property
    def depth(self) -> int:
        """The largest number of batches in the stages besides the trained one."""
        return max((ahead for _, ahead in (*self.stages.before, *self.stages.between)), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """How batches reach a rank, for program 'dlrm'.

    The rate is that of a rank, which has one loader. None: a step never waits for the loader.
    """

    file_keys: ClassVar[tuple[Key, ...]] = (
        Key(
            "per",
            "Owner of the rate: each rank, or each host, whose ranks get equal parts. Default 'rank'.",
            accepts=Literal["rank", "host"],
            after="samples_per_s",
        ),
    )
    copies: Annotated[
        bool,
        "Whether each batch is copied from pinned host memory to the GPU; CPUs need no copy. Default false:"
        " batches are on the GPU.",
    ] = False
    samples_per_s: Annotated[
        SamplesRate | None,
        "Samples per second that the data loader delivers; steps wait for it. Default: steps never wait for the"
        " loader.",
    ] = None
    prefetch: Annotated[
        MicroBatches,
        "Batches that the loader may be ahead of the trained one, which evens out steps of different lengths."
        " Default 1.",
    ] = 1

    def held_batches(self, batches: int) -> int:
        """Return the most batches that a loader holds ahead in a run that trains on `batches`; 0 without a loader."""
        return 0 if self.samples_per_s is None else min(self.prefetch, batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """2D parallelism as in TorchRec's DMPCollection, for program 'dlrm'.

    Consecutive ranks hold replicas of a shard, or form sharding groups with `inter_host_allreduce`.
    """

    sharding_group_size: Annotated[
        Machines,
        "Number of ranks that hold all tables together, a divisor of the number of all ranks. Replicas are"
        " averaged over the groups. Required.",
    ]
    node_group_size: Annotated[
        Machines,
        "Number of these ranks that count as a host for table_row_wise, table_column_wise and grid_shard."
        " Default: cluster.gpus_per_host, or sharding_group_size if that is less.",
    ]
    sync_every: Annotated[
        Repeats, "Number of steps after which rows of sharded tables and their optimizer state are averaged. Default 1."
    ] = 1
    inter_host_allreduce: Annotated[
        bool,
        "Whether consecutive ranks form sharding groups (true), or hold the replicas of a shard (false). Default"
        " false.",
    ] = False

    def sharding_groups(self, world_size: int) -> tuple[range, ...]:
        """Return the global ranks of each sharding group, in the order of the shards' places."""
        size, count = self.sharding_group_size, world_size // self.sharding_group_size
        if self.inter_host_allreduce:
            return tuple(range(first, first + size) for first in range(0, world_size, size))
        return tuple(range(first, world_size, count) for first in range(count))

    def syncs_after(self, step: int) -> bool:
        """Return whether replicas are averaged at the end of `step`, counted from 0."""
        return (step + 1) % self.sync_every == 0


_SHARDS = OnlyWith(kind=("fsdp", "hsdp"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseParallel:
    """How ranks share the dense part, for program 'dlrm'.

    If `reshard_after_forward` is None, parameters of all `units` but the root are sharded again. A `shard_group_size`
    of 0 stands for the ranks of a host.
    """

    kind: Annotated[
        Literal["ddp", "fsdp", "hsdp"],
        "'ddp': each rank has a copy; 'fsdp': parameters, gradients and optimizer state are sharded over all"
        " ranks, as torch's fully_shard does, and `buckets` has no effect; 'hsdp': sharded over groups of ranks,"
        " and the groups are replicas. Default 'ddp'.",
    ] = "ddp"
    units: Annotated[
        tuple[Text, ...] | None,
        "Submodules whose parameters are gathered together, such as 'top'. Parameters in no submodule of the list"
        " form one more unit. Default: each child of the dense part that has parameters.",
        _SHARDS,
    ] = None
    reshard_after_forward: Annotated[
        bool | None,
        "Whether parameters are resharded after the forward pass and gathered again for the backward pass."
        " Default true, except for parameters in no unit.",
        _SHARDS,
    ] = None
    reduce_every_micro_batch: Annotated[
        bool,
        "Whether gradients are reduced after each micro-batch. If false, they accumulate unsharded and are"
        " reduced after the last one. Default true.",
        _SHARDS,
    ] = True
    shard_group_size: Annotated[
        Machines,
        "With 'hsdp': number of consecutive ranks that hold all parameters together. Default: cluster.gpus_per_host.",
        _SHARDS,
    ] = 0

    @property
    def shards(self) -> bool:
        """Whether parameters are sharded at all."""
        return self.kind != "ddp"

    def shard_ranks(self, world_size: int, local_world_size: int) -> int:
        """Return the number of ranks that hold all parameters together."""
        return {"ddp": 1, "fsdp": world_size, "hsdp": self.shard_group_size or local_world_size}[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launching:
    """How kernels and all-reduces are launched, for program 'dlrm'. Program 'script' has only cuda_graphs."""

    cuda_graphs: Annotated[
        bool,
        "Whether a step is launched as CUDA graphs, so no kernel waits for the host. Only for predictions on"
        " GPUs. Default false.",
    ] = False
    fusion: Annotated[
        bool | Literal["epilogues"],
        "Whether elementwise operators and sums over rows are fused with each other, as torch.compile does."
        " 'epilogues': also with the matrix product before them, and nothing is recomputed, as in HugeCTR. Only for"
        " predictions on GPUs. Default false.",
    ] = False
    grouped_all_reduce: Annotated[
        bool,
        "Whether gradients of the dense part and of data_parallel tables are all-reduced in one call after the"
        " backward pass, like HugeCTR's grouped_all_reduce. Default false: bucket by bucket, tables separately.",
    ] = False


_BACKWARD_FP8 = OnlyWith(backward_precision=("fp8",))
CommPrecision = Literal["fp32", "fp16", "bf16", "fp8", "int8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QComms:
    """Quantization of embedding exchanges, with the names of QCommsConfig, for program 'dlrm'."""

    forward_precision: Annotated[
        CommPrecision,
        "Precision in which pooled rows and sequences are sent. Reduce-scatters send 'fp16' instead of 'fp8' and"
        " do not support 'int8'. Default 'fp32'.",
    ] = "fp32"
    backward_precision: Annotated[
        CommPrecision,
        "Precision in which gradients of these rows are sent. All-gathers, which are the backward of"
        " reduce-scatters, send 'bf16' instead of 'fp8' and do not support 'int8'. Default 'fp32'.",
    ] = "fp32"
    forward_loss_scale: Annotated[
        Positive | None,
        "Factor by which rows are multiplied before conversion to 'fp16' or 'bf16', and divided after it."
        " Default: none.",
    ] = None
    backward_loss_scale: Annotated[
        Positive | None,
        "Factor by which gradients are multiplied before conversion to 'fp16' or 'bf16', and divided after it."
        " Default: none.",
    ] = None
    fp8_quantize_dim: Annotated[
        Width | None,
        "Number of elements that share a scale in 'fp8', a multiple of 4. Required by forward_precision = 'fp8'.",
    ] = None
    fp8_quantize_dim_bwd: Annotated[
        Width | None,
        "Number of gradient elements that share a scale in 'fp8', a multiple of 4. Default: fp8_quantize_dim.",
        _BACKWARD_FP8,
    ] = None
    fp8_bwd_uses_143: Annotated[
        bool,
        "Whether gradients in 'fp8' have 4 exponent bits (as rows have) instead of 5. Default false.",
        _BACKWARD_FP8,
    ] = False
