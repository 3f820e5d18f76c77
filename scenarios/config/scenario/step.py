"""How a step's gradients and embeddings travel, and which stages overlap with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


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


PipelineKind = Literal["none", "base", "sparse_dist", "prefetch_sparse_dist", "semi_sync"]
StageName = Literal["copy", "exchange", "fill", "look_up"]
Ahead = tuple[tuple[StageName, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """What is done with batches that are so many ahead of the one that is trained on, in the order of issue.

    Stages begin `before` its forward pass, or `between` that and the backward pass.
    """

    before: Ahead = ()
    between: Ahead = ()

    def ahead(self, name: StageName) -> int:
        """How many batches ahead this stage is; 0 if there is none."""
        return dict((*self.before, *self.between)).get(name, 0)


# TorchRec's pipelines issue in this order.
STAGES: Mapping[PipelineKind, Stages] = {
    "none": Stages(before=(("copy", 0),)),
    "base": Stages(between=(("copy", 1),)),  # issued behind the backward pass, when the GPU has hardly begun it
    "sparse_dist": Stages(before=(("exchange", 1), ("copy", 2))),
    "prefetch_sparse_dist": Stages(before=(("exchange", 2), ("fill", 1), ("copy", 3))),
    "semi_sync": Stages(before=(("exchange", 2),), between=(("copy", 3), ("look_up", 1))),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Which stages overlap with the step.

    "base": the next batch's copy to the GPU. "sparse_dist": the next batch's input exchange. "prefetch_sparse_dist":
    that of the one after next, and rows that the next batch misses in caches are fetched. "semi_sync": the same
    exchange, and the next batch's rows are looked up before this one updates them.

    In the `order` "eager" a step waits for the exchanges of rows and of their gradients where a model calls TorchRec's
    modules; "overlapped": where it uses what they give. `accumulation` micro-batches make a step: replicated parameters
    are reduced and updated once, sharded tables at each backward pass.
    """

    kind: PipelineKind = "none"
    order: Literal["eager", "overlapped"] = "eager"
    accumulation: int = 1

    @property
    def exchanged_ahead(self) -> int:
        """How many batches' ids are at the ranks that look them up, besides those of the one that is trained on."""
        return STAGES[self.kind].ahead("exchange")

    @property
    def copied_ahead(self) -> int:
        """How many batches are on the GPU besides that, where they are copied there."""
        return STAGES[self.kind].ahead("copy")

    @property
    def depth(self) -> int:
        """Return the largest number of batches in the stages beside the one that is trained on."""
        stages = STAGES[self.kind]
        return max((ahead for _, ahead in (*stages.before, *stages.between)), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """How a rank comes by its batches: `copies` from the host's memory to its GPU, at most `samples_per_s` of a loader.

    The loader works on as many batches as `prefetch` ahead of the step. None: it is never waited for.
    """

    copies: bool = False
    samples_per_s: float | None = None
    prefetch: int = 1

    def held_batches(self, batches: int) -> int:
        """Return how many batches a loader holds ahead at most, in a run that trains on so many; 0 without a loader."""
        return 0 if self.samples_per_s is None else min(self.prefetch, batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """2D parallelism as TorchRec's DMPCollection: a sharding group of `sharding_group_size` ranks holds all tables.

    The replicas of a shard are averaged after every `sync_every`-th step. They are on ranks that follow each other, or
    with `inter_host_allreduce` the sharding groups are. `node_group_size` ranks of one count as a host.
    """

    sharding_group_size: int
    node_group_size: int
    sync_every: int = 1
    inter_host_allreduce: bool = False

    def sharding_groups(self, world_size: int) -> tuple[range, ...]:
        """The global ranks of each, in the order of the shards' places."""
        size, count = self.sharding_group_size, world_size // self.sharding_group_size
        if self.inter_host_allreduce:
            return tuple(range(first, first + size) for first in range(0, world_size, size))
        return tuple(range(first, world_size, count) for first in range(count))

    def syncs_after(self, step: int) -> bool:
        """Whether replicas are averaged at the end of this step, from 0."""
        return (step + 1) % self.sync_every == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseParallel:
    """How ranks share a module's parameters: "ddp": each has all; "fsdp": they are sharded over all ranks, as torch's
    fully_shard does it; "hsdp": over `shard_group_size` ranks that follow each other (0: those of a host), and groups
    hold replicas.

    `units` are the submodules whose parameters are gathered together; None: each child that has any. They are sharded
    again after the forward pass, but for the root's, where `reshard_after_forward` is None.
    `reduce_every_micro_batch`: or gradients add up unsharded and are reduced after the last.
    """

    kind: Literal["ddp", "fsdp", "hsdp"] = "ddp"
    units: tuple[str, ...] | None = None
    reshard_after_forward: bool | None = None
    reduce_every_micro_batch: bool = True
    shard_group_size: int = 0

    @property
    def shards(self) -> bool:
        """Whether parameters are sharded at all."""
        return self.kind != "ddp"

    def shard_ranks(self, world_size: int, local_world_size: int) -> int:
        """The ranks that hold all parameters together."""
        return {"ddp": 1, "fsdp": world_size, "hsdp": self.shard_group_size or local_world_size}[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launching:
    """How kernels are launched on GPUs, which only predictions heed; and whether gradients are reduced in one call.

    `grouped_all_reduce`: those of the dense part and of data_parallel tables, once all are there; also in real runs.
    """

    cuda_graphs: bool = False
    fusion: bool = False
    grouped_all_reduce: bool = False


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
