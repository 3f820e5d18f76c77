"""A checked document to the frozen values that everyone else reads; nothing here can be a user's mistake any more."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from scenarios.config.compute_times import ComputeTimes, read_compute_times
from scenarios.config.hardware import Cluster, Gpu, Host, Inside, Link, Network, Nics, Slow, Tcp
from scenarios.config.ids_file import read_bags
from scenarios.config.provenance import Group, Measured
from scenarios.config.scenario import (
    Buckets,
    Collective,
    Compression,
    Exchange,
    Gradients,
    Ids,
    Interaction,
    Model,
    Optimizer,
    Planner,
    Scenario,
    ShardingType,
    Table,
)
from scenarios.config.toml.checks import why_each
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.model_checks import DEFAULT_TYPES, named_file, table_dim
from scenarios.config.toml.sections import (
    ClusterSection,
    CollectiveSection,
    CompressionSection,
    Document,
    Efficiency,
    ExchangeSection,
    FileIds,
    GpuSection,
    GradientsSection,
    Launches,
    MeanIds,
    MeasuredGroup,
    MeasuredSection,
    ModelSection,
    NetworkSection,
    NicSection,
    OptimizerSection,
    Ramps,
    RunSection,
    Section,
    ShardingSection,
    SlowSection,
    TableSection,
    TcpSection,
    ZipfIds,
)
from scenarios.config.toml.tree import KeyPath
from scenarios.workloads.resnet import resnet50_shapes

T = TypeVar("T")

DEFAULT_STEPS = 3  # the first of a run is often unlike the others
DEFAULT_TIMEOUT_S = 60.0
MOST_EACH = 256  # ranks that are each played where the file does not say
NO_SAMPLES = 1  # the batch of programs that have no samples


def build(document: Document, mistakes: Mistakes, path: Path) -> Scenario:
    """The scenario of a document in which `mistakes` found none."""
    run = document.run or RunSection()
    cluster = build_cluster(have(document.cluster))
    buckets = document.buckets
    return Scenario(
        name=document.name or path.stem,
        path=path,
        program=have(document.program),
        cluster=cluster,
        batch_size=run.batch_size or NO_SAMPLES,
        steps=run.steps or DEFAULT_STEPS,
        seed=run.seed or 0,
        payload=run.payload or "sizes",
        fidelity=run.fidelity or "flows",
        library=run.library or ("nccl" if cluster.host.gpu.kind == "cuda" else "gloo"),
        ranks=run.ranks or ("alike" if cluster.world_size > MOST_EACH and not why_each(document) else "each"),
        timeout_s=run.timeout / 1e9 if run.timeout else DEFAULT_TIMEOUT_S,
        model=_model(document.model, document.sharding, mistakes) if document.model else None,
        planner=Planner(**_given(document.sharding, "sort_by", "balance_modules", "reserved_share")),
        buckets=Buckets(**_given(buckets, "first", "cap", suffix="_bytes")),
        compression=_compression(document.compression),
        exchange=_exchange(document.exchange) if document.exchange else None,
        collective=_collective(document.collective) if document.collective else None,
        gradients=_gradients(document.gradients) if document.gradients else None,
        compute_times=_compute_times(run.compute_times, mistakes) if run.compute_times else None,
    )


def _compute_times(name: str, mistakes: Mistakes) -> ComputeTimes:
    times, wrong = read_compute_times(named_file(mistakes, ("run", "compute_times"), name))
    assert not wrong, "the checks have read it"
    return times


def build_cluster(cluster: ClusterSection) -> Cluster:
    """The hardware alone."""
    gpus = have(cluster.gpus_per_host)
    inside = have(cluster.inside)
    host = Host(
        gpus=gpus,
        gpu=_gpu(have(cluster.gpu)),
        inside=Inside(
            kind=have(inside.kind),
            link=Link(bytes_per_s=have(inside.rate), latency_ns=have(inside.latency)),
            bridge_bytes_per_s=inside.bridge_rate,
            links=tuple(map(tuple, inside.links or ())),
        ),
        nics=_nics(have(cluster.nic), gpus),
        cores=have(cluster.cores),
        memory_bytes=have(cluster.host_memory),
    )
    return Cluster(
        profile=Path(cluster.profile).stem if cluster.profile else "inline",
        hosts=have(cluster.hosts),
        host=host,
        network=_network(cluster.network or NetworkSection()),
        payload_share=cluster.payload_share or 1.0,
        nccl_efficiency=cluster.nccl_efficiency or 1.0,
        **_given(cluster, "nccl_start", "nccl_floor", suffix="_ns"),
        **_given(cluster, "nccl_p2p_share", "nccl_sockets"),
        core_bytes_per_s=cluster.core_rate,
        tcp=_tcp(cluster.tcp) if cluster.tcp else None,
        hosts_share_cores=bool(cluster.hosts_share_cores),
        slow=_slow(cluster.slow or (), gpus),
    )


def build_measured(measured: MeasuredSection) -> Measured:
    """Where a profile's figures come from."""
    return Measured(
        **_given(measured, "machine", "cpu", "kernel", "python", "torch", "date", "command", "ranks"),
        **_given(measured, "duration", suffix="_ns"),
        groups=tuple(map(_group, measured.groups or ())),
    )


def _group(group: MeasuredGroup) -> Group:
    return Group(
        **_given(group, "name", "median_error", "typical_error", "worst_error", "spread"),
        **_given(group, "least", "most", suffix="_bytes"),
    )


def have(value: T | None) -> T:
    """A value that the checks found to be there."""
    assert value is not None
    return value


def _given(section: Section | None, *keys: str, suffix: str = "") -> dict[str, Any]:
    """The keys that are there, so that a dataclass's own defaults stand for the others."""
    values = {key: getattr(section, key, None) for key in keys}
    return {f"{key}{suffix}": value for key, value in values.items() if value is not None}


def _gpu(gpu: GpuSection) -> Gpu:
    flops = have(gpu.flops)
    return Gpu(
        name=gpu.name or have(gpu.kind),
        kind=have(gpu.kind),
        memory_bytes=have(gpu.memory),
        memory_bytes_per_s=have(gpu.memory_rate),
        flops_per_s=_rates(flops),
        efficiency=_rates(gpu.efficiency or Efficiency()),
        launch_ns=gpu.launch or 0,
        launches_ns=_by_kind(gpu.launches or Launches()),
        ramp_ns=gpu.ramp or 0,
        ramps_ns=_by_kind(gpu.ramps or Ramps()),
        spread=gpu.spread or (),
        multiprocessors=gpu.multiprocessors,
        compute_capability=round(10 * float(gpu.compute_capability or "9.0")),
    )


def _rates(section: Section) -> dict[str, float]:
    return {key: value for key, value in section if value is not None}


def _by_kind(section: Section) -> dict[str, int]:
    return {kind: value for kind, value in section if value is not None}


def _nics(nic: NicSection, gpus: int) -> Nics:
    link = Link(bytes_per_s=have(nic.rate), latency_ns=have(nic.latency), burst_bytes=nic.burst or 0)
    return Nics(
        per=have(nic.per),
        count=nic.count or gpus,
        link=link,
        connection_bytes_per_s=nic.connection_rate,
        window_bytes=nic.window,
        initial_window_bytes=nic.initial_window,
    )


def _network(network: NetworkSection) -> Network:
    return Network(
        kind=network.kind or "non_blocking",
        latency_ns=network.latency or 0,
        hosts_per_leaf=network.hosts_per_leaf,
        oversubscription=network.oversubscription or 1.0,
    )


def _tcp(tcp: TcpSection) -> Tcp:
    return Tcp(
        queue_bytes=have(tcp.queue),
        send_buffer_bytes=have(tcp.send_buffer),
        acknowledged_share=have(tcp.acknowledgements),
        send_bytes_per_s=have(tcp.send_rate),
        receive_bytes_per_s=have(tcp.receive_rate),
        message_ns=have(tcp.message),
        post_ns=have(tcp.post),
        issue_ns=have(tcp.issue),
        wake_ns=have(tcp.wake),
        wake_spread=tcp.wake_spread or (),
        issue_spread=tcp.issue_spread or (),
        nap_ns=tcp.nap or 0,
        wake_soon_ns=tcp.wake_soon or 0,
        verb_ns=tcp.verb or 0,
        cold_ns=tcp.cold or 0,
        spin_ns=tcp.spin or 0,
        spin_share=tcp.spin_share or 0.0,
        stay_share=tcp.stay_share or 0.0,
    )


def _slow(parts: Sequence[SlowSection], gpus: int) -> Slow:
    """What reaches all of its rate is not slow."""
    gpu_speeds, nic_speeds, leaf_speeds = dict[int, float](), dict[tuple[int, int], float](), dict[int, float]()
    for part in parts:
        speed = have(part.speed)
        if speed == 1:
            continue
        if part.leaf is not None:
            leaf_speeds[part.leaf] = speed
        elif part.nic is not None:
            nic_speeds[have(part.host), part.nic] = speed
        else:
            gpu_speeds[have(part.host) * gpus + have(part.gpu)] = speed
    return Slow(gpus=gpu_speeds, nics=nic_speeds, leafs=leaf_speeds)


def _model(model: ModelSection, sharding: ShardingSection | None, mistakes: Mistakes) -> Model:
    interaction = have(model.interaction)
    types = tuple((sharding.types if sharding else None) or DEFAULT_TYPES)
    optimizer = _given(model.optimizer or OptimizerSection(), "kind", "learning_rate")
    return Model(
        dense_features=have(model.dense_features),
        bottom=tuple(have(model.bottom)),
        interaction=Interaction(
            kind=have(interaction.kind), layers=interaction.layers or 0, low_rank=interaction.low_rank or 0
        ),
        top=tuple(have(model.top)),
        tables=tuple(_table(table, model, types, mistakes, index) for index, table in enumerate(have(model.tables))),
        dtype=model.dtype or "float32",
        optimizer=Optimizer(**optimizer),
    )


def _table(
    table: TableSection, model: ModelSection, types: tuple[ShardingType, ...], mistakes: Mistakes, index: int
) -> Table:
    ids, mean, fixed = _ids(table, mistakes, ("model", "tables", index, "ids", "file"))
    return Table(
        name=have(table.name),
        rows=have(table.rows),
        dim=have(table_dim(table, model)),
        ids_per_sample=mean,
        ids_per_sample_kind="fixed" if fixed else "poisson",
        ids=ids,
        sharding=tuple(table.sharding) if table.sharding else types,
    )


def _ids(table: TableSection, mistakes: Mistakes, path: KeyPath) -> tuple[Ids, float, bool]:
    """The ids, how many of them a sample has on average, and whether all samples have that many."""
    if isinstance(table.ids, FileIds):
        file = named_file(mistakes, path, have(table.ids.file))
        lengths = [len(bag) for bag in read_bags(file)]
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        return Ids(kind="file", path=file, sha256=sha256), sum(lengths) / len(lengths), len(set(lengths)) == 1
    ids = Ids()
    if isinstance(table.ids, ZipfIds):
        ids = Ids(kind="zipf", exponent=have(table.ids.zipf), order=table.ids.order or "shuffled")
    if isinstance(table.ids_per_sample, MeanIds):
        return ids, have(table.ids_per_sample.mean), False
    return ids, float(have(table.ids_per_sample)), True


def _compression(compression: CompressionSection | None) -> Compression:
    if compression is None or compression.kind in (None, "none"):
        return Compression()
    return Compression(**_given(compression, *CompressionSection.model_fields))


def _exchange(exchange: ExchangeSection) -> Exchange:
    return Exchange(size_bytes=have(exchange.size), **_given(exchange, "splits", "skew", "dtype"))


def _collective(collective: CollectiveSection) -> Collective:
    given = _given(collective, "splits", "skew", "dtype")
    return Collective(op=have(collective.op), size_bytes=have(collective.size), **given)


def _gradients(gradients: GradientsSection) -> Gradients:
    shapes = resnet50_shapes() if gradients.model else tuple(map(tuple, have(gradients.shapes)))
    return Gradients(shapes=shapes, **_given(gradients, "forward_flops", "backward_flops", "dtype"))
