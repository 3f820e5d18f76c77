"""The table `dense_parallel`: how ranks share a model's dense part, in the terms of torch's fully_shard; no torch."""

from __future__ import annotations

from typing import Any

from scenarios.config.scenario import DenseParallel
from scenarios.config.toml.look import Look
from scenarios.config.toml.program_spec import ScenarioTable
from scenarios.config.toml.sections import Document
from scenarios.workloads.gradient_tables import COMPRESSION
from scenarios.workloads.step_tables import LAUNCHING, PIPELINE


def _check(section: Any, document: Document, look: Look) -> None:
    path = ("dense_parallel",)
    if section.kind in (None, "ddp"):
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


def _check_group(section: Any, document: Document, look: Look) -> None:
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


DENSE_PARALLEL = ScenarioTable(
    key="dense_parallel",
    values=DenseParallel,
    about="How ranks share the dense part. Default: each rank has a copy.",
    check=_check,
)


def why_each_shard(document: Document) -> str:
    """Return why every rank must be simulated; "" if one host per class suffices."""
    section, cluster = DENSE_PARALLEL.of(document), document.cluster
    size = None if section is None else section.shard_group_size
    if size is None or cluster is None or size == cluster.gpus_per_host:
        return ""
    return f"dense_parallel.shard_group_size = {size}"
