"""A cluster and where its figures come from as a profile's TOML; measuring and fitting are left to others.

Every quantity has a unit and reads back to the same number: decimal points are moved, nothing is rounded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal

from scenarios.config.hardware import Cluster, Gpu, Inside, Network, Nics, Tcp
from scenarios.config.provenance import Group, Measured

_Lines = dict[str, str]  # a table's keys, and their values as TOML

_THOUSANDS = ("", "k", "M", "G", "T", "P", "E")
_TIMES = ("ns", "us", "ms", "s")
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
# Comments on tables by name, of several lines; that on "" is on the whole file.
FREE_PEAKS = {
    "": "Written by a calibration: see [measured] for where, when and how good. Only the products of peaks and\n"
    "efficiencies were measured: the memory rate is such that the best kind of kernel has an efficiency of 1."
}


def profile_text(
    cluster: Cluster, measured: Measured, description: str, remarks: Mapping[str, str] = FREE_PEAKS
) -> str:
    """The file's text. `hosts` and the profile's name are left to the scenario and to the file's name."""
    tables: dict[str, _Lines] = {
        "cluster": {
            "gpus_per_host": str(cluster.host.gpus),
            "cores": str(cluster.host.cores),
            "hosts_share_cores": str(cluster.hosts_share_cores).lower(),
            "host_memory": _size(cluster.host.memory_bytes),
            "payload_share": repr(cluster.payload_share),
            "nccl_efficiency": repr(cluster.nccl_efficiency),
            "nccl_start": _time(cluster.nccl_start_ns),
            "nccl_floor": _time(cluster.nccl_floor_ns),
            "nccl_p2p_share": repr(cluster.nccl_p2p_share),
        },
        **_gpu_tables(cluster.host.gpu),
        "cluster.inside": _inside(cluster.host.inside),
        "cluster.nic": _nic(cluster.host.nics),
        "cluster.network": _network(cluster.network),
    }
    if cluster.core_bytes_per_s is not None:
        tables["cluster"]["core_rate"] = _scaled(cluster.core_bytes_per_s, "B/s")
    if cluster.tcp is not None:
        tables["cluster.tcp"] = _tcp(cluster.tcp)
    tables["measured"] = _measured(measured)
    blocks = [_comment(remarks.get(name, "")) + _block(f"[{name}]", lines) for name, lines in tables.items()]
    blocks += [_block("[[measured.groups]]", _group(group)) for group in measured.groups]
    whole = _comment(remarks.get("", ""))
    return "\n".join([f"description = {_text(description)}\n\n{whole}", *blocks])


def _comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in text.splitlines())


def _block(header: str, lines: Mapping[str, str]) -> str:
    return "".join([f"{header}\n", *(f"{key} = {value}\n" for key, value in lines.items())])


def _gpu_tables(gpu: Gpu) -> dict[str, _Lines]:
    tables: dict[str, _Lines] = {
        "cluster.gpu": {
            "name": _text(gpu.name),
            "kind": _text(gpu.kind),
            "memory": _size(gpu.memory_bytes),
            "memory_rate": _scaled(gpu.memory_bytes_per_s, "B/s"),
            "launch": _time(gpu.launch_ns),
            "ramp": _time(gpu.ramp_ns),
            "compute_capability": _text(str(gpu.compute_capability / 10)),
        },
        "cluster.gpu.flops": {dtype: _scaled(rate, "FLOP/s") for dtype, rate in gpu.flops_per_s.items()},
        "cluster.gpu.efficiency": {kind: repr(float(share)) for kind, share in gpu.efficiency.items()},
        "cluster.gpu.launches": {kind: _time(launch_ns) for kind, launch_ns in gpu.launches_ns.items()},
        "cluster.gpu.ramps": {kind: _time(ramp_ns) for kind, ramp_ns in gpu.ramps_ns.items()},
    }
    if gpu.multiprocessors is not None:
        tables["cluster.gpu"]["multiprocessors"] = str(gpu.multiprocessors)
    if gpu.spread:
        tables["cluster.gpu"]["spread"] = _array(map(repr, map(float, gpu.spread)))
    return {name: lines for name, lines in tables.items() if lines}


def _inside(inside: Inside) -> _Lines:
    lines = {
        "kind": _text(inside.kind),
        "rate": _scaled(inside.link.bytes_per_s, "B/s"),
        "latency": _time(inside.link.latency_ns),
    }
    if inside.bridge_bytes_per_s is not None:
        lines["bridge_rate"] = _scaled(inside.bridge_bytes_per_s, "B/s")
    if inside.hosts_per_domain > 1:
        lines["hosts_per_domain"] = str(inside.hosts_per_domain)
    if inside.links:
        lines["links"] = _array(_array(map(str, row)) for row in inside.links)
    return lines


def _nic(nics: Nics) -> _Lines:
    lines = {
        "per": _text(nics.per),
        "count": str(nics.count),
        "rate": _scaled(nics.link.bytes_per_s, "B/s"),
        "latency": _time(nics.link.latency_ns),
    }
    if nics.link.burst_bytes:
        lines["burst"] = _size(nics.link.burst_bytes)
    if nics.connection_bytes_per_s is not None:
        lines["connection_rate"] = _scaled(nics.connection_bytes_per_s, "B/s")
    if nics.window_bytes is not None:
        lines["window"] = _size(nics.window_bytes)
    if nics.initial_window_bytes is not None:
        lines["initial_window"] = _size(nics.initial_window_bytes)
    return lines


def _network(network: Network) -> _Lines:
    lines = {"kind": _text(network.kind), "latency": _time(network.latency_ns)}
    if network.hosts_per_leaf is not None:
        lines["hosts_per_leaf"] = str(network.hosts_per_leaf)
        lines["oversubscription"] = repr(float(network.oversubscription))
    return lines


def _tcp(tcp: Tcp) -> _Lines:
    lines = {
        "queue": _size(tcp.queue_bytes),
        "send_buffer": _size(tcp.send_buffer_bytes),
        "acknowledgements": repr(float(tcp.acknowledged_share)),
        "send_rate": _scaled(tcp.send_bytes_per_s, "B/s"),
        "receive_rate": _scaled(tcp.receive_bytes_per_s, "B/s"),
        "message": _time(tcp.message_ns),
        "post": _time(tcp.post_ns),
        "issue": _time(tcp.issue_ns),
        "wake": _time(tcp.wake_ns),
    }
    if tcp.wake_spread:
        lines["wake_spread"] = _array(map(repr, map(float, tcp.wake_spread)))
    if tcp.issue_spread:
        lines["issue_spread"] = _array(map(repr, map(float, tcp.issue_spread)))
    if tcp.nap_ns:
        lines["nap"] = _time(tcp.nap_ns)
        lines["wake_soon"] = _time(tcp.wake_soon_ns)
    if tcp.verb_ns:
        lines["verb"] = _time(tcp.verb_ns)
    if tcp.cold_ns:
        lines["cold"] = _time(tcp.cold_ns)
    if tcp.spin_share:
        lines["spin"] = _time(tcp.spin_ns)
        lines["spin_share"] = repr(float(tcp.spin_share))
    if tcp.stay_share:
        lines["stay_share"] = repr(float(tcp.stay_share))
    return lines


def _measured(measured: Measured) -> _Lines:
    named = ("machine", "cpu", "kernel", "python", "torch", "date", "command")
    return {
        **{key: _text(getattr(measured, key)) for key in named},
        "ranks": str(measured.ranks),
        "duration": _time(measured.duration_ns),
    }


def _group(group: Group) -> _Lines:
    shares = ("median_error", "typical_error", "worst_error", "spread")
    given = {key: getattr(group, key) for key in shares}
    return {
        "name": _text(group.name),
        **{key: repr(float(value)) for key, value in given.items() if value is not None},
        "least": _size(group.least_bytes),
        "most": _size(group.most_bytes),
    }


def _array(items: Iterable[str]) -> str:
    return f"[{', '.join(items)}]"


def _text(value: str) -> str:
    """A basic string: JSON's, but that TOML wants DEL escaped, too."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _size(size_bytes: int) -> str:
    """In the largest unit of which it is a whole number."""
    step = 0
    while step + 1 < len(_SIZES) and size_bytes and size_bytes % 1024 == 0:
        size_bytes, step = size_bytes // 1024, step + 1
    return _text(f"{size_bytes} {_SIZES[step]}")


def _time(time_ns: int) -> str:
    step = min(max(len(str(time_ns)) - 1, 0) // 3, len(_TIMES) - 1)
    return _text(f"{_shifted(Decimal(time_ns), step)} {_TIMES[step]}")


def _scaled(rate: float, unit: str) -> str:
    exact = Decimal(repr(float(rate)))
    step = min(max(exact.adjusted(), 0) // 3, len(_THOUSANDS) - 1)
    return _text(f"{_shifted(exact, step)} {_THOUSANDS[step]}{unit}")


def _shifted(number: Decimal, steps: int) -> str:
    """A plain decimal, three places to the right for each step, without zeros that say nothing."""
    text = f"{number.scaleb(-3 * steps):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
