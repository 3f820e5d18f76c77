"""Timers: on a GPU in imagined time the operators' own time is measured, whatever their hosts and events take."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from real.calibration.operators import timers
from real.calibration.operators.making.arena import Made
from real.calibration.operators.timers import CpuTimer, CudaTimer, RepeatTimes
from real.launch.launcher import RunEnded
from scenarios.seam.operations.pointwise import contiguous
from tests.real.rank.fake_cuda import NAME, Device, install

US = 1_000
OPERATION = contiguous("relu", 8, "float32")
# A kernel's time, that of a fill of 256 MiB, and what an event takes, on the device; cycles of a spin in a ns.
TINY_NS, FLUSH_NS, EVENT_NS, CYCLES_PER_NS = 2_000, 60_000, 700, 2


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """Make a GPU, whose events take time behind a kernel."""
    made = install(monkeypatch, Device(latency_ns=lambda: EVENT_NS))
    flush = SimpleNamespace(fill_=lambda value: made.launch(FLUSH_NS))
    tiny = SimpleNamespace(add_=lambda _: made.launch(TINY_NS))
    monkeypatch.setattr(timers, "buffers", lambda name: (flush, tiny))
    monkeypatch.setattr(timers, "profiled_us", lambda run: TINY_NS / US)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: made.launch(cycles // CYCLES_PER_NS))
    monkeypatch.setattr(time, "perf_counter", lambda: made.now_ns / 1e9)
    return made


def operator(device: Device, taken_ns: int, host_ns: int = 10 * US) -> Made:
    """Return one that takes so long on the device, and whose host takes so long before it is launched."""

    def run() -> None:
        device.idle(host_ns)
        device.launch(taken_ns)

    return Made(run)


def take(timer: CudaTimer, *made: Callable[[], Made | None]) -> list[RepeatTimes]:
    return timer.take([(OPERATION, each) for each in made])


def test_a_gpus_events_are_measured_and_subtracted(device: Device) -> None:
    timer = CudaTimer(NAME, lambda _: 1e-6)
    assert timer.nothing_us == pytest.approx(EVENT_NS / US, abs=0.01)
    assert timer.held_us == pytest.approx(EVENT_NS / US, abs=0.01)
    for taken_ns in (3 * US, 250 * US):
        (found,) = take(timer, lambda taken_ns=taken_ns: operator(device, taken_ns))
        assert found.us == pytest.approx(taken_ns / US, abs=0.1)


def test_a_tiny_kernels_time_is_what_a_second_one_adds_where_there_is_no_profiler(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "profiled_us", lambda run: None)
    assert CudaTimer(NAME, lambda _: 1e-6).held_us == pytest.approx(EVENT_NS / US, abs=0.01)


def test_a_host_slower_than_the_operator_is_not_measured(device: Device) -> None:
    timer = CudaTimer(NAME, lambda _: 1e-6)
    (found,) = take(timer, lambda: operator(device, 3 * US, host_ns=400 * US))
    assert found.us == pytest.approx(3, abs=0.1)
    assert len(found.times_us) == timers._MOST_ON_GPU


def test_a_repeat_whose_host_fell_behind_counts_for_nothing_and_the_next_spin_is_longer(device: Device) -> None:
    timer, calls = CudaTimer(NAME, lambda _: 1e-6), count()

    def run() -> None:
        device.idle((10 if next(calls) < 2 else 300) * US)  # the first two, which are not measured, are quick
        device.launch(5 * US)

    (found,) = take(timer, lambda: Made(run))
    assert found.us == pytest.approx(5, abs=0.1)
    assert 0 < len(found.times_us) < timers._MOST_ON_GPU

    def slow() -> None:
        device.idle(50_000 * US)
        device.launch(5 * US)

    (found,) = take(timer, lambda: Made(slow))
    assert found == RepeatTimes(why_not="the host could not launch it ahead of the GPU")


def test_a_batch_is_waited_for_once_and_long_operators_are_repeated_less(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    timer, waits = CudaTimer(NAME, lambda _: 1e-3), count()
    wait = device.default.synchronize
    monkeypatch.setattr(device.default, "synchronize", lambda: (next(waits), wait())[1])
    found = take(timer, *[lambda: operator(device, 1000 * US)] * 8)
    assert next(waits) == 1
    assert {len(each.times_us) for each in found} == {2}


def test_refused_operator_has_a_reason_and_the_next_is_measured(device: Device) -> None:
    def refuse() -> object:
        raise RuntimeError("\x1b[93m\nno kernel \x1b[1mfor this\x1b[0m\nand a long story")  # as fbgemm colours its own

    def no_memory() -> object:
        raise torch.OutOfMemoryError("CUDA out of memory")

    timer = CudaTimer(NAME, lambda _: 1e-6)
    found = take(timer, lambda: Made(refuse), lambda: None, lambda: operator(device, 5 * US), lambda: Made(no_memory))
    assert [each.why_not for each in found] == ["refused: no kernel for this", "", "", "too large: out of memory"]
    assert [len(each.times_us) for each in found] == [0, 0, 5, 0]


def test_cublas_refusal_does_not_end_the_measurement(device: Device) -> None:
    def refuse() -> object:
        raise RuntimeError("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling cublasGemmEx")

    (found, other) = take(CudaTimer(NAME, lambda _: 1e-6), lambda: Made(refuse), lambda: operator(device, 5 * US))
    assert found.why_not == "refused: CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling cublasGemmEx"
    assert len(other.times_us) == 5


def fails(device: Device, monkeypatch: pytest.MonkeyPatch, sentence: str) -> Callable[..., object]:
    """Return what fails as all that waits for the device does from now on."""

    def fail(*_: object) -> object:
        raise RuntimeError(sentence)

    monkeypatch.setattr(device.default, "synchronize", fail)
    monkeypatch.setattr(torch.cuda, "synchronize", fail)
    return fail


def test_a_gpu_that_fails_ends_the_measurement(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    timer = CudaTimer(NAME, lambda _: 1e-6)
    failed = fails(device, monkeypatch, "CUDA error: an illegal memory access was encountered")
    with pytest.raises(RunEnded, match=r"^the GPU failed: CUDA error: .*; the same command goes on behind it$"):
        take(timer, lambda: Made(failed))


def test_late_gpu_failure_ends_the_measurement(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    timer = CudaTimer(NAME, lambda _: 1e-6)
    fails(device, monkeypatch, "CUDA error: misaligned address")
    with pytest.raises(RunEnded, match=r"^the GPU failed: CUDA error: misaligned address; "):
        take(timer, lambda: operator(device, 5 * US))


def test_an_operator_that_waits_for_the_device_is_measured_though_its_host_is_not_ahead(device: Device) -> None:
    def run() -> None:
        device.idle(30_000 * US)
        device.launch(5 * US)

    (found,) = take(CudaTimer(NAME, lambda _: 1e-6), lambda: Made(run, waits=True))
    assert len(found.times_us) == timers._LEAST


def test_a_core_is_measured_by_its_clock_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, threads = [0.0], set[int]()
    monkeypatch.setattr(time, "perf_counter", lambda: now_s[0])

    def run() -> None:
        now_s[0] += 1e-3
        threads.add(torch.get_num_threads())

    torch.set_num_threads(2)
    (found,) = CpuTimer().take([(OPERATION, lambda: Made(run))])
    after = torch.get_num_threads()
    torch.set_num_threads(1)
    assert found.us == pytest.approx(1000)
    assert len(found.times_us) == 2
    assert (threads, after) == ({1}, 2)


def test_products_are_rounded_to_tf32_only_where_they_are_to_be() -> None:
    seen: list[tuple[bool, bool]] = []

    def run() -> None:
        seen.append((torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32))

    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    for is_tf32 in (True, False):
        seen.clear()
        CpuTimer().take([(OPERATION, lambda is_tf32=is_tf32: Made(run, is_tf32))])
        assert set(seen) == {(is_tf32, is_tf32)}
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before


def test_the_profilers_time_of_a_kernel_is_the_median(monkeypatch: pytest.MonkeyPatch) -> None:
    class Profile:
        def __init__(self, **_: object) -> None: ...

        def __enter__(self) -> Profile:
            return self

        def __exit__(self, *_: object) -> None: ...

        def events(self) -> list[Any]:
            return [SimpleNamespace(device_time=each) for each in (0.0, 2.0, 2.5, 9.0)]

    monkeypatch.setattr(torch.profiler, "profile", Profile)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    assert timers.profiled_us(lambda: None) == 2.5
    monkeypatch.setattr(Profile, "events", lambda self: [])
    assert timers.profiled_us(lambda: None) is None
