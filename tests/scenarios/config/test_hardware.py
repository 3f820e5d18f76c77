"""The hardware of a scenario: inline, from profiles, faults, and what its figures rest on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from scenarios.config.catalogue import profile_files
from scenarios.config.faults import Fault, GpuPart, LeafPart, NicPart, Pace
from scenarios.config.hardware import Cluster, Inside, Link, Network, Nics
from scenarios.config.host_costs import Tcp
from scenarios.config.load import load, load_profile
from scenarios.config.warnings import notes, notes_of_measuring
from tests.mistakes import mistakes_of
from tests.scenarios.config.test_load import LEAST, ROOT, write
from tests.scenarios.config.toml.bad_pieces import PROFILES

INLINE = """
program = "all_to_all"
[cluster]
hosts = 5
gpus_per_host = 2
cores = 16
hosts_share_cores = true
host_memory = "64 GiB"
payload_share = 0.9
nccl_start = "12.5 us"
nccl_p2p_share = 0.5
[cluster.gpu]
name = "G"
kind = "cuda"
memory = "16 GB"
memory_rate = "900 GB/s"
launch = "5 us"
launches = {gemm = "9 us", qr = "0 ns"}
flops = {float32 = "15.7 TFLOP/s", float16 = "125 TFLOP/s"}
efficiency = {gemm = 0.5, default = 1}
[cluster.inside]
kind = "pcie"
rate = "12 GB/s"
latency = "2 us"
bridge_rate = "24 GB/s"
[cluster.nic]
per = "host"
count = 2
rate = "100 Gbit/s"
latency = "1.5 us"
burst = "16 KiB"
[cluster.tcp]
queue = "128 KiB"
send_buffer = "1 MiB"
acknowledgements = 0.02
send_rate = "2 GB/s"
receive_rate = "1.5 GB/s"
message = "5 us"
post = "6 us"
issue = "15 us"
wake = "30 us"
wake_spread = [0.5, 1, 4]
[cluster.network]
kind = "leaf_spine"
latency = "300 ns"
hosts_per_leaf = 2
oversubscription = 1.5
[exchange]
size = "1 MB"
"""


@pytest.fixture
def inline(folder: Path) -> Cluster:
    """The cluster of a file that says all of it."""
    return load(write(folder, "inline.toml", INLINE)).cluster


def test_a_cluster_can_be_said_without_a_profile(inline: Cluster) -> None:
    assert (inline.profile, inline.hosts, inline.world_size, inline.payload_share) == ("inline", 5, 10, 0.9)
    assert (inline.nccl_efficiency, inline.nccl_start_ns, inline.nccl_p2p_share) == (1.0, 12_500, 0.5)
    assert (inline.host.cores, inline.host.memory_bytes, inline.hosts_share_cores) == (16, 64 * 2**30, True)


def test_gpus_can_be_inline(inline: Cluster) -> None:
    gpu = inline.host.gpu
    assert (gpu.name, gpu.kind, gpu.memory_bytes, gpu.memory_bytes_per_s) == ("G", "cuda", 16 * 10**9, 900e9)
    assert (gpu.launch_ns, gpu.flops_per_s) == (5000, {"float32": 15.7e12, "float16": 125e12})
    assert (gpu.efficiency, gpu.launches_ns) == ({"gemm": 0.5, "default": 1.0}, {"gemm": 9000, "qr": 0})


def test_links_can_be_inline(inline: Cluster) -> None:
    link = Link(bytes_per_s=12e9, latency_ns=2000)
    assert inline.host.inside == Inside(kind="pcie", link=link, bridge_bytes_per_s=24e9)
    assert inline.host.nics == Nics(
        per="host", count=2, link=Link(bytes_per_s=12.5e9, latency_ns=1500, burst_bytes=16 * 2**10)
    )
    assert inline.network == Network(kind="leaf_spine", latency_ns=300, hosts_per_leaf=2, oversubscription=1.5)


def test_tcp_costs_can_be_inline(inline: Cluster) -> None:
    assert inline.tcp == Tcp(
        queue_bytes=2**17,
        send_buffer_bytes=2**20,
        acknowledged_share=0.02,
        send_bytes_per_s=2e9,
        receive_bytes_per_s=1.5e9,
        message_ns=5000,
        post_ns=6000,
        issue_ns=15_000,
        wake_ns=30_000,
        wake_spread=(0.5, 1.0, 4.0),
    )


def test_a_scenario_knows_what_its_hardware_rests_on(folder: Path) -> None:
    (folder / "plain.toml").write_text(LEAST)
    datasheet = "profile cpu_local: datasheet values and assumptions, not calibrated"
    assert load(folder / "plain.toml").rests_on == datasheet
    own = "[cluster.nic]\nrate = '1 GB/s'\nlatency = '1 us'\n[cluster.gpu.efficiency]\ngemm = 0.5\n"
    (folder / "own.toml").write_text(
        LEAST + own + "default = 0.5\nqr = 0.5\n[[cluster.faults]]\ngpu = 0\nhost = 0\nspeed = 0.5\n"
    )
    set_here = "nic.rate, nic.latency, gpu.efficiency.gemm, gpu.efficiency.default and 1 more"
    assert load(folder / "own.toml").rests_on == f"{datasheet}; set by the scenario: {set_here}"
    (folder / "fitted.toml").write_text(LEAST.replace("cpu_local", "emulated_200mbit"))
    fitted = load(folder / "fitted.toml").rests_on
    assert fitted.startswith("profile emulated_200mbit: calibrated on vm (Intel(R) Xeon(R) Processor), 20")
    assert load(folder / "own.toml").digest() == dataclasses.replace(load(folder / "own.toml"), rests_on="").digest()


def test_a_price_of_ones_own_is_not_the_one_that_the_profile_quotes(folder: Path) -> None:
    path = write(folder, "a.toml", LEAST.replace("cpu_local", "dgx_h100"))
    plain, own = load(path), load(path, {"cluster.cost.usd_per_gpu_hour": 2.5})
    assert plain.cluster.cost is not None
    quoted = plain.cluster.cost
    assert own.cluster.cost == dataclasses.replace(quoted, usd_per_gpu_hour=2.5, price_source="", price_date="")
    assert (own.digest(), own.rests_on) == (plain.digest(), plain.rests_on)
    ours = load(path, {"cluster.cost": {"watts_per_gpu": 900, "power_source": "a meter"}}).cluster.cost
    assert ours is not None
    assert (ours.watts_per_gpu, ours.power_source, ours.power_date) == (900, "a meter", "")
    assert ours.price_source == quoted.price_source


def test_prices_and_powers_of_profiles_have_sources_and_dates() -> None:
    costs = [load_profile(path.stem).cost for path in profile_files()]
    for cost in filter(None, costs):
        priced = cost.usd_per_gpu_hour is not None
        assert priced == bool(cost.price_source) == bool(cost.price_date)
        assert cost.watts_per_gpu is not None
        assert cost.power_source
        assert cost.power_date
    assert sum(cost is not None for cost in costs) >= 18


def test_a_key_beside_the_profile_wins_over_the_profile(folder: Path) -> None:
    text = LEAST.replace("cpu_local", "dgx_h100") + '[cluster.gpu]\nmemory = "96 GB"\n[cluster.nic]\nrate = "1 GB/s"\n'
    host = load(write(folder, "a.toml", text)).cluster.host
    plain = load_profile("dgx_h100").host
    assert host.gpu.memory_bytes == 96 * 10**9
    assert host.gpu.flops_per_s == plain.gpu.flops_per_s
    assert host.nics.link == Link(bytes_per_s=1e9, latency_ns=plain.nics.link.latency_ns)
    assert host.nics.count == 8


def test_a_profile_may_be_a_file_beside_the_one_that_names_it(folder: Path) -> None:
    write(folder, "parts/base.toml", LEAST.replace("cpu_local", "mine.toml"))
    rest = load_profile("cpu_local")
    text = (ROOT / "scenarios" / "profiles" / "cpu_local.toml").read_text().replace("cores = 2 ", "cores = 3 ")
    write(folder, "parts/mine.toml", text)
    cluster = load(write(folder, "top.toml", 'include = "parts/base.toml"\n')).cluster
    assert (cluster.profile, cluster.host.cores) == ("mine", 3)
    assert cluster.host.gpu == rest.host.gpu


def test_a_ragged_last_leaf_is_allowed(folder: Path) -> None:
    text = LEAST.replace("hosts = 2", "hosts = 5") + '[cluster.network]\nkind = "leaf_spine"\nhosts_per_leaf = 2\n'
    assert load(write(folder, "a.toml", text)).cluster.network.hosts_per_leaf == 2


SLOW = """[cluster.network]
kind = "leaf_spine"
hosts_per_leaf = 2
[[cluster.faults]]
host = 3
gpu = 1
speed = 0.5
[[cluster.faults]]
host = 0
nic = 0
speed = 0.25
[[cluster.faults]]
leaf = 2
speed = 0.125
"""


def test_parts_of_a_cluster_may_be_slow(folder: Path) -> None:
    whole = LEAST.replace("hosts = 2", "hosts = 5\ngpus_per_host = 4")
    cluster = load(write(folder, "a.toml", whole + SLOW)).cluster
    assert cluster.faults == (Fault(GpuPart(3, 1), 0.5), Fault(NicPart(0, 0), 0.25), Fault(LeafPart(2), 0.125))
    assert cluster.faulty_hosts == (0, 3)
    assert [cluster.pace(GpuPart(3, gpu)).speeds for gpu in range(3)] == [(1,), (0.5,), (1,)]
    assert [cluster.pace(NicPart(host, 0)).speed_at(10**9) for host in range(2)] == [0.25, 1]
    assert [cluster.pace(LeafPart(leaf)).speeds for leaf in (1, 2)] == [(1,), (0.125,)]


def test_a_fault_may_have_times_and_a_rate(folder: Path) -> None:
    whole = LEAST.replace("hosts = 2", 'hosts = 3\nnic.rate = "8 Gbit/s"')
    nic, leaf = "[[cluster.faults]]\nhost = 0\nnic = 0\n", "[[cluster.faults]]\nleaf = 1\n"
    given = f"""[cluster.network]
kind = "leaf_spine"
hosts_per_leaf = 2
oversubscription = 4
{nic}rate = "2 Gbit/s"
end = "1.5 ms"
{nic}speed = 0.5
begin = "2 ms"
{leaf}rate = "1 Gbit/s"
"""
    cluster = load(write(folder, "a.toml", whole + given)).cluster
    assert cluster.host.nics.count * cluster.host.nics.link.bytes_per_s == 1e9
    assert cluster.faults == (
        Fault(NicPart(0, 0), 0.25, 0, 1_500_000),
        Fault(NicPart(0, 0), 0.5, 2_000_000),
        Fault(LeafPart(1), 0.5),  # one host behind it: 8 Gbit/s / 4
    )
    assert cluster.pace(NicPart(0, 0)) == Pace((0, 1_500_000, 2_000_000), (0.25, 1.0, 0.5))


@pytest.mark.parametrize("share", ["speed = 1", 'rate = "1 TB/s"'])
def test_a_part_that_reaches_its_rates_has_no_fault(folder: Path, share: str) -> None:
    text = LEAST + f"[[cluster.faults]]\nhost = 0\nnic = 0\n{share}\n"
    assert load(write(folder, "a.toml", text)) == load(write(folder, "a.toml", LEAST))


def test_a_fault_has_the_digest_of_the_cluster_without_it_and_a_note_where_it_is_measured(folder: Path) -> None:
    plain = load(write(folder, "plain.toml", LEAST))
    text = LEAST + "[[cluster.faults]]\nhost = 0\nnic = 0\nspeed = 0.5\n"
    slow = load(write(folder, "slow.toml", text))
    assert dataclasses.replace(slow, name="plain").digest() == plain.digest()
    assert [*notes(plain), *notes_of_measuring(plain), *notes(slow)] == []
    assert list(notes_of_measuring(slow)) == [
        "slow.toml: cluster.faults: 1 of the cluster's parts is slow in predictions only; a real run takes its devices"
        " as they are"
    ]


def test_an_unknown_profile_is_named_with_the_known_ones() -> None:
    named, near = (f"{names}, or a path that ends in .toml" for names in (PROFILES, "dgx_h100, dgx_a100, dgx2_v100"))
    assert mistakes_of(load_profile, "tpu") == [f"profile = 'tpu': expected one of {named}"]
    assert mistakes_of(load_profile, "dgx_h10") == [f"profile = 'dgx_h10': expected a profile such as {near}"]
