"""Emulated hosts hold their rates, know nothing of each other, and are gone afterwards, whoever was killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from real.emulate import cli as emulate_cli
from real.emulate import netns
from real.emulate.cluster import EmulatedHosts, clusters, emulate_hosts, sweep, traffic
from real.emulate.fabric import EmulatedFabric, data_address, fabric_of
from real.emulate.netns import EmulationError
from real.launch.job import Job
from real.launch.launcher import launch, spool_folder
from reports.store import run_folder as store
from scenarios.config.faults import Fault, NicPart
from scenarios.config.hardware import Link, Network
from scenarios.config.scenario import Scenario
from scenarios.seam.errors import ScenarioError
from tests.contract.worlds import scenario
from tests.real.emulate.programs import REDUCED_BYTES, STEPS
from tests.small import change

ROOT = Path(__file__).parents[3]
SCENARIO = ROOT / "tests" / "data" / "real_world.toml"
NIC_BYTES_PER_S = 25e6  # 200 Mbit/s
# 1448 of 1514 bytes of a full packet and its Ethernet header are payload.
PAYLOAD_SHARE = 1448 / 1514
SENT_BYTES = 2 << 20
# What a bucket lets through at once; those further on the way, which fill up meanwhile, may add as much.
BURSTS_BYTES = 2 * 16 * 1024
# A machine that does something else may lose so much of a rate; an unshaped or a wrongly shaped link is further off.
LOST_SHARE = 0.3
END_S = 20.0
# What the kernel says where it lacks something, or grants it to nobody in a container.
REFUSALS = ("not permitted", "denied", "not supported", "Unknown device type", "qdisc kind is unknown", "Read-only")


@pytest.fixture(scope="session")
def able() -> None:
    """Skips where there are no namespaces, as found out by hand: a mistake of ours must not skip anything."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("emulated hosts need root on Linux")
    if not (shutil.which("ip") and shutil.which("tc")):
        pytest.skip("emulated hosts need iproute2")
    name = f"twinstep-probe-{os.getpid()}"
    commands = [
        f"ip netns add {name}",
        f"ip -n {name} link add veth0 type veth peer name veth1",
        f"ip -n {name} link add bridge0 type bridge",
        f"tc -n {name} qdisc add dev veth0 root tbf rate 1mbit burst 16384 limit 65536",
    ]
    done = [subprocess.run(command.split(), capture_output=True, text=True, check=False) for command in commands]
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
    for command, result in zip(commands, done, strict=True):
        if result.returncode != 0:
            assert any(reason in result.stderr for reason in REFUSALS), f"{command}: {result.stderr}"
            pytest.skip(f"this kernel has no emulated hosts: '{command}': {result.stderr.strip()}")


@pytest.fixture(scope="module")
def leaves(able: None) -> Iterator[EmulatedHosts]:
    """Four hosts on two leaves, whose uplinks are half as fast as a host."""
    with emulate_hosts(
        EmulatedFabric(
            hosts=4, nic_bytes_per_s=NIC_BYTES_PER_S, hosts_per_leaf=2, uplink_bytes_per_s=NIC_BYTES_PER_S / 2
        )
    ) as hosts:
        yield hosts


def names(hosts: EmulatedHosts | str) -> list[str]:
    """Its namespaces that there are."""
    name = hosts if isinstance(hosts, str) else hosts.name
    return sorted(path.name for path in netns.FOLDER.glob(f"twinstep-{name}-*"))


def transfer_s(hosts: EmulatedHosts, source: int, target: int, *, control: bool = False) -> float:
    """From the first byte to the last that arrives, of SENT_BYTES over one connection between two hosts."""
    with hosts.control() if control else hosts.host(target):
        address = hosts.control_address if control else str(data_address(target))
        listener = socket.create_server((address, 0))
    with hosts.host(source):
        sender = socket.create_connection(listener.getsockname(), timeout=END_S)
    with listener, sender:
        receiver, _ = listener.accept()
        with receiver:
            receiver.settimeout(END_S)
            began_s, left = time.monotonic(), SENT_BYTES
            threading.Thread(target=sender.sendall, args=(bytes(SENT_BYTES),)).start()
            while left:
                left -= len(receiver.recv(1 << 16))
            return time.monotonic() - began_s


def assert_shaped(taken_s: float, bytes_per_s: float) -> None:
    """Not a byte quicker than the link, and not much slower."""
    assert taken_s >= (SENT_BYTES / PAYLOAD_SHARE - BURSTS_BYTES) / bytes_per_s
    assert taken_s <= SENT_BYTES / PAYLOAD_SHARE / bytes_per_s / (1 - LOST_SHARE)


def test_a_leafs_hosts_have_the_rate_of_their_interfaces(leaves: EmulatedHosts) -> None:
    assert_shaped(min(transfer_s(leaves, 0, 1) for _ in range(3)), NIC_BYTES_PER_S)


def test_hosts_of_different_leaves_have_the_rate_of_the_uplink(leaves: EmulatedHosts) -> None:
    assert_shaped(min(transfer_s(leaves, 1, 2) for _ in range(3)), NIC_BYTES_PER_S / 2)


def test_the_two_directions_of_a_link_do_not_share(leaves: EmulatedHosts) -> None:
    def both_s() -> float:
        taken: list[float] = []
        other = threading.Thread(target=lambda: taken.append(transfer_s(leaves, 3, 2)))
        other.start()
        taken.append(transfer_s(leaves, 2, 3))
        other.join()
        return max(taken)

    assert_shaped(min(both_s() for _ in range(3)), NIC_BYTES_PER_S)


def test_connections_that_share_a_link_share_its_rate_and_drop_nothing(leaves: EmulatedHosts) -> None:
    threads = [threading.Thread(target=transfer_s, args=(leaves, source, 3)) for source in (1, 2)]
    began_s = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began_s >= (2 * SENT_BYTES / PAYLOAD_SHARE - BURSTS_BYTES) / NIC_BYTES_PER_S
    assert all(row.dropped_packets == 0 for row in traffic(leaves))


def test_control_traffic_is_not_shaped_and_disturbs_no_data(leaves: EmulatedHosts) -> None:
    before = {row.source: row.sent_bytes for row in traffic(leaves)}
    taken_s = min(transfer_s(leaves, 0, 0, control=True) for _ in range(3))
    assert taken_s < SENT_BYTES / NIC_BYTES_PER_S / 2
    assert {row.source: row.sent_bytes for row in traffic(leaves)} == before


def test_traffic_is_counted_on_every_cable_of_its_way(leaves: EmulatedHosts) -> None:
    before = {row.source: row.sent_bytes for row in traffic(leaves)}
    transfer_s(leaves, 0, 3)
    after = {row.source: row.sent_bytes - before[row.source] for row in traffic(leaves)}
    way = ["host0:eth0", "leaf0:spine", "spine:leaf1", "leaf1:host3"]
    assert all(SENT_BYTES / PAYLOAD_SHARE <= after[source] < 1.05 * SENT_BYTES / PAYLOAD_SHARE for source in way)
    assert sum(after.values()) < (len(way) + 0.5) * SENT_BYTES / PAYLOAD_SHARE  # acknowledgements come back


def test_root_namespace_has_no_interface_of_the_cluster(leaves: EmulatedHosts) -> None:
    def interfaces() -> set[str]:
        return {name for _, name in socket.if_nameindex()}

    before = interfaces()
    with leaves.host(0):
        assert interfaces() == {"lo", "eth0", "ctl0"}
    assert interfaces() == before  # the thread has come back
    assert not before & {"bridge0", "ctl0", "host0", "leaf0", "spine"}


def _job(made: Scenario, out: Path) -> Job:
    return Job(
        scenario=made,
        program="tests.real.emulate.programs:reduces",
        writer="reports.writer:write",
        out=out,
        spool=spool_folder(out),
        started="2026-01-01T00:00:00+00:00",
        check="never",
    )


def test_ranks_on_two_hosts_reduce_at_the_rate_of_their_interfaces(
    able: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two ranks sends as many bytes as it reduces. Another cluster of the same addresses is not disturbed."""
    monkeypatch.chdir(ROOT)
    fabric = EmulatedFabric(hosts=2, nic_bytes_per_s=NIC_BYTES_PER_S / 2)
    with emulate_hosts(fabric) as hosts, emulate_hosts(replace(fabric, nic_bytes_per_s=NIC_BYTES_PER_S)) as others:
        launch(_job(scenario(2, 1, timeout_s=60.0), tmp_path / "run"), hosts=hosts)
        assert sum(row.sent_bytes for row in traffic(others)) == 0
        assert_shaped(min(transfer_s(others, 0, 1) for _ in range(3)), NIC_BYTES_PER_S)
        sent = {row.source: row.sent_bytes for row in traffic(hosts)}
    assert (names(hosts), names(others)) == ([], [])
    assert all(count >= STEPS * REDUCED_BYTES / PAYLOAD_SHARE for count in sent.values())
    run = store.load(tmp_path / "run")
    assert run.info.played_on == "emulated hosts"
    spans = run.spans
    reduced = spans[spans["label"] == "gradients"]
    taken_s = ((reduced["end_ns"] - reduced["start_ns"]) / 1e9).groupby(reduced["step"]).max().sort_values()
    wire_s = REDUCED_BYTES / PAYLOAD_SHARE / fabric.nic_bytes_per_s
    # The last of what a rank sends may still be on its way when it is done.
    assert taken_s.median() >= 0.7 * wire_s
    assert taken_s.iloc[0] <= wire_s / (1 - LOST_SHARE)


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "real", *words]


def _say(*words: str) -> tuple[int, str, str]:
    done = subprocess.run(_command(*words), cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    return done.returncode, done.stdout, done.stderr


def test_hosts_are_up_until_they_are_taken_down(able: None) -> None:
    code, told, _ = _say("emulate", "up", "--hosts", "2", "--nic", "200mbit")
    assert code == 0
    name = told.split(":", maxsplit=1)[0]
    assert told.splitlines()[0] == f"{name}: 2 hosts at 25 MB/s a direction"
    listed = {row["name"]: row for row in json.loads(_say("emulate", "status", "--json")[1])}[name]
    assert (listed["owner"], listed["addresses"]) == (None, ["10.0.0.1", "10.0.0.2"])
    assert [link["bytes_per_s"] for link in listed["links"]] == [25e6] * 4
    sleeper = subprocess.Popen(_command("emulate", "exec", name, "1", "--", "sleep", "1000"), cwd=ROOT)
    _until(lambda: psutil.Process(sleeper.pid).name() == "sleep")
    assert _say("emulate", "down", name) == (0, "", "")
    assert sleeper.wait(timeout=END_S) == -signal.SIGKILL
    assert names(name) == []
    assert _say("emulate", "down", name)[0] == 2


def _stalls(out: Path) -> tuple[subprocess.Popen[str], EmulatedHosts]:
    """A run on emulated hosts of its own, that plays and will not end."""
    known = {hosts.name for hosts in clusters()}
    words = (str(SCENARIO), "--emulate", "--program", "tests.real.programs:stalls", "--out", str(out))
    run = subprocess.Popen(_command(*words), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
    _until(lambda: len(list(out.parent.glob(".*.spool/rank-*.spool"))) == 2, 60.0)
    (hosts,) = [hosts for hosts in clusters() if hosts.owner is not None and hosts.owner.pid == run.pid]
    assert hosts.name not in known
    return run, hosts


def _until(holds: Callable[[], bool], for_s: float = END_S) -> None:
    end_s = time.monotonic() + for_s
    while not holds():
        assert time.monotonic() < end_s, "it did not come true"
        time.sleep(0.05)


def test_killed_run_leaves_no_namespace(able: None, tmp_path: Path) -> None:
    """Nor of its ranks, which are in the hosts' namespaces."""
    run, hosts = _stalls(tmp_path / "run")
    children = psutil.Process(run.pid).children(recursive=True)
    assert names(hosts) == sorted(hosts.namespace(node) for node in hosts.fabric.nodes)
    run.kill()
    run.wait()
    _until(lambda: not names(hosts) and hosts.name not in [other.name for other in clusters()])
    assert len(children) == 4  # two ranks, the process that forks them and the cleanup process
    assert psutil.wait_procs(children, timeout=END_S)[1] == []


def test_sweep_removes_hosts_of_killed_owner_and_cleanup(able: None) -> None:
    code = "import time; from real.emulate.cluster import *; from real.emulate.fabric import *\n"
    code += "with emulate_hosts(EmulatedFabric(hosts=2, nic_bytes_per_s=25e6)) as hosts:\n"
    code += "    print(hosts.name, flush=True)\n    time.sleep(1000)\n"
    owner = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner.stdout:
        name = owner.stdout.readline().strip()
    assert sweep() == []  # a living owner's are left alone
    (cleanup,) = psutil.Process(owner.pid).children()
    cleanup.kill()
    owner.kill()
    owner.wait()
    _until(lambda: not cleanup.is_running() or cleanup.status() == psutil.STATUS_ZOMBIE)
    assert len(names(name)) == 4
    assert f"removed emulated hosts '{name}', left by process {owner.pid}\n" in _say("emulate", "status")[2]
    assert names(name) == []


def test_a_scenario_of_more_hosts_than_are_up_is_refused(leaves: EmulatedHosts, tmp_path: Path) -> None:
    large = tmp_path / "large.toml"
    large.write_text(SCENARIO.read_text().replace("hosts = 1", "hosts = 5"))
    code, _, told = _say(str(large), "--emulate", leaves.name, "--out", str(tmp_path / "run"))
    assert (code, told) == (2, f"--emulate = '{leaves.name}': has 4 hosts; expected at least 5\n")
    assert [path.name for path in tmp_path.iterdir()] == ["large.toml"]


@pytest.mark.parametrize(
    ("up", "wanted", "said"),
    [
        (None, None, ""),
        (65536, None, ""),  # the scenario leaves the burst open
        (None, 16384, ""),  # what 25 MB/s has by itself
        (8192, 8192, ""),
        (
            8192,
            16384,
            "at 25 MB/s a direction with a burst of 8 KiB; the scenario has 2 hosts at 25 MB/s a direction",
        ),
        (
            None,
            8192,
            "with a burst of 16 KiB; the scenario has 2 hosts at 25 MB/s a direction with a burst of 8 KiB",
        ),
    ],
)
def test_only_links_that_differ_from_the_scenarios_are_said(up: int | None, wanted: int | None, said: str) -> None:
    more, asked = (EmulatedFabric(hosts=n, nic_bytes_per_s=25e6, burst_bytes=one) for n, one in ((4, up), (2, wanted)))
    told = "".join(emulate_cli.differences("a", more, asked))
    assert said in told
    assert bool(told) == bool(said)


def _scenario(network: Network | None = None, burst_bytes: int = 0, **changes: object) -> Scenario:
    made = scenario(5, 2)
    nics = replace(made.cluster.host.nics, link=Link(bytes_per_s=1e8, latency_ns=0, burst_bytes=burst_bytes))
    cluster = replace(made.cluster, network=network or made.cluster.network, host=replace(made.cluster.host, nics=nics))
    return change(made, cluster=cluster, **changes)


def test_a_scenarios_fabric_has_its_rates() -> None:
    assert fabric_of(_scenario()) == EmulatedFabric(hosts=5, nic_bytes_per_s=1e8)
    assert fabric_of(_scenario(burst_bytes=8192)) == EmulatedFabric(hosts=5, nic_bytes_per_s=1e8, burst_bytes=8192)
    assert fabric_of(_scenario(burst_bytes=8192), 4096).burst_bytes == 4096
    network = Network(kind="leaf_spine", hosts_per_leaf=2, oversubscription=4.0)
    fabric = fabric_of(_scenario(network))
    assert fabric == EmulatedFabric(hosts=5, nic_bytes_per_s=1e8, hosts_per_leaf=2, uplink_bytes_per_s=5e7)
    uplinks = {cable.ends: cable.bytes_per_s for cable in fabric.cables() if cable.ends[1].startswith("spine:")}
    # The last leaf has one host instead of two, and half the uplink.
    assert list(uplinks.values()) == [5e7, 5e7, 2.5e7]


def test_hosts_that_cannot_be_emulated_are_refused() -> None:
    with pytest.raises(ScenarioError) as caught:
        fabric_of(_scenario(library="nccl"))
    assert str(caught.value) == ("contract.toml: run.library = 'nccl': expected 'gloo', as emulated hosts have no GPUs")
    with pytest.raises(ScenarioError) as caught:
        fabric_of(_scenario(burst_bytes=1000))
    assert str(caught.value) == (
        "contract.toml: cluster.nic.burst = 1000 bytes: expected at least 2 KiB for emulated hosts"
    )
    with pytest.raises(ScenarioError) as caught:
        fabric_of(_scenario(Network(kind="rail_only")))
    assert str(caught.value) == (
        "contract.toml: cluster.network.kind = 'rail_only': expected 'non_blocking' or 'leaf_spine', as emulated hosts"
        " share one network and have no NVLink between rails"
    )
    many = _scenario()
    nics = replace(many.cluster.host.nics, count=2)
    with pytest.raises(ScenarioError) as caught:
        fabric_of(replace(many, cluster=replace(many.cluster, host=replace(many.cluster.host, nics=nics))))
    assert str(caught.value) == (
        "contract.toml: cluster.nic: 2 interfaces a host: expected 1, as an emulated host has one"
    )
    slow = replace(many, cluster=replace(many.cluster, faults=(Fault(NicPart(1, 0), 0.5),)))
    with pytest.raises(ScenarioError) as caught:
        fabric_of(slow)
    assert str(caught.value) == "contract.toml: cluster.faults: 1 slow part: expected none, as emulated hosts are alike"


def test_without_root_or_iproute2_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(EmulationError) as caught:
        netns.check_able()
    assert str(caught.value) == ("emulated hosts are network namespaces, which only root may make: run this with sudo")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(EmulationError) as caught:
        netns.check_able()
    assert str(caught.value) == ("emulated hosts need iproute2, but 'ip' is not on the PATH: install iproute2")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["up"], "emulate up: expected a scenario, or --hosts and --nic"),
        (["up", "--hosts", "0", "--nic", "1gbit"], "--hosts = 0: expected 1 to 1000"),
        (
            ["up", "--hosts", "2", "--nic", "200"],
            "--nic = '200': expected a rate such as '200mbit' or '200 Mbit/s'",
        ),
        (
            ["up", "--hosts", "2", "--nic", "1gbit", "--burst", "1 kB"],
            "--burst = '1 kB': expected a size of at least 2 KiB, such as '16 KiB'",
        ),
        (
            ["up", "--hosts", "2", "--nic", "1gbit", "--uplink", "1gbit"],
            "emulate up: expected --hosts-per-leaf and --uplink together",
        ),
        (["up", str(SCENARIO), "--hosts", "2"], "--hosts: expected without a scenario, which says it itself"),
        (["down"], "emulate down: expected a name or --all"),
        (["down", "../x"], "emulated hosts '../x': not up; expected hosts that 'emulate up' has made"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_sentence(
    words: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(netns, "check_able", lambda: None)
    monkeypatch.setattr("real.emulate.cluster.RECORDS", tmp_path)
    assert emulate_cli.emulate(words) == 2
    assert capsys.readouterr().err == f"{sentence}\n"


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [("200mbit", 25e6), ("200Mbit", 25e6), ("200 Mbit/s", 25e6), ("25MB/s", 25e6), ("25mbps", 25e6), ("1kibit", 128)],
)
def test_rates_are_read_as_tc_and_as_scenarios_write_them(
    text: str, bytes_per_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[EmulatedFabric] = []
    monkeypatch.setattr(netns, "check_able", lambda: None)
    monkeypatch.setattr(emulate_cli, "sweep", list)
    monkeypatch.setattr(
        emulate_cli, "up", lambda fabric: made.append(fabric) or EmulatedHosts(name="made", fabric=fabric)
    )
    assert emulate_cli.emulate(["up", "--hosts", "2", "--nic", text]) == 0
    assert made == [EmulatedFabric(hosts=2, nic_bytes_per_s=bytes_per_s)]
