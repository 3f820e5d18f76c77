"""The tables of a step's parts and how they run, such as `buckets`, `pipeline` or `qcomms`; loads no torch."""

from __future__ import annotations

from typing import Any, Literal

from scenarios.config.scenario import (
    LEAST_POWERSGD_START,
    Buckets,
    Compression,
    Data,
    DenseParallel,
    Launching,
    Pipeline,
    QComms,
    Replication,
)
from scenarios.config.toml.hardware.sections import ClusterSection
from scenarios.config.toml.look import Look
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.program_spec import ScenarioTable
from scenarios.config.toml.section import have
from scenarios.config.toml.sections import Document
from scenarios.config.toml.tree import KeyPath

ALIGNED = 4  # bytes of an encoded row's scale; TorchRec pads to it, and then decodes the padding, too

_Direction = Literal["forward", "backward"]


def _check_compression(section: Any, document: Document, look: Look) -> None:
    """Check, as PowerSGDState does, that state carried between steps has earlier steps."""
    keys = ("start_powerSGD_iter", "use_error_feedback", "warm_start", "kind")
    path: KeyPath = ("compression", "start_powerSGD_iter")
    start = section.start_powerSGD_iter
    carries = {"use_error_feedback": section.use_error_feedback, "warm_start": section.warm_start}
    on = [key for key, value in carries.items() if value is not False]
    if (
        start is not None
        and start < LEAST_POWERSGD_START
        and on
        and look.mistakes.sound(*(("compression", key) for key in keys))
    ):
        look.mistakes.add(path, f"at least {LEAST_POWERSGD_START} with {' and '.join(on)}")


def _compression(document: Document, mistakes: Mistakes) -> Compression:
    """Build the compression; without one its other keys have no effect."""
    section = COMPRESSION.of(document)
    is_on = section is not None and section.kind not in (None, "none")
    return COMPRESSION.build(document) if is_on else Compression()


BUCKETS = ScenarioTable(key="buckets", values=Buckets, about="Sizes of gradient buckets. Default: as in DDP.")
COMPRESSION = ScenarioTable(
    key="compression",
    values=Compression,
    about="Compression of gradients. Default: none.",
    check=_check_compression,
    make=_compression,
)


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


def _check_parallel(section: Any, document: Document, look: Look) -> None:
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
    check=_check_parallel,
)


def why_each_shard(document: Document) -> str:
    """Return why every rank must be simulated; "" if one host per class suffices."""
    section, cluster = DENSE_PARALLEL.of(document), document.cluster
    size = None if section is None else section.shard_group_size
    if size is None or cluster is None or size == cluster.gpus_per_host:
        return ""
    return f"dense_parallel.shard_group_size = {size}"


def _check_qcomms(section: Any, document: Document, look: Look) -> None:
    both: tuple[_Direction, _Direction] = ("forward", "backward")
    for direction in both:
        precision = getattr(section, f"{direction}_precision") or "fp32"
        if precision in ("fp32", "int8"):
            reason = f"with {direction}_precision = '{precision}', which has none"
            look.refuse(("qcomms",), section, (f"{direction}_loss_scale",), reason)
    if "fp8" not in (section.forward_precision, section.backward_precision):
        look.refuse(("qcomms",), section, ("fp8_quantize_dim",), "but with a precision of 'fp8'")
    if section.forward_precision == "fp8" or (
        section.backward_precision == "fp8" and section.fp8_quantize_dim_bwd is None
    ):
        look.need(("qcomms",), section, "fp8_quantize_dim")
    for key in ("fp8_quantize_dim", "fp8_quantize_dim_bwd"):
        if look.mistakes.sound(("qcomms", key)) and (getattr(section, key) or ALIGNED) % ALIGNED:
            look.mistakes.add(("qcomms", key), f"a multiple of {ALIGNED}")


QCOMMS = ScenarioTable(
    key="qcomms",
    values=QComms,
    about="Quantization of embedding exchanges. Default: none.",
    check=_check_qcomms,
)


def check_qcomms_dtype(dtype: str | None, document: Document, look: Look) -> None:
    """Add a mistake for each precision if pooled rows are not float32, the only dtype that codecs encode."""
    section = QCOMMS.of(document)
    if section is None or dtype in (None, "float32"):
        return
    for key in ("forward_precision", "backward_precision"):
        if getattr(section, key) not in (None, "fp32"):
            look.mistakes.add(("qcomms", key), f"'fp32' with model.dtype = '{dtype}', for only float32 is quantized")


def check_host_path(reason: str, document: Document, mistakes: Mistakes) -> None:
    """Add a missing rate to host memory for GPUs that use it."""
    cluster = document.cluster or ClusterSection()
    inside, device = cluster.inside, document.device
    has_path = device is not None and device.has_own_memory
    if has_path and inside is not None and inside.kind in ("nvlink", "nvlink_mesh") and inside.host_rate is None:
        wanted = f"a GPU's rate to its host's memory, such as '25 GB/s' over PCIe 4.0, because {reason}"
        mistakes.missing(("cluster", "inside", "host_rate"), wanted)


def _check_data(section: Any, document: Document, look: Look) -> None:
    if section.samples_per_s is None and look.mistakes.sound(("data", "samples_per_s")):
        look.refuse(("data",), section, ("per", "prefetch"), "without samples_per_s")
    if section.copies:
        check_host_path("data.copies = true", document, look.mistakes)


def _data(document: Document, mistakes: Mistakes) -> Data:
    """Build the data, with rates per rank."""
    section = DATA.of(document)
    if section is None or section.per != "host":
        return DATA.build(document)
    return DATA.build(document, samples_per_s=section.samples_per_s / have(have(document.cluster).gpus_per_host))


DATA = ScenarioTable(
    key="data",
    values=Data,
    about="How batches reach a rank. Default: they are on its GPU when a step begins.",
    check=_check_data,
    make=_data,
)


def check_data(document: Document, look: Look) -> None:
    """Add a mistake for a pipeline of copies if batches are not copied."""
    pipeline, section = PIPELINE.of(document), DATA.of(document)
    copies = section is not None and section.copies
    if pipeline is not None and pipeline.kind == "base" and not copies and look.mistakes.sound(("data", "copies")):
        look.mistakes.add(("pipeline", "kind"), "no 'base', which copies batches ahead, without data.copies = true")
