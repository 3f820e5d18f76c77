"""Describes the namespaces, cables and rates of emulated hosts as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

from scenarios.config.hardware import Network, Nics
from scenarios.config.interconnect import LIBRARIES, NETWORKS, serving
from scenarios.config.scenario import Scenario
from scenarios.seam.errors import ScenarioError

CONTROL = "control"
# A Linux bridge has 1024 ports (BR_MAX_PORTS, net/bridge/br_private.h), of which the spine uses one.
MOST_HOSTS = 1000
# tbf drops packets larger than its bucket, and a packet with its Ethernet header has 1514 bytes.
LEAST_BURST_BYTES = 2048

_DATA, _CONTROL = IPv4Address("10.0.0.0"), IPv4Address("10.1.0.0")
CONTROL_ADDRESS = IPv4Address("10.1.255.254")
PREFIX_LENGTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Cable:
    """A cable between two interfaces ("node:interface"), each sending at most `bytes_per_s`; None: unlimited."""

    ends: tuple[str, str]
    bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedFabric:
    """A network of `hosts` hosts with one interface each.

    Attributes:
        nic_bytes_per_s: rate of a host's interface in each direction, Ethernet headers included.
        hosts_per_leaf: hosts of a leaf switch below a spine; None: one switch joins all hosts.
        uplink_bytes_per_s: rate of a leaf's uplink in each direction; a last leaf of fewer hosts has proportionally
            less.
        burst_bytes: bytes that an idle interface may send at once; None chooses by rate (see `burst_of`).
    """

    hosts: int
    nic_bytes_per_s: float
    hosts_per_leaf: int | None = None
    uplink_bytes_per_s: float | None = None
    burst_bytes: int | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes, one namespace each: hosts, switches, and the control node where the launcher listens."""
        return (*(f"host{host}" for host in range(self.hosts)), *self.switches, CONTROL)

    @property
    def switches(self) -> tuple[str, ...]:
        """The switches that carry data."""
        if self.hosts_per_leaf is None:
            return ("switch",)
        leaves = -(-self.hosts // self.hosts_per_leaf)
        return (*(f"leaf{leaf}" for leaf in range(leaves)), "spine")

    def cables(self) -> Iterator[Cable]:
        """Yield all cables: two of each host, and the uplinks of leaves."""
        for host in range(self.hosts):
            switch = "switch" if self.hosts_per_leaf is None else f"leaf{host // self.hosts_per_leaf}"
            yield Cable(ends=(f"host{host}:eth0", f"{switch}:host{host}"), bytes_per_s=self.nic_bytes_per_s)
            yield Cable(ends=(f"host{host}:ctl0", f"{CONTROL}:host{host}"))
        for leaf, switch in enumerate(self.switches[:-1]):
            assert self.hosts_per_leaf is not None, "only leaves have uplinks"
            assert self.uplink_bytes_per_s is not None, "leaves have uplinks"
            hosts = min(self.hosts_per_leaf, self.hosts - leaf * self.hosts_per_leaf)
            share = hosts / self.hosts_per_leaf
            yield Cable(ends=(f"{switch}:spine", f"spine:{switch}"), bytes_per_s=self.uplink_bytes_per_s * share)


def data_address(host: int) -> IPv4Address:
    """Return the address of a host's eth0, the data interface."""
    return _DATA + host + 1


def control_address(host: int) -> IPv4Address:
    """Return the address of a host's ctl0, the control interface."""
    return _CONTROL + host + 1


def hardware_address(address: IPv4Address) -> str:
    """Derive a locally administered MAC from an IP address, so that no ARP is needed."""
    return ":".join(f"{byte:02x}" for byte in (2, 0, *address.packed))


def fabric_of(scenario: Scenario, burst_bytes: int | None = None) -> EmulatedFabric:
    """Return the fabric of a scenario's cluster, with `burst_bytes` in place of its burst if given; latencies are this
    machine's.

    Raises:
        ScenarioError: the scenario's hosts cannot be emulated.
    """
    cluster = scenario.cluster
    _check(scenario, cluster.host.nics)
    nic_bytes_per_s = cluster.host.nics.link.bytes_per_s
    network = cluster.network
    return EmulatedFabric(
        hosts=cluster.hosts,
        nic_bytes_per_s=nic_bytes_per_s,
        hosts_per_leaf=network.hosts_per_leaf,
        uplink_bytes_per_s=_uplink_bytes_per_s(network, nic_bytes_per_s),
        burst_bytes=burst_bytes or cluster.host.nics.link.burst_bytes or None,
    )


def _uplink_bytes_per_s(network: Network, nic_bytes_per_s: float) -> float | None:
    if network.hosts_per_leaf is None:
        return None
    return network.hosts_per_leaf * nic_bytes_per_s / network.oversubscription


def _check(scenario: Scenario, nics: Nics) -> None:
    burst_bytes = nics.link.burst_bytes
    count = scenario.cluster.host.gpus if nics.per == "gpu" else nics.count
    if LIBRARIES[scenario.run.library].device != "cpu":
        raise ScenarioError(
            f"{scenario.path}: run.library = '{scenario.run.library}': expected {serving('cpu')}, as emulated"
            " hosts have no GPUs"
        )
    if NETWORKS[scenario.cluster.network.kind].by_rail:
        others = " or ".join(f"'{kind}'" for kind, facts in NETWORKS.items() if not facts.by_rail)
        raise ScenarioError(
            f"{scenario.path}: cluster.network.kind = '{scenario.cluster.network.kind}': expected {others}, as emulated"
            " hosts share one network and have no NVLink between rails"
        )
    if count != 1:
        raise ScenarioError(
            f"{scenario.path}: cluster.nic: {count} interfaces a host: expected 1, as an emulated host has one"
        )
    if scenario.cluster.hosts > MOST_HOSTS:
        raise ScenarioError(
            f"{scenario.path}: cluster.hosts = {scenario.cluster.hosts}: expected at most {MOST_HOSTS} emulated hosts"
        )
    if slow := len({fault.part for fault in scenario.cluster.faults}):
        raise ScenarioError(
            f"{scenario.path}: cluster.faults: {slow} slow part{'s' if slow > 1 else ''}: expected none, as emulated"
            " hosts are alike"
        )
    if 0 < burst_bytes < LEAST_BURST_BYTES:
        raise ScenarioError(
            f"{scenario.path}: cluster.nic.burst = {burst_bytes} bytes: expected at least 2 KiB for emulated hosts"
        )
