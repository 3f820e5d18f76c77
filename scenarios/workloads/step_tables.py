"""The tables `pipeline`, `launching` and `replication`: the parts of a step and how they run; loads no torch."""

from __future__ import annotations

from typing import Any

from scenarios.config.scenario import Launching, Pipeline, Replication
from scenarios.config.toml.look import Look
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.program_spec import ScenarioTable
from scenarios.config.toml.section import have
from scenarios.config.toml.sections import Document
from scenarios.workloads.gradient_tables import COMPRESSION


def _check_launching(section: Any, document: Document, look: Look) -> None:
    kind = getattr(COMPRESSION.of(document), "kind", None)
    if section.grouped_all_reduce and kind not in (None, "none"):
        look.mistakes.add(("launching", "grouped_all_reduce"), f"false with compression.kind = '{kind}'")


def _check_replication(section: Any, document: Document, look: Look) -> None:
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


def node_group_size(section: Any, gpus_per_host: int) -> int:
    """Return the number of ranks of a sharding group that count as one host."""
    size: int = section.node_group_size or min(gpus_per_host, section.sharding_group_size)
    return size


def _replication(document: Document, mistakes: Mistakes) -> Replication | None:
    section = REPLICATION.of(document)
    if section is None:
        return None
    node = node_group_size(section, have(have(document.cluster).gpus_per_host))
    return REPLICATION.build(document, node_group_size=node)


PIPELINE = ScenarioTable(
    key="pipeline",
    values=Pipeline,
    about="Stages of other batches that overlap with the step. Default: none, as in eager PyTorch.",
)
LAUNCHING = ScenarioTable(
    key="launching",
    values=Launching,
    about="How kernels and all-reduces are launched. Default: one by one.",
    check=_check_launching,
)
REPLICATION = ScenarioTable(
    key="replication",
    values=Replication,
    about="2D parallelism: groups of ranks that each hold all tables. Default: all ranks hold the tables together.",
    check=_check_replication,
    make=_replication,
)


def sharding_shape(document: Document) -> tuple[int | None, int | None]:
    """Return the number of ranks that share the tables, and how many of them count as one host; None if unknown."""
    cluster, section = document.cluster, REPLICATION.of(document)
    gpus, hosts = (None, None) if cluster is None else (cluster.gpus_per_host, cluster.hosts)
    if section is None:
        return (None if gpus is None or hosts is None else gpus * hosts), gpus
    size = section.sharding_group_size
    return size, None if size is None or gpus is None else node_group_size(section, gpus)
