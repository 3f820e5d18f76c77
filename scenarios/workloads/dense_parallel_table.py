"""The table `dense_parallel`: how ranks share a model's dense part, with the words of torch's fully_shard; no torch."""

from __future__ import annotations

from typing import Literal

from scenarios.config.scenario import DenseParallel
from scenarios.config.toml.look import Look
from scenarios.config.toml.program_spec import Table
from scenarios.config.toml.section import Section, about, given
from scenarios.config.toml.sections import Document
from scenarios.config.toml.values import Machines, Text
from scenarios.workloads.gradient_tables import COMPRESSION
from scenarios.workloads.step_tables import LAUNCHING, PIPELINE


class DenseParallelSection(Section):
    """How ranks share the dense part, for program 'dlrm'."""

    kind: Literal["ddp", "fsdp", "hsdp"] | None = about(
        "'ddp': each rank has a copy; 'fsdp': its parameters, gradients and optimizer state are sharded over all ranks,"
        " as torch's fully_shard does it, and buckets mean nothing; 'hsdp': over groups of ranks, which hold replicas."
        " Default 'ddp'."
    )
    units: list[Text] | None = about(
        "Submodules whose parameters are gathered together, such as 'top'; what is in none of them is one unit more."
        " Default: each child of the dense part that has parameters."
    )
    reshard_after_forward: bool | None = about(
        "Whether parameters are sharded again after the forward pass, and gathered anew for the backward pass. Default"
        " true, but for those in no unit."
    )
    reduce_every_micro_batch: bool | None = about(
        "Whether gradients are reduced after each micro-batch; else they add up unsharded, and are reduced after the"
        " last. Default true."
    )
    shard_group_size: Machines | None = about(
        "Ranks of 'hsdp' that hold all parameters together, and follow each other. Default: cluster.gpus_per_host."
    )


def _check(section: DenseParallelSection, document: Document, look: Look) -> None:
    path = ("dense_parallel",)
    if section.kind in (None, "ddp"):
        keys = ("units", "reshard_after_forward", "reduce_every_micro_batch", "shard_group_size")
        look.refuse(path, section, keys, "but with kind = 'fsdp' or 'hsdp'")
        return
    reason = f"with dense_parallel.kind = '{section.kind}'"
    pipeline, compression = PIPELINE.of(document), COMPRESSION.of(document)
    if pipeline is None or pipeline.accumulation in (None, 1):
        look.refuse(
            path, section, ("reduce_every_micro_batch",), "but with several micro-batches, pipeline.accumulation"
        )
    if compression is not None and compression.kind not in (None, "none"):
        look.mistakes.add(("compression", "kind"), f"'none' {reason}: only DDP's gradient buckets are compressed")
    launching = LAUNCHING.of(document)
    if launching is not None and launching.grouped_all_reduce:
        look.mistakes.add(("launching", "grouped_all_reduce"), f"false {reason}: gradients of shards are scattered")
    if len(set(section.units or ())) < len(section.units or ()):
        look.mistakes.add((*path, "units"), "each submodule once")
    if section.kind != "hsdp":
        look.refuse(path, section, ("shard_group_size",), "but with kind = 'hsdp'")
    else:
        _check_group(section, document, look)


def _check_group(section: DenseParallelSection, document: Document, look: Look) -> None:
    cluster = document.cluster
    if cluster is None or cluster.hosts is None or cluster.gpus_per_host is None:
        return
    ranks, size = cluster.hosts * cluster.gpus_per_host, section.shard_group_size or cluster.gpus_per_host
    key, phrase = ("dense_parallel", "shard_group_size"), f"a divisor of the cluster's {ranks} ranks, and less"
    if ranks % size or size == ranks:
        if section.shard_group_size is not None:
            look.mistakes.add(key, phrase)
        elif look.mistakes.sound(key):
            look.mistakes.missing(key, f"{phrase}, because cluster.gpus_per_host = {size} is all of them")


DENSE_PARALLEL = Table(
    key="dense_parallel",
    section=DenseParallelSection,
    about="How ranks share the dense part. Default: each has a copy.",
    check=_check,
)


def build_dense_parallel(document: Document) -> DenseParallel:
    """The scenario's `dense_parallel`."""
    section = DENSE_PARALLEL.of(document)
    keys = given(section, "kind", "reshard_after_forward", "reduce_every_micro_batch", "shard_group_size")
    units = None if section is None or section.units is None else tuple(section.units)
    return DenseParallel(**keys, units=units)


def why_each_shard(document: Document) -> str:
    """Why every rank must be simulated; "" if one host of each class will do."""
    section, cluster = DENSE_PARALLEL.of(document), document.cluster
    size = None if section is None else section.shard_group_size
    if size is None or cluster is None or size == cluster.gpus_per_host:
        return ""
    return f"dense_parallel.shard_group_size = {size}"
