"""A device is probed at its own pace: spans are its time alone, whatever its host takes, and are found again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from real.calibration.kernels.device import (
    CudaHost,
    DeviceProbes,
    Held,
    Hold,
    Host,
    Reached,
    between_events_ns,
    cpu_here,
    gpu_here,
    host_of,
    reached,
    sizes_for,
)
from real.calibration.kernels.fit import Timed, fit_to_peaks, observe, predicted_s
from real.calibration.kernels.probes import probe_label
from real.calibration.kernels.workloads import DEVICE, HOST, Workload, workloads
from real.calibration.profile import cpu_name
from real.rank.cuda import Anchors, CudaLane
from real.rank.journal import Entry
from scenarios.config.kernel_kinds import KERNEL_KINDS
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from sim.run import simulate
from tests.real.rank.fake_cuda import NAME, Device, installed
from tests.small import CORE, GPU, cluster, scenario

KINDS = set(KERNEL_KINDS)
US, MS = 1_000, 1_000_000


def test_probes_of_a_simulated_gpu_give_back_its_efficiencies_and_ramps() -> None:
    """Whatever the model is: the host's launches, of 9 us, are in none of the times."""
    gpu = dataclasses.replace(
        GPU,
        flops_per_s={"float32": 4e12, "bfloat16": 2e13},
        efficiency={"gemm": 0.7, "qr": 0.05, "embedding_update": 0.1, "default": 0.6},
        launch_ns=9_000,
        ramp_ns=2_000,
        ramps_ns={"gemm": 6_000, "bucketize": 40_000},
    )
    played = scenario(cluster(1, 1, gpu=gpu), payload="sizes", library="nccl", steps=2)
    sizes = dataclasses.replace(HOST, other_dtypes=("bfloat16",))
    recording = simulate(played, DeviceProbes(played, sizes))
    timed = observe([recording.spans])
    like = dataclasses.replace(gpu, efficiency={}, ramp_ns=0, ramps_ns={})
    found = fit_to_peaks(timed, like)
    assert {each.kind for each in timed} == KINDS
    for each in timed:
        assert predicted_s(each, found.gpu) == pytest.approx(each.median_s, rel=0.01), each.label
    assert found.gpu.ramps_ns["bucketize"] == pytest.approx(40_000, rel=0.01)
    assert found.gpu.ramps_ns["gemm"] == pytest.approx(6_000, rel=0.01)
    assert found.gpu.ramps_ns["elementwise"] == pytest.approx(2_000, rel=0.02)
    assert found.gpu.efficiency["gemm"] == pytest.approx(0.7, rel=0.01)
    assert found.gpu.efficiency["optimizer"] == pytest.approx(0.6, rel=0.01)
    assert (found.gpu.flops_per_s, found.gpu.memory_bytes_per_s) == (gpu.flops_per_s, gpu.memory_bytes_per_s)
    assert "gemm bfloat16 kernels" in {group.name for group in found.groups}
    assert between_events_ns(recording.spans) == 0
    assert found.gpu.launch_ns == 9_000


class Done:
    def __init__(self, value: Any) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._value
        yield


class LaneRank:
    """A rank of one stream: its kernels run on a lane."""

    rank, device, control_device = 0, NAME, NAME

    def __init__(self) -> None:
        self.lane = CudaLane(NAME, Anchors(NAME), is_main=True)
        self.entries: list[Entry] = []

    def compute(self, kernel: Kernel, function: Callable[..., Any], *arguments: Any, label: str = "") -> Done:
        entry = Entry(self.lane, "main", "compute", label, sequence=0)
        self.entries.append(entry)
        return Done(self.lane.run(entry, function, arguments))

    def taken_ns(self, label: str) -> int:
        (entry,) = [entry for entry in self.entries if entry.label == label]
        assert entry.end is not None
        return self.lane.ns(entry.end) - self.lane.ns(entry.start)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return installed(monkeypatch, Device())


def held_on(device: Device, began_ns: list[int] | None = None) -> tuple[Held, list[int]]:
    """Hold up this device, pass by pass of 100 us; return how many passes that took, and when it began."""
    passes: list[int] = []

    def play(count: int) -> None:
        passes.append(count)
        if began_ns is not None:
            began_ns.append(device.now_ns)
        for _ in range(count):
            device.launch(100 * US)

    def kernel(for_s: float) -> Kernel:
        return Kernel(kind="elementwise", launches=round(for_s / 100e-6))

    return Held(cast(Hold, SimpleNamespace(kernel=kernel, play=play)), CudaHost(NAME)), passes


def operators(device: Device, count: int) -> None:
    """Run operators of which the host takes 20 us for each, the device 5."""
    for _ in range(count):
        device.idle(20 * US)
        device.launch(5 * US)


def play(held: Held, rank: LaneRank, workload: Workload) -> None:
    coroutine = held.play(cast(Rank, rank), workload)
    with pytest.raises(StopIteration):
        coroutine.send(None)


def workload_of(*kernels: tuple[str, Callable[[], None]]) -> Workload:
    async def compute(rank: Rank) -> None:
        for label, function in kernels:
            await rank.compute(Kernel(kind="gemm", launches=10), function, label=label)

    return Workload("w", compute)


def test_spans_are_the_devices_time_though_its_host_is_slower(device: Device) -> None:
    rank = LaneRank()
    bare = Entry(rank.lane, "main", "compute", "", sequence=0)
    rank.lane.run(bare, operators, (device, 10))
    device.synchronize()
    assert bare.end is not None
    assert rank.lane.ns(bare.end) - rank.lane.ns(bare.start) > 180 * US, "what the host does to a span"
    held, passes = held_on(device)
    play(held, rank, workload_of(("a", lambda: operators(device, 10)), ("b", lambda: operators(device, 2))))
    device.synchronize()
    first, second = probe_label("w", "a", 10), probe_label("w", "b", 10)
    assert (rank.taken_ns(first), rank.taken_ns(second)) == (50 * US, 10 * US)
    assert rank.taken_ns("empty") == 0
    assert passes == [10], "1 ms is enough for 12 launches"


def test_what_follows_a_wait_for_the_device_is_held_again(device: Device) -> None:
    def waits() -> None:
        device.launch(5 * US)
        device.synchronize()

    rank = LaneRank()
    held, passes = held_on(device)
    reading = workload_of(("waits", waits), ("after", lambda: operators(device, 10)))
    play(held, rank, reading)
    device.synchronize()
    assert rank.taken_ns(probe_label("w", "after", 10)) == 50 * US
    assert passes == [10, 10]
    for more in (20, 40, 80, 80):  # longer, should that be what it takes, but not without end
        play(held, rank, reading)
        assert passes[-2:] == [more, more]


def test_nothing_is_held_while_the_device_is_at_work(device: Device) -> None:
    """A queue that fills from one workload to the next would make the host wait in the midst of launching."""
    began_ns: list[int] = []
    held, _ = held_on(device, began_ns)
    rank, short = LaneRank(), workload_of(("a", lambda: operators(device, 2)))
    for _ in range(3):
        play(held, rank, short)
    for before_ns, after_ns in pairwise(began_ns):
        assert after_ns - before_ns > MS, "what was held, and what came behind it"


def test_a_hold_that_was_too_short_is_longer_the_next_time(device: Device) -> None:
    rank, (held, passes) = LaneRank(), held_on(device)
    long = workload_of(("long", lambda: operators(device, 100)))
    for _ in range(3):
        play(held, rank, long)
        device.synchronize()
    assert passes == [10, 20, 40], "100 launches take 2 ms"
    last = rank.entries[-1]
    assert last.end is not None
    assert rank.lane.ns(last.end) - rank.lane.ns(last.start) == 500 * US


def test_a_hold_lasts_as_long_as_the_data_sheet_says_or_longer() -> None:
    hold = Hold(torch.device("meta"), 1e12)
    for for_s in (1e-6, 1e-3, 8e-3):
        kernel = hold.kernel(for_s)
        assert for_s <= (kernel.bytes_read + kernel.bytes_written) / 1e12 < for_s + 0.6e-3
        assert kernel.bytes_read == kernel.launches * (256 << 20)
    hold.play(3)


def test_a_cpus_host_is_never_ahead() -> None:
    host = host_of(torch.device("cpu"))
    assert type(host) is Host
    host.wait()
    host.mark()
    assert host.is_ahead() is None
    assert isinstance(host_of(torch.device("cuda", 0)), CudaHost)


def timed(kind: str, label: str, launches: int = 1, **changes: Any) -> Timed:
    blank = Timed(kind=kind, label=label, dtype="float32", launches=launches, flops=0, moved_bytes=1, median_s=1)
    return dataclasses.replace(blank, **changes)


def test_what_is_reached_is_the_best_product_of_a_dtype_and_the_best_stream_that_fits_no_cache() -> None:
    kernels = [
        timed("gemm", "a", flops=1e12, median_s=0.2),
        timed("gemm", "b", flops=1e12, median_s=0.25),
        timed("gemm", "c", flops=1e12, median_s=0.05, dtype="bfloat16"),
        timed("permute", "cached", moved_bytes=1e6, median_s=1e-7),
        timed("permute", "large", moved_bytes=1e9, median_s=2e-3),
        timed("optimizer", "larger", moved_bytes=2e9, median_s=5e-3),
        timed("embedding_lookup", "ids twice", moved_bytes=2e9, median_s=1e-4),
    ]
    gpu = dataclasses.replace(GPU, flops_per_s={"float32": 1e13, "bfloat16": 1e14})
    assert reached(kernels, gpu) == [
        Reached(what="memory", per_s=1e9 / 2e-3, peak_per_s=1e12),
        Reached(what="float32", per_s=1e12 / 0.2, peak_per_s=1e13),
        Reached(what="bfloat16", per_s=1e12 / 0.05, peak_per_s=1e14),
    ]
    assert [one.share for one in reached(kernels, gpu)] == pytest.approx([0.5, 0.5, 0.2])
    assert {one.share for one in reached(kernels, CORE)} == {None}


def test_a_gpu_is_what_the_driver_says_and_its_peaks_are_the_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    told = SimpleNamespace(name="NVIDIA H200", total_memory=150 << 30, multi_processor_count=132, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: told)
    like = dataclasses.replace(GPU, compute_capability=80)
    expected = dataclasses.replace(
        like, name="NVIDIA H200", memory_bytes=150 << 30, multiprocessors=132, compute_capability=90
    )
    assert gpu_here(like) == expected
    told.major, told.minor = 12, 1
    assert gpu_here(like).compute_capability == 80, "NCCL's choices for 12.1 are not known"
    assert cpu_here(CORE) == dataclasses.replace(CORE, name=f"a core of {cpu_name()}")


def test_a_gpu_is_probed_beyond_its_caches_in_the_dtypes_that_it_has_peaks_for() -> None:
    old = dataclasses.replace(GPU, flops_per_s={"float32": 1e13, "float16": 1e14})
    assert sizes_for(old) == dataclasses.replace(DEVICE, other_dtypes=("float16",))
    assert sizes_for(CORE) == HOST
    names = {each.name for each in workloads(torch.device("meta"), torch.device("cpu"), DEVICE)}
    here = {each.name for each in workloads(torch.device("meta"), torch.device("cpu"), HOST)}
    assert here - names == {each for each in here if "float64" in each}
    assert {"linear 8192 x 8192 x 8192", "linear bfloat16 8192 x 8192 x 8192"} <= names
