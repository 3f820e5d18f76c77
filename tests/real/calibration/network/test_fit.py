"""The probes of a cluster whose parameters are known: the fit finds them again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from statistics import median

import pytest

from real.calibration.network.fit import Seen, fit, observe
from real.calibration.network.probes import NetworkProbes, Probe, bulk_bytes, calls_timed, schedule
from scenarios.config.hardware import Cluster, Inside, Link, Nics
from sim.hosts.tcp import SEGMENT_BYTES
from sim.run import simulate
from tests.small import CORE, TCP, cluster, scenario

INSIDE = Inside(kind="memory", link=Link(bytes_per_s=2e9, latency_ns=20_000), bridge_bytes_per_s=4e9)


def known_values(rate: float = 25e6, burst: int = 16 << 10, hosts_share_cores: bool = True) -> Cluster:
    link = Link(bytes_per_s=rate, latency_ns=12_000, burst_bytes=burst)
    return cluster(
        2,
        1,
        nics=Nics(per="host", count=1, link=link),
        inside=INSIDE,
        gpu=CORE,
        cores=2,
        tcp=TCP,
        payload_share=0.94,
        hosts_share_cores=hosts_share_cores,
    )


def play(on: Cluster) -> Mapping[tuple[str, int], Seen]:
    played = scenario(on, payload="sizes")
    return observe(schedule(on, 2), simulate(played, NetworkProbes(played, 2)).spans)


def measure(on: Cluster) -> dict[tuple[str, int], Seen]:
    """What the simulator shows, beside the numbers that a real rank records of its machine."""
    sight = dict(play(on))
    assert on.tcp is not None
    bulk, tcp = bulk_bytes(on), on.tcp

    def record(key: tuple[str, int], **numbers: float) -> None:
        seen = sight[key]
        parts = {name.replace("__", "/"): (value,) * len(seen.whole_s) for name, value in numbers.items()}
        sight[key] = dataclasses.replace(seen, parts_s={**seen.parts_s, **parts})

    busy = 0.3
    record(("barrier", 0), issue=tcp.issue_ns / 1e9)
    record(("idle", 0), busy_cores__0=busy, busy_cores__1=busy)
    sight["wake", 0] = Seen(
        Probe("wake", 0, 5),
        (0.0,) * 5,
        {"wake_s/0": tuple(tcp.wake_ns / 1e9 * factor for factor in (0.5, 1, 1, 1, 1.5))},
    )
    path_s = (2 * on.host.nics.link.latency_ns + tcp.post_ns + tcp.message_ns) / 1e9
    sight["path", 0] = Seen(Probe("path", 0, 5), (0.0,) * 5, {"path_s/0": (path_s,) * 5})
    for size in (0, bulk):
        others_s = busy * median(sight["cpu", size].whole_s)
        messages = calls_timed(size)
        sent_s, received_s = size / tcp.send_bytes_per_s, size / tcp.receive_bytes_per_s
        if not size:
            sent_s = received_s = (tcp.issue_ns + 3 * tcp.post_ns + 5 * tcp.message_ns) / 1e9
        both_s = sent_s + received_s
        shares = on.hosts_share_cores
        record(
            ("cpu", size),
            cpu_others_s__0=messages * (3 * tcp.post_ns + 4 * tcp.message_ns) / 1e9,
            cpu_process_s__0=messages * sent_s,
            cpu_process_s__1=0.1 * messages * received_s,
            cpu_machine_s__0=others_s + messages * (both_s if shares else sent_s),
            cpu_machine_s__1=others_s + messages * (both_s if shares else received_s),
        )
    return sight


def test_a_barrier_on_cores_that_are_never_idle_counts_where_it_takes_less() -> None:
    on = known_values(25e6, 16 << 10, True)
    sight = measure(on)
    for crowded_s, expected_ns in ((7 * 2e-6, 2000), (7 * 9e-6, TCP.message_ns), (None, TCP.message_ns)):
        tcp = fit(on, sight, lambda _: sight, crowded_s)[0].tcp
        assert tcp is not None
        assert tcp.message_ns == tcp.post_ns == pytest.approx(expected_ns, abs=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "burst", "shares"), [(25e6, 16 << 10, True), (25e6, 16 << 10, False), (125e6, 64 << 10, True)]
)
def test_fit_recovers_the_parameters(rate: float, burst: int, shares: bool) -> None:
    on = known_values(rate, burst, shares)
    nominal = dataclasses.replace(known_values(rate, burst, shares), tcp=None, payload_share=1.0)
    found, residuals = fit(nominal, measure(on), play)
    assert found.tcp is not None
    for name in ("wake_ns", "wake_soon_ns", "issue_ns", "verb_ns", "post_ns", "message_ns"):
        assert getattr(found.tcp, name) == pytest.approx(getattr(TCP, name), rel=0.02), name
    for name in ("send_bytes_per_s", "receive_bytes_per_s"):
        assert getattr(found.tcp, name) == pytest.approx(getattr(TCP, name), rel=0.02), name
    assert found.payload_share == pytest.approx(on.payload_share, rel=0.005)
    assert found.host.nics.link.latency_ns == pytest.approx(on.host.nics.link.latency_ns, rel=0.05)
    assert found.host.nics.link.burst_bytes == pytest.approx(burst, rel=0.1)
    # A ping waits for whole segments, of which there may be one more or less at either port. On 1 Gbit/s it waits for
    # cores as much, so that several queues explain it.
    if rate == 25e6:
        assert found.tcp.queue_bytes == pytest.approx(TCP.queue_bytes, abs=2 * SEGMENT_BYTES)
    # Written in pieces when a third of it is free, so that several sizes explain when a send is over.
    assert found.tcp.send_buffer_bytes == pytest.approx(TCP.send_buffer_bytes, rel=0.1)
    assert found.tcp.acknowledged_share == pytest.approx(TCP.acknowledged_share, abs=0.005)
    assert found.tcp.wake_spread[0] == pytest.approx(0.6)
    assert found.tcp.wake_spread[-1] == pytest.approx(1.4)
    assert set(found.tcp.issue_spread) == {1.0}
    for row in residuals:
        # What a ping waits for is in whole segments, of which the fit may see one more or less.
        segment_s = SEGMENT_BYTES / rate / on.payload_share if row.probe == "loaded ping" else 0.0
        assert abs(row.predicted_s - row.measured_s) < 0.02 * row.measured_s + segment_s, row
