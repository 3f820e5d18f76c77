"""Writes a fabric as lines for `ip` and `tc`, and the sysctls of its namespaces."""

from __future__ import annotations

from collections.abc import Iterator

from real.emulate.fabric import (
    CONTROL,
    CONTROL_ADDRESS,
    PREFIX_LENGTH,
    EmulatedFabric,
    control_address,
    data_address,
    hardware_address,
)

_MTU = 1500
# A bucket that is full before its timer fires (timers fire late) loses rate; a large one hides the rate from short
# messages. `python -m benchmarks.emulated` measures the rates that these values keep (docs/reference/real_runs.md).
_LEAST_BURST_BYTES = 16 * 1024
_BURST_S = 250e-6
# TCP hands over many packets as one, and tbf splits whatever is larger than its bucket packet by packet: at 1 Gbit/s
# the splitting alone costs a third of the rate. So TCP is told to hand over less than a bucket.
_SEGMENT_SHARE = 0.9
_LARGEST_SEGMENT_BYTES = 65_000
# Bytes in flight of a connection, at least and by rate: enough for round trips of a busy machine (half of a buffer is
# offered as window), and few enough that a short message does not wait long behind a long one.
_LEAST_WINDOW_BYTES = 128 * 1024
_WINDOW_S = 2e-3
# More than the windows of all connections that can meet in a queue, so that no packet is dropped.
_QUEUE_BYTES = 64 << 20


def options(fabric: EmulatedFabric) -> dict[str, str]:
    """Return the sysctls of every node.

    Without loss a window only grows, so any algorithm fills a link. Of Linux's congestion controls, reno gave the
    steadiest times (docs/reference/real_runs.md): cubic holds back when a queue grows, and bbr probes for the rate.
    """
    window = max(_LEAST_WINDOW_BYTES, round(fabric.nic_bytes_per_s * _WINDOW_S))
    return {
        "ipv6/conf/all/disable_ipv6": "1",
        "ipv6/conf/default/disable_ipv6": "1",
        "ipv4/tcp_congestion_control": "reno",
        "ipv4/tcp_no_metrics_save": "1",
        "ipv4/tcp_slow_start_after_idle": "0",
        "ipv4/tcp_rmem": f"4096 {_LEAST_WINDOW_BYTES} {window}",
        "ipv4/tcp_wmem": f"4096 {_LEAST_WINDOW_BYTES} {window}",
    }


def burst_of(bytes_per_s: float) -> int:
    """Return the bytes that an idle interface may send at once: 250 us of its rate, and at least 16 KiB."""
    return max(_LEAST_BURST_BYTES, round(bytes_per_s * _BURST_S))


def namespaces(prefix: str, fabric: EmulatedFabric) -> Iterator[str]:
    """Return lines for ip that create a namespace for each node."""
    return (f"netns add {prefix}{node}" for node in fabric.nodes)


def cables(prefix: str, fabric: EmulatedFabric) -> Iterator[str]:
    """Yield lines for ip that create each pair of interfaces inside its namespaces, never in the root namespace."""
    for cable in fabric.cables():
        (node, name), (peer, peer_name) = (end.split(":") for end in cable.ends)
        yield (
            f"link add name {name} mtu {_MTU} netns {prefix}{node}{_address(node, name)} type veth"
            f" peer name {peer_name} mtu {_MTU} netns {prefix}{peer}"
        )


def _address(node: str, name: str) -> str:
    if not node.startswith("host"):
        return ""
    host = _number(node)
    return f" address {hardware_address(data_address(host) if name == 'eth0' else control_address(host))}"


def node_lines(node: str, fabric: EmulatedFabric) -> Iterator[str]:
    """Return lines for ip that set up a node's interfaces in its namespace."""
    return _host_lines(_number(node), fabric) if node.startswith("host") else _switch_lines(node, fabric)


def _host_lines(host: int, fabric: EmulatedFabric) -> Iterator[str]:
    """Yield addresses, and permanent neighbour entries, so that no message waits for ARP."""
    yield "link set lo up"
    yield f"address add {data_address(host)}/{PREFIX_LENGTH} dev eth0"
    yield f"address add {control_address(host)}/{PREFIX_LENGTH} dev ctl0"
    yield f"link set eth0 up gso_max_size {_segment_bytes(fabric)}"
    yield "link set ctl0 up"
    for other in range(fabric.hosts):
        if other != host:
            address = data_address(other)
            yield f"neighbour add {address} lladdr {hardware_address(address)} dev eth0 nud permanent"


def _switch_lines(node: str, fabric: EmulatedFabric) -> Iterator[str]:
    """Yield a bridge of all ports; the control node's bridge has an address."""
    yield "link add bridge0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0"
    for port, _ in _interfaces(node, fabric):
        yield f"link set {port} master bridge0 up"
    if node == CONTROL:
        yield "link set lo up"
        yield f"address add {CONTROL_ADDRESS}/{PREFIX_LENGTH} dev bridge0"
    yield "link set bridge0 up"


def shapes(node: str, fabric: EmulatedFabric) -> Iterator[str]:
    """Yield lines for tc that limit the rate of each of a node's interfaces."""
    for name, bytes_per_s in _interfaces(node, fabric):
        if bytes_per_s is not None:
            burst = fabric.burst_bytes or burst_of(bytes_per_s)
            yield f"qdisc add dev {name} root tbf rate {round(8 * bytes_per_s)}bit burst {burst} limit {_QUEUE_BYTES}"


def _segment_bytes(fabric: EmulatedFabric) -> int:
    rates = [cable.bytes_per_s for cable in fabric.cables() if cable.bytes_per_s is not None]
    smallest = fabric.burst_bytes or burst_of(min(rates))
    return min(round(smallest * _SEGMENT_SHARE), _LARGEST_SEGMENT_BYTES)


def _interfaces(node: str, fabric: EmulatedFabric) -> Iterator[tuple[str, float | None]]:
    """Yield the name and rate (bytes/s) of each interface of a node."""
    for cable in fabric.cables():
        for owner, name in (end.split(":") for end in cable.ends):
            if owner == node:
                yield name, cable.bytes_per_s


def _number(node: str) -> int:
    return int(node.removeprefix("host"))
