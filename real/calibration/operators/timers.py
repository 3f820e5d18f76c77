"""Times operators on a device: on a GPU between two events, with cold caches and the host ahead; on a CPU by its clock.

The host waits for a GPU once per batch of operators.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Protocol

import torch

from real.calibration.operators.making.arena import Made
from real.launch.launcher import RunEnded
from scenarios.modules.precision import rounding_to_tf32
from scenarios.seam.operations.operation import Operation

# Creates an operator just before it runs, as its tensors overwrite those of the operator before; None if it cannot.
Maker = Callable[[], Made | None]


@dataclass(frozen=True, slots=True)
class RepeatTimes:
    """The times of an operator's repeats in us; none, with the reason, if it could not be measured."""

    times_us: tuple[float, ...] = ()
    why_not: str = ""

    @property
    def us(self) -> float:
        """The median time, in us."""
        return median(self.times_us)


class Timer(Protocol):
    """A clock of one device; `is_cold`: caches hold nothing of an operator's inputs when it begins."""

    is_cold: bool

    def take(self, batch: Sequence[tuple[Operation, Maker]]) -> list[RepeatTimes]:
        """Time the operators of a batch, one after the other."""


# Time of one operator's repeats together, in s; least and greatest number of repeats.
_REPEATS_S, _LEAST, _MOST, _MOST_ON_GPU = 2e-3, 2, 7, 5


class CpuTimer:
    """A clock of a core of this machine: caches hold what the previous repeat has left."""

    is_cold = False

    def take(self, batch: Sequence[tuple[Operation, Maker]]) -> list[RepeatTimes]:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # an operator's threads would wait for each other where cores are busy
        try:
            return [take_or_tell_why(partial(self._one, make)) for _, make in batch]
        finally:
            torch.set_num_threads(threads)

    def _one(self, make: Maker) -> RepeatTimes:
        made = make()
        if made is None:
            return RepeatTimes()
        with rounding_to_tf32(products=made.is_tf32, convolutions=made.is_tf32):
            made.run()
            times_s: list[float] = []
            while len(times_s) < _LEAST or (sum(times_s) < _REPEATS_S and len(times_s) < _MOST):
                begin_s = time.perf_counter()
                made.run()
                times_s.append(time.perf_counter() - begin_s)
        return RepeatTimes(tuple(1e6 * each for each in times_s))


def take_or_tell_why(take: Callable[[], RepeatTimes], device: torch.device | None = None) -> RepeatTimes:
    """Return the outcome of `take`, or why it failed: torch or fbgemm refuses an operator, or memory is exhausted.

    `device` is the GPU that may have failed, if there is one.

    Raises:
        RunEnded: the GPU itself has failed, so that this process can measure nothing more.
    """
    try:
        return take()
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return RepeatTimes(why_not="too large: out of memory")
    except Exception as error:  # one operator's failure must not end the others' measurement
        lines = [line.strip() for line in _CONTROL.sub("", str(error)).splitlines()]
        sentence = next(filter(None, lines), type(error).__name__)
        if device is not None and sentence.startswith(_FAILED) and _has_failed(device):
            raise RunEnded(f"the GPU failed: {sentence}; the same command goes on behind it") from error
        return RepeatTimes(why_not=f"refused: {sentence[:_MOST_LETTERS]}")


def _has_failed(device: torch.device) -> bool:
    """Return whether the GPU itself has failed: cuBLAS, for one, may refuse one operator in the same words."""
    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        return True
    return False


_FAILED = "CUDA error"
# A library colours its messages (fbgemm's of bounds do); profiles quote them in a TOML comment.
_CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x09\x0b-\x1f\x7f]")
_MOST_LETTERS = 120

# Larger than any GPU's cache.
_FLUSH_BYTES = 256 << 20
# The device spins for this factor of the host's time to launch an operator, and this much longer.
_AHEAD, _AHEAD_S, _MOST_AHEAD_S = 1.5, 20e-6, 20e-3
_WARM_UP, _TINY = 3, 21
# Cycles of `torch.cuda._sleep` with which its rate is measured.
_CYCLES = 2_000_000
_BEHIND = "the host could not launch it ahead of the GPU"


class CudaTimer:
    """A clock of a CUDA device, on the thread's current stream.

    Before each repeat a fill of 256 MiB evicts inputs from the cache, and the device spins until the host has launched
    the operator and the events around it. The overhead of two events is measured with a tiny kernel and subtracted
    (`held_us`).
    """

    is_cold = True

    def __init__(self, device: torch.device, expected_s: Callable[[Operation], float]) -> None:
        self._expected_s, self._device = expected_s, device
        self._stream = torch.cuda.current_stream(device)
        self._flush, self._tiny = buffers(device)
        self._cycles_per_s = self._rate()
        self.nothing_us, self.held_us = self._measure_overhead()

    def take(self, batch: Sequence[tuple[Operation, Maker]]) -> list[RepeatTimes]:
        """Time the operators of a batch; wait for the device once, at its end."""
        waiting = [self._launch(make, self._expected_s(operation)) for operation, make in batch]
        take_or_tell_why(self._wait, self._device)
        return [each if isinstance(each, RepeatTimes) else self._read(each) for each in waiting]

    def _wait(self) -> RepeatTimes:
        self._stream.synchronize()
        return RepeatTimes()

    def _launch(self, make: Maker, expected_s: float) -> list[_EventPair] | RepeatTimes:
        pairs: list[_EventPair] = []

        def launch() -> RepeatTimes:
            made = make()
            if made is not None:
                with rounding_to_tf32(products=made.is_tf32, convolutions=made.is_tf32):
                    pairs.extend(self._repeats(made, expected_s))
            return RepeatTimes()

        failed = take_or_tell_why(launch, self._device)
        return failed if failed.why_not or not pairs else pairs

    def _repeats(self, made: Made, expected_s: float) -> Iterator[_EventPair]:
        made.run()  # libraries choose and load kernels
        begin_s = time.perf_counter()
        made.run()
        launch_s = time.perf_counter() - begin_s
        ahead_s = min(_AHEAD_S + _AHEAD * launch_s, _MOST_AHEAD_S)
        for _ in range(max(_LEAST, min(_MOST_ON_GPU, round(_REPEATS_S / max(expected_s, launch_s))))):
            pair = self._around(made.run, ahead_s)
            pair.is_ahead |= made.waits
            if not pair.is_ahead:
                ahead_s = min(2 * ahead_s, _MOST_AHEAD_S)
            yield pair

    def _around(self, run: Callable[[], object], ahead_s: float) -> _EventPair:
        """Launch a flush, a spin, and the operator between two events."""
        self._flush.fill_(0)
        torch.cuda._sleep(round(ahead_s * self._cycles_per_s))
        pair = _EventPair(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        pair.begin.record(self._stream)
        run()
        pair.end.record(self._stream)
        pair.is_ahead = not pair.begin.query()
        return pair

    def _read(self, pairs: Sequence[_EventPair]) -> RepeatTimes:
        times_us = [each.us() - self.held_us for each in pairs if each.is_ahead]
        if not times_us:
            return RepeatTimes(why_not=_BEHIND)
        return RepeatTimes(tuple(max(each, _SHORTEST_US) for each in times_us))

    def _rate(self) -> float:
        """Return the cycles of `_sleep` per second."""
        torch.cuda._sleep(_CYCLES)  # raises the clock
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(self._stream)
        torch.cuda._sleep(_CYCLES)
        end.record(self._stream)
        self._stream.synchronize()
        return float(_CYCLES / (begin.elapsed_time(end) / 1e3))

    def _measure_overhead(self) -> tuple[float, float]:
        """Return the time of two events with nothing between them, and their overhead around a kernel, in us.

        A tiny kernel's own time is the profiler's; without a profiler it is what a second tiny kernel adds.
        """

        def tiny() -> object:
            return self._tiny.add_(1)

        nothing = self._median(lambda: None)
        once = self._median(tiny)
        twice = self._median(lambda: (tiny(), tiny()))
        own = profiled_us(tiny)
        return nothing, once - (twice - once if own is None else own)

    def _median(self, run: Callable[[], object]) -> float:
        pairs = [self._around(run, 100e-6) for _ in range(_TINY)]
        self._stream.synchronize()
        return median(each.us() for each in pairs[_WARM_UP:])


def buffers(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a buffer larger than any cache, and one number."""
    return torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device=device), torch.zeros(1, device=device)


# Lower bound of times, which the subtraction of overhead could make zero.
_SHORTEST_US = 0.1


@dataclass(slots=True)
class _EventPair:
    """A pair of events around an operator; `is_ahead`: the device had not passed the first when the host was done."""

    begin: torch.cuda.Event
    end: torch.cuda.Event
    is_ahead: bool = True

    def us(self) -> float:
        """Return the time between the events, in us."""
        return 1e3 * float(self.begin.elapsed_time(self.end))


def profiled_us(run: Callable[[], object]) -> float | None:
    """Return a kernel's median time by torch's profiler, in us; None where the profiler sees no kernel."""
    try:
        activities = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profile:
            for _ in range(_TINY):
                run()
            torch.cuda.synchronize()
        times = [event.device_time for event in profile.events() or () if event.device_time]
    except (RuntimeError, AttributeError):
        return None
    return median(times) if times else None
