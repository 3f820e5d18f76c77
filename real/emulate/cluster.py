"""Creates, lists and removes emulated hosts, also when the process that created them is killed.

Each cluster has a record, written before its first namespace and removed after its last. The record names the process
that owns the cluster, if there is one. A *cleanup process* removes the cluster when its owner is gone; if the cleanup
process was killed too, the next command removes the cluster (`sweep`).
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from real.emulate import ip_tc as wiring
from real.emulate import netns
from real.emulate.fabric import CONTROL, CONTROL_ADDRESS, EmulatedFabric
from real.emulate.netns import EmulationError
from real.launch.launcher import Hosts
from real.launch.parent import module_command
from scenarios.seam.trace import EMULATED_HOSTS

RECORDS = Path("/run/twinstep")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A process, by its id and start time (clock ticks since boot), because ids are reused."""

    pid: int
    started: int

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return _start_time(self.pid) == self.started


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedHosts(Hosts):
    """A cluster of emulated hosts that is up. Without an owner it stays until `down`."""

    name: str
    fabric: EmulatedFabric
    owner: Owner | None = None
    kind = EMULATED_HOSTS
    control_address = str(CONTROL_ADDRESS)
    environment: ClassVar[Mapping[str, str]] = {"GLOO_SOCKET_IFNAME": "eth0"}  # data goes over the shaped interface

    def control(self) -> AbstractContextManager[None]:
        """Enter the control namespace, whose traffic does not slow down data."""
        return netns.enter_namespace(self.namespace(CONTROL))

    def host(self, index: int) -> AbstractContextManager[None]:
        """Enter a host's namespace: processes started inside run on that host."""
        return netns.enter_namespace(self.namespace(f"host{index}"))

    def namespace(self, node: str) -> str:
        """Return the name of a node's namespace in /run/netns."""
        return f"twinstep-{self.name}-{node}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceTraffic:
    """A count of what an interface ("node:interface") has sent to the other end of its cable since it is up."""

    source: str
    target: str
    bytes_per_s: float
    sent_bytes: int
    sent_packets: int
    dropped_packets: int


@contextmanager
def emulate_hosts(fabric: EmulatedFabric) -> Iterator[EmulatedHosts]:
    """Yield emulated hosts that are gone after the context, even if this process is killed.

    Raises:
        EmulationError: this process is not root, iproute2 is missing, or the kernel refuses.
    """
    netns.check_able()
    hosts = EmulatedHosts(name=secrets.token_hex(3), fabric=fabric, owner=_this_process())
    # The kernel closes the pipe's write end when this process dies, however it dies: the cleanup process waits for
    # that.
    end, lifeline = os.pipe()
    # Record the hosts before the first namespace exists, so that `sweep` finds whatever a crash leaves.
    _write(hosts)
    try:
        cleanup = subprocess.Popen(
            [*module_command("real.emulate.cluster"), hosts.name],
            stdin=end,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches its owner alone
        )
        os.close(end)
        try:
            _build(hosts, lifeline)
            yield hosts
        finally:
            os.close(lifeline)
            cleanup.wait()
    finally:
        release(hosts.name)  # does nothing, unless the cleanup process was killed


def up(fabric: EmulatedFabric) -> EmulatedHosts:
    """Create hosts that stay until `down`.

    Raises:
        EmulationError: as `emulate_hosts`.
    """
    with emulate_hosts(fabric) as hosts:
        kept = dataclasses.replace(hosts, owner=None)
        # The cleanup process reads the record after the context has ended: without an owner, it leaves the hosts up.
        _write(kept)
    return kept


def release(name: str) -> None:
    """Remove a cluster whose owner has finished or died; leave a cluster without owner."""
    with suppress(FileNotFoundError):
        hosts = _read(_record(name))
        if hosts.owner is not None:
            down(hosts)


def down(hosts: EmulatedHosts) -> None:
    """Remove a cluster and the processes on it; do nothing if it is gone already."""
    prefix = hosts.namespace("")
    netns.delete(sorted(path.name for path in netns.FOLDER.glob(f"{prefix}*")))
    _record(hosts.name).unlink(missing_ok=True)


def sweep() -> list[str]:
    """Remove the clusters whose owner is gone; return a sentence for each removed cluster."""
    removed = []
    for hosts in clusters():
        if hosts.owner is not None and not hosts.owner.is_alive:
            down(hosts)
            removed.append(f"removed emulated hosts '{hosts.name}', left by process {hosts.owner.pid}")
    return removed


def clusters() -> list[EmulatedHosts]:
    """Return all recorded clusters, oldest first."""
    entries = []
    for path in RECORDS.glob("*.json"):
        with suppress(FileNotFoundError):  # just removed
            entries.append((path.stat().st_mtime_ns, _read(path)))
    return [hosts for _, hosts in sorted(entries, key=lambda entry: entry[0])]


def find(name: str) -> EmulatedHosts:
    """Return the cluster of that name.

    Raises:
        EmulationError: no such cluster is up.
    """
    known = {hosts.name: hosts for hosts in clusters()}
    if name not in known:
        expected = f"one of {', '.join(known)}" if known else "hosts that 'emulate up' has made"
        raise EmulationError(f"emulated hosts '{name}': not up; expected {expected}")
    return known[name]


def traffic(hosts: EmulatedHosts) -> list[InterfaceTraffic]:
    """Return the bytes and drops that the kernel has counted for each direction of each shaped cable."""
    queues = {
        f"{node}:{queue['dev']}": queue for node in hosts.fabric.nodes for queue in netns.queues(hosts.namespace(node))
    }
    return [
        InterfaceTraffic(
            source=source,
            target=target,
            bytes_per_s=cable.bytes_per_s,
            sent_bytes=queues[source]["bytes"],
            sent_packets=queues[source]["packets"],
            dropped_packets=queues[source]["drops"],
        )
        for cable in hosts.fabric.cables()
        for source, target in (cable.ends, cable.ends[::-1])
        if cable.bytes_per_s is not None and source in queues
    ]


def _build(hosts: EmulatedHosts, lifeline: int) -> None:
    """Create namespaces, cables and rates; the tools hold the lifeline open, so that the cleanup waits for them too."""
    fabric, prefix, lifelines = hosts.fabric, hosts.namespace(""), [lifeline]
    netns.batch("ip", wiring.namespaces(prefix, fabric), lifelines=lifelines)
    for node in fabric.nodes:
        netns.set_options(prefix + node, wiring.options(fabric))
    netns.batch("ip", wiring.cables(prefix, fabric), lifelines=lifelines)
    for node in fabric.nodes:
        netns.batch("ip", wiring.node_lines(node, fabric), namespace=prefix + node, lifelines=lifelines)
        netns.batch("tc", wiring.shapes(node, fabric), namespace=prefix + node, lifelines=lifelines)
    netns.wait_until_up(prefix + node for node in fabric.nodes)


def _record(name: str) -> Path:
    return RECORDS / f"{name}.json"


def _write(hosts: EmulatedHosts) -> None:
    """Write a cluster's record, atomically."""
    RECORDS.mkdir(mode=0o755, exist_ok=True)
    draft = RECORDS / f".{hosts.name}"
    owner = dataclasses.asdict(hosts.owner) if hosts.owner is not None else None
    draft.write_text(json.dumps({"fabric": dataclasses.asdict(hosts.fabric), "owner": owner}))
    draft.rename(_record(hosts.name))


def _read(path: Path) -> EmulatedHosts:
    text = path.read_text()
    try:
        record = json.loads(text)
        owner = Owner(**record["owner"]) if record["owner"] is not None else None
        return EmulatedHosts(name=path.stem, fabric=EmulatedFabric(**record["fabric"]), owner=owner)
    except (ValueError, KeyError, TypeError):  # of another version, or somebody else's
        raise EmulationError(f"{path}: expected a record as 'python -m real emulate up' writes it") from None


def _this_process() -> Owner:
    started = _start_time(os.getpid())
    assert started is not None, "a process sees itself"
    return Owner(pid=os.getpid(), started=started)


def _start_time(pid: int) -> int | None:
    """Return a process's start time, field 22 of proc_pid_stat(5); None if the process has ended."""
    try:
        # Fields are counted from behind the name, which may contain blanks and parentheses.
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[18]) if state not in "ZX" else None


if __name__ == "__main__":
    # The cleanup process: its owner closes stdin when it is done, and the kernel does when the owner was killed.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.read()
    release(sys.argv[1])
