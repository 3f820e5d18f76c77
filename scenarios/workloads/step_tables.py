"""The tables `pipeline`, `launching` and `replication`: what a step is made of and how it runs; loads no torch."""

from __future__ import annotations

from typing import Any, Literal

from scenarios.config.scenario import Launching, Pipeline, PipelineKind, Replication
from scenarios.config.toml.look import Look
from scenarios.config.toml.program_spec import Table
from scenarios.config.toml.section import Section, about, given, have
from scenarios.config.toml.sections import Document
from scenarios.config.toml.values import Machines, MicroBatches, Repeats
from scenarios.workloads.gradient_tables import COMPRESSION


class PipelineSection(Section):
    """Which stages overlap with the step, for program 'dlrm'."""

    kind: PipelineKind | None = about(
        "'base': the next batch's copy to the GPU, as TorchRec's TrainPipelineBase does; 'sparse_dist': the next"
        " batch's input exchange, as TrainPipelineSparseDist; 'prefetch_sparse_dist': that of the batch after next, and"
        " rows that the next batch misses in caches, as PrefetchTrainPipelineSparseDist; 'semi_sync': that of the batch"
        " after next, and the next batch's look-ups, which so miss this one's update, as TrainPipelineSemiSync. Default"
        " 'none'."
    )
    order: Literal["eager", "overlapped"] | None = about(
        "'eager': tables are exchanged and looked up where the dense part first uses any, and its backward pass waits"
        " there until their rows are updated, as autograd runs TorchRec's modules; 'overlapped': exchanges go on beside"
        " work that does not depend on them. Default 'eager'."
    )
    accumulation: MicroBatches | None = about(
        "Micro-batches a step, each of run.batch_size samples: gradients of what every rank has a copy of add up, and"
        " are reduced and used once; sharded tables are updated after each. Default 1."
    )


class LaunchingSection(Section):
    """How kernels and all-reduces are launched, for program 'dlrm'; for 'script' cuda_graphs alone."""

    cuda_graphs: bool | None = about(
        "Whether a step is launched as CUDA graphs: no kernel waits for the host. On GPUs, in predictions. Default"
        " false."
    )
    fusion: bool | None = about(
        "Whether elementwise operators become one with what they follow, as torch.compile does it. On GPUs, in"
        " predictions. Default false."
    )
    grouped_all_reduce: bool | None = about(
        "Whether gradients of the dense part and of data_parallel tables are all-reduced in one call once all are"
        " there, as with HugeCTR's grouped_all_reduce. Default false: bucket by bucket, tables by themselves."
    )


class ReplicationSection(Section):
    """2D parallelism, as of TorchRec's DMPCollection, for program 'dlrm'."""

    sharding_group_size: Machines | None = about(
        "Ranks that hold all tables together: a divisor of all ranks, over which replicas are averaged. Required."
    )
    node_group_size: Machines | None = about(
        "How many of these count as a host for table_row_wise, table_column_wise and grid_shard. Default:"
        " cluster.gpus_per_host, or sharding_group_size if that is less."
    )
    sync_every: Repeats | None = about(
        "After how many steps rows of sharded tables, and their optimizer's state, are averaged. Default 1."
    )
    inter_host_allreduce: bool | None = about(
        "Whether sharding groups, and not the replicas of a shard, are on ranks that follow each other. Default false."
    )


def _check_launching(section: LaunchingSection, document: Document, look: Look) -> None:
    kind = getattr(COMPRESSION.of(document), "kind", None)
    if section.grouped_all_reduce and kind not in (None, "none"):
        look.mistakes.add(("launching", "grouped_all_reduce"), f"false with compression.kind = '{kind}'")


def _check_replication(section: ReplicationSection, document: Document, look: Look) -> None:
    look.need(("replication",), section, "sharding_group_size")
    size, cluster, mistakes = section.sharding_group_size, document.cluster, look.mistakes
    if size is None or cluster is None or cluster.hosts is None or cluster.gpus_per_host is None:
        return
    ranks = cluster.hosts * cluster.gpus_per_host
    if ranks % size:
        mistakes.add(("replication", "sharding_group_size"), f"a divisor of the cluster's {ranks} ranks")
        return
    node, key = node_group_size(section, cluster.gpus_per_host), ("replication", "node_group_size")
    phrase = f"a divisor of sharding_group_size = {size}"
    if size % node and section.node_group_size is not None:
        mistakes.add(key, phrase)
    elif size % node and mistakes.sound(key):
        mistakes.missing(key, f"{phrase}, because cluster.gpus_per_host = {node} is none")


def node_group_size(section: ReplicationSection, gpus_per_host: int) -> int:
    """Ranks of a sharding group that count as one host."""
    return section.node_group_size or min(gpus_per_host, have(section.sharding_group_size))


PIPELINE = Table(
    key="pipeline",
    section=PipelineSection,
    about="Which stages overlap with the step. Default: as eager PyTorch does it.",
)
LAUNCHING = Table(
    key="launching",
    section=LaunchingSection,
    about="How kernels are launched. Default: one by one.",
    check=_check_launching,
)
REPLICATION = Table(
    key="replication",
    section=ReplicationSection,
    about="2D parallelism: groups of ranks that each hold all tables. Default: all ranks hold them together.",
    check=_check_replication,
)


def sharding_shape(document: Document) -> tuple[int | None, int | None]:
    """The ranks over which tables are sharded, and how many of them count as one host; None where that is not known."""
    cluster, section = document.cluster, REPLICATION.of(document)
    gpus, hosts = (None, None) if cluster is None else (cluster.gpus_per_host, cluster.hosts)
    if section is None:
        return (None if gpus is None or hosts is None else gpus * hosts), gpus
    size = section.sharding_group_size
    return size, None if size is None or gpus is None else node_group_size(section, gpus)


def build_step(document: Document) -> dict[str, Any]:
    """The scenario's `pipeline`, `launching` and `replication`."""
    section = REPLICATION.of(document)
    replication = None
    if section is not None:
        keys = given(section, "sharding_group_size", "sync_every", "inter_host_allreduce")
        node = node_group_size(section, have(have(document.cluster).gpus_per_host))
        replication = Replication(**keys, node_group_size=node)
    return {
        "replication": replication,
        "pipeline": Pipeline(**given(PIPELINE.of(document), "kind", "order", "accumulation")),
        "launching": Launching(**given(LAUNCHING.of(document), *LaunchingSection.model_fields)),
    }
