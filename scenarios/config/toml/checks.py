"""What must hold between the values of a scenario, and what must be there; whether one value is right is `document`'s.

Each check looks only at values that are sound, so that one mistake does not bring forth others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scenarios.config.compute_times import read_compute_times
from scenarios.config.scenario import ELEMENT_BYTES
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.model_checks import check_model, check_sharding_types, named_file
from scenarios.config.toml.nvlink_mesh import mesh_mistake
from scenarios.config.toml.schema import expected
from scenarios.config.toml.sections import (
    ClusterSection,
    CollectiveSection,
    CompressionSection,
    Document,
    ExchangeSection,
    GradientsSection,
    InsideSection,
    MeasuredGroup,
    MeasuredSection,
    NetworkSection,
    NicSection,
    RunSection,
    Section,
    SlowSection,
)
from scenarios.config.toml.tree import KeyPath
from scenarios.config.toml.values import BYTES_BELOW, MOST_GPUS

NEEDED = {"dlrm": "model", "all_to_all": "exchange", "collective": "collective", "powersgd": "gradients"}
OPTIONAL = {
    "dlrm": ("sharding", "buckets", "compression"),
    "all_to_all": (),
    "collective": (),
    "powersgd": ("buckets", "compression"),
}


def check(document: Document, mistakes: Mistakes) -> None:
    """Add everything that is missing from the scenario or does not fit together."""
    look = Look(mistakes=mistakes)
    look.need((), document, "program", "cluster")
    _check_program(document, look)
    if document.cluster is not None:
        _check_cluster(document.cluster, look)
        _check_dtypes(document, document.cluster, look)
    _check_run(document.run or RunSection(), document, look)
    if document.model is not None:
        check_model(document.model, document, mistakes)
    if document.sharding is not None:
        check_sharding_types(document.sharding.types, ("sharding", "types"), mistakes)
    _check_compression(document.compression or CompressionSection(), look)
    if document.exchange is not None:
        _check_exchange(document.exchange, ("exchange",), look)
    if document.collective is not None:
        _check_collective(document, document.collective, look)
    if document.gradients is not None:
        _check_gradients(document.gradients, look)


def check_profile(document: Document, mistakes: Mistakes) -> None:
    """Add everything that is missing from the cluster alone or does not fit together."""
    look = Look(mistakes=mistakes)
    look.need((), document, "cluster")
    if document.cluster is not None:
        _check_cluster(document.cluster, look)
    _check_measured(document.measured, look)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The few ways in which checks complain."""

    mistakes: Mistakes

    def need(self, path: KeyPath, section: Section | None, *keys: str) -> None:
        """These keys of the table at `path` must be there."""
        for key in keys:
            if section is not None and getattr(section, key) is None:
                self.mistakes.missing((*path, key), expected(type(section), key))

    def refuse(self, path: KeyPath, section: Section, keys: tuple[str, ...], reason: str) -> None:
        """These keys of the table at `path` would have no effect, so they must not be there."""
        for key in keys:
            if getattr(section, key) is not None:
                self.mistakes.add((*path, key), f"no {key} {reason}")


def _check_program(document: Document, look: Look) -> None:
    if document.program is None:
        return
    needed = NEEDED[document.program]
    if getattr(document, needed) is None:
        look.mistakes.missing((needed,), f"a table, because program = '{document.program}'")
    foreign = {*NEEDED.values(), *(key for keys in OPTIONAL.values() for key in keys)}
    foreign -= {needed, *OPTIONAL[document.program]}
    look.refuse((), document, tuple(sorted(foreign)), f"with program = '{document.program}'")


def _check_run(run: RunSection, document: Document, look: Look) -> None:
    if document.program == "dlrm" and run.batch_size is None:
        path = ("run", "batch_size") if document.run is not None else ("run",)
        phrase = expected(RunSection, "batch_size")
        look.mistakes.missing(path, phrase if document.run is not None else f"batch_size = {phrase}")
    if document.program in ("all_to_all", "powersgd"):
        look.refuse(("run",), run, ("batch_size",), f"with program = '{document.program}'")
    if run.compute_times is not None:
        _check_compute_times(run.compute_times, look.mistakes)
    gpu = document.cluster.gpu if document.cluster else None
    if run.library == "nccl" and gpu is not None and gpu.kind == "cpu":
        look.mistakes.add(("run", "library"), "'gloo', because cluster.gpu.kind = 'cpu'")
    if run.ranks == "alike" and (reason := why_each(document)):
        look.mistakes.add(("run", "ranks"), f"'each', because {reason}")


def why_each(document: Document) -> str:
    """Why every rank must be played; empty if one host may stand for others."""
    run, collective, exchange = document.run or RunSection(), document.collective, document.exchange
    gpu = document.cluster.gpu if document.cluster else None
    if run.fidelity != "links":
        return f"run.fidelity = '{run.fidelity or 'flows'}'"
    if run.payload == "values":
        return "run.payload = 'values'"
    if run.library == "gloo" or (gpu is not None and gpu.kind == "cpu"):
        return "the library is gloo"
    if collective is not None and collective.op == "broadcast":
        return "one rank differs from all others where collective.op = 'broadcast'"
    for name, section in (("collective", collective), ("exchange", exchange)):
        if section is not None and section.splits == "random":
            return f"{name}.splits = 'random'"
    return ""


def _check_compute_times(name: str, mistakes: Mistakes) -> None:
    path = ("run", "compute_times")
    try:
        _, wrong = read_compute_times(named_file(mistakes, path, name))
    except ValueError as error:
        mistakes.add(path, str(error))
        return
    for sentence in wrong:
        mistakes.say(sentence)


def _check_cluster(cluster: ClusterSection, look: Look) -> None:
    look.need(("cluster",), cluster, "hosts", "gpus_per_host", "cores", "host_memory", "gpu", "inside", "nic")
    hosts, gpus = cluster.hosts, cluster.gpus_per_host
    if hosts is not None and gpus is not None and hosts * gpus > MOST_GPUS:
        reason = f"because gpus_per_host = {gpus} and no more than {MOST_GPUS} GPUs in all are supported"
        look.mistakes.add(("cluster", "hosts"), f"at most {MOST_GPUS // gpus}, {reason}")
    gpu = cluster.gpu
    look.need(("cluster", "gpu"), gpu, "kind", "memory", "memory_rate", "flops")
    look.need(("cluster", "gpu", "flops"), gpu.flops if gpu else None, "float32")
    _check_inside(cluster.inside or InsideSection(), cluster.gpus_per_host, look)
    _check_nic(cluster.nic or NicSection(), cluster.gpus_per_host, look)
    _check_network(cluster.network or NetworkSection(), look)
    rates, times = ("acknowledgements", "send_rate", "receive_rate"), ("message", "post", "issue", "wake")
    look.need(("cluster", "tcp"), cluster.tcp, "queue", "send_buffer", *rates, *times)
    _check_slow(cluster, look)


def _check_measured(measured: MeasuredSection | None, look: Look) -> None:
    look.need(("measured",), measured, "machine", "date", "command", "ranks")
    for index, group in enumerate((measured.groups if measured else None) or ()):
        look.need(("measured", "groups", index), group, *(key for key in MeasuredGroup.model_fields if key != "spread"))


def _check_inside(inside: InsideSection, gpus_per_host: int | None, look: Look) -> None:
    path = ("cluster", "inside")
    look.need(path, inside, "kind", "rate", "latency")
    if inside.kind in ("pcie", "memory"):
        look.need(path, inside, "bridge_rate")
    if inside.kind == "nvlink":
        look.refuse(path, inside, ("bridge_rate",), "with kind = 'nvlink'")
    if inside.kind == "nvlink_mesh":
        look.need(path, inside, "links")
    elif inside.kind is not None:
        look.refuse(path, inside, ("links",), "unless kind = 'nvlink_mesh'")
    if inside.kind == "nvlink_mesh" and inside.links is not None:
        _check_mesh(inside, inside.links, gpus_per_host, look)


def _check_mesh(inside: InsideSection, links: list[list[int]], gpus_per_host: int | None, look: Look) -> None:
    path = ("cluster", "inside")
    wrong = mesh_mistake(links, gpus_per_host)
    if wrong is not None:
        look.mistakes.add((*path, "links"), wrong)
    elif any(not count for i, row in enumerate(links) for j, count in enumerate(row) if i != j):
        look.need(path, inside, "bridge_rate")
    else:
        look.refuse(path, inside, ("bridge_rate",), "where every two GPUs have NVLinks")


def _check_nic(nic: NicSection, gpus_per_host: int | None, look: Look) -> None:
    path = ("cluster", "nic")
    look.need(path, nic, "per", "rate", "latency")
    if nic.per == "host":
        look.need(path, nic, "count")
    if nic.per == "gpu" and None not in (nic.count, gpus_per_host) and nic.count != gpus_per_host:
        look.mistakes.add((*path, "count"), f"{gpus_per_host}, one for each GPU, or no count")


def _check_network(network: NetworkSection, look: Look) -> None:
    path = ("cluster", "network")
    if network.kind == "leaf_spine":
        look.need(path, network, "hosts_per_leaf")
    elif look.mistakes.sound((*path, "kind")):
        look.refuse(path, network, ("hosts_per_leaf", "oversubscription"), "unless kind = 'leaf_spine'")


def _check_slow(cluster: ClusterSection, look: Look) -> None:
    """Each names one part that there is, and none is named twice."""
    first: dict[tuple[str, int | None, int], int] = {}
    for index, slow in enumerate(cluster.slow or ()):
        path: KeyPath = ("cluster", "slow", index)
        kinds = [kind for kind in ("gpu", "nic", "leaf") if getattr(slow, kind) is not None]
        if not look.mistakes.sound(path):
            continue
        if len(kinds) != 1:
            look.mistakes.add(path, "one of gpu, nic and leaf")
            continue
        _check_slow_part(kinds[0], path, slow, cluster, look)
        same = first.setdefault((kinds[0], slow.host, getattr(slow, kinds[0])), index)
        if same != index and look.mistakes.sound(path):
            look.mistakes.add(path, f"a part of its own, but cluster.slow[{same}] has it already")


def _check_slow_part(kind: str, path: KeyPath, slow: SlowSection, cluster: ClusterSection, look: Look) -> None:
    look.need(path, slow, "speed")
    network = cluster.network or NetworkSection()
    if kind == "leaf":
        look.refuse(path, slow, ("host",), "with leaf")
        if network.kind != "leaf_spine" and look.mistakes.sound(("cluster", "network", "kind")):
            look.refuse(path, slow, ("leaf",), "unless cluster.network.kind = 'leaf_spine'")
        elif cluster.hosts is not None and network.hosts_per_leaf is not None:
            leafs = -(-cluster.hosts // network.hosts_per_leaf)
            _check_below(leafs, "the number of leafs", (*path, "leaf"), slow.leaf, look)
        return
    look.need(path, slow, "host")
    _check_below(cluster.hosts, "cluster.hosts", (*path, "host"), slow.host, look)
    nic = cluster.nic or NicSection()
    if kind == "nic" and nic.per == "host":
        _check_below(nic.count, "cluster.nic.count", (*path, "nic"), slow.nic, look)
    elif kind == "gpu" or nic.per == "gpu":
        _check_below(cluster.gpus_per_host, "cluster.gpus_per_host", (*path, kind), getattr(slow, kind), look)


def _check_below(count: int | None, what: str, path: KeyPath, place: int | None, look: Look) -> None:
    if count is not None and place is not None and place >= count:
        look.mistakes.add(path, f"a whole number below {count}, which is {what}")


def _check_dtypes(document: Document, cluster: ClusterSection, look: Look) -> None:
    """The GPU needs a rate for what the workload computes in."""
    flops = cluster.gpu.flops if cluster.gpu else None
    for section in ("model", "gradients"):
        workload = document.model if section == "model" else document.gradients
        dtype = workload.dtype if workload else None
        if NEEDED.get(document.program or "") == section and dtype not in (None, "float32") and flops is not None:
            path = ("cluster", "gpu", "flops", str(dtype))
            reason = f"because {section}.dtype = '{dtype}'"
            if getattr(flops, str(dtype)) is None:
                look.mistakes.missing(path, f"{expected(type(flops), str(dtype))}, {reason}")


def _check_compression(compression: CompressionSection, look: Look) -> None:
    """As PowerSGDState does: what is carried from step to step needs steps that went before."""
    keys = ("start_powerSGD_iter", "use_error_feedback", "warm_start", "kind")
    path: KeyPath = ("compression", "start_powerSGD_iter")
    start = compression.start_powerSGD_iter
    carries = {"use_error_feedback": compression.use_error_feedback, "warm_start": compression.warm_start}
    on = [key for key, value in carries.items() if value is not False]
    if start is not None and start <= 1 and on and look.mistakes.sound(*(("compression", key) for key in keys)):
        look.mistakes.add(path, f"at least 2 with {' and '.join(on)}")


def _check_exchange(exchange: ExchangeSection | CollectiveSection, path: KeyPath, look: Look) -> None:
    look.need(path, exchange, "size")
    element = ELEMENT_BYTES[exchange.dtype or "float32"]
    if exchange.size is not None and look.mistakes.sound((*path, "dtype")) and exchange.size % element:
        look.mistakes.add((*path, "size"), f"a multiple of {element} bytes, a {exchange.dtype or 'float32'}")
    if exchange.skew and exchange.splits != "random" and look.mistakes.sound((*path, "splits")):
        look.mistakes.add((*path, "skew"), "0 unless splits = 'random'")


def _check_collective(document: Document, collective: CollectiveSection, look: Look) -> None:
    path = ("collective",)
    look.need(path, collective, "op")
    _check_exchange(collective, path, look)
    if collective.op != "all_to_all" and look.mistakes.sound((*path, "op")):
        look.refuse(path, collective, ("splits", "skew"), f"with op = '{collective.op}'")


def _check_gradients(gradients: GradientsSection, look: Look) -> None:
    path = ("gradients",)
    if gradients.model is None and gradients.shapes is None and look.mistakes.sound((*path, "model")):
        look.mistakes.missing((*path, "shapes"), "an array of shapes, or model = 'resnet50'")
    if gradients.model is not None:
        look.refuse(path, gradients, ("shapes",), f"with model = '{gradients.model}'")
    if gradients.shapes is not None and not gradients.shapes:
        look.mistakes.add((*path, "shapes"), "at least one shape")
    dtype = gradients.dtype or "float32"
    elements = sum(map(math.prod, gradients.shapes or []))
    if look.mistakes.sound((*path, "dtype")) and elements * ELEMENT_BYTES[dtype] >= BYTES_BELOW:
        most = BYTES_BELOW // ELEMENT_BYTES[dtype]
        look.mistakes.add((*path, "shapes"), f"fewer than {most} elements of {dtype} in all")
