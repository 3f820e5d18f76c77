"""Kernel probes of a device at its own pace, as a program, and what its recording says beside the kernels' spans.

On a GPU every workload comes after work that keeps the device busy until the host has launched all of it; so spans are
the device's time alone (what the host takes is `calibration.host`). Functions that wait for the device (to read a size,
say) cannot be launched ahead: their spans contain their waiting.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar, cast, get_args

import torch

from real.calibration.kernels.fit import Timed
from real.calibration.kernels.probes import WARM_UP, Alone, computing_ranks, probe_kernels
from real.calibration.kernels.workloads import DEVICE, HOST, Sizes, Workload
from real.machine import cpu_name
from scenarios.config.gpu import Gpu
from scenarios.config.scenario import Scenario
from scenarios.config.toml.hardware.sections import GpuSection
from scenarios.seam.backend import Work
from scenarios.seam.kernel import Kernel
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Span

# More than any GPU's cache, so that its rate is the memory's.
_HOLD_BYTES = 256 << 20


class Hold:
    """Passes over a buffer: work of which a device's data sheet says how long it takes at least."""

    def __init__(self, device: torch.device, memory_bytes_per_s: float) -> None:
        self._buffer = torch.zeros(_HOLD_BYTES // 4, device=device)
        self._pass_s = 2 * _HOLD_BYTES / memory_bytes_per_s

    def kernel(self, for_s: float) -> Kernel:
        """What keeps the device busy for so long, or longer."""
        passes = max(1, -int(-for_s // self._pass_s))
        moved_bytes = float(passes * _HOLD_BYTES)
        return Kernel(kind="elementwise", bytes_read=moved_bytes, bytes_written=moved_bytes, launches=passes)

    def play(self, passes: int) -> None:
        """The passes of such a kernel, which are its launches."""
        for _ in range(passes):
            self._buffer.add_(1)


class Host:
    """Where a rank's host is, compared with its device; here a CPU, or a simulated device, which has nothing to do."""

    def wait(self) -> None:
        """Wait until the device has nothing to do."""

    def mark(self) -> None:
        """What was launched until now is what the host shall stay ahead of."""

    def is_ahead(self) -> bool | None:
        """Whether the device has not yet passed the mark; None where a kernel runs when it is launched."""
        return None


class CudaHost(Host):
    """The host of a CUDA device, on the thread's current stream."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._mark: torch.cuda.Event | None = None

    def wait(self) -> None:
        """See `Host`."""
        torch.cuda.synchronize(self._device)

    def mark(self) -> None:
        """See `Host`."""
        self._mark = torch.cuda.Event(enable_timing=True)
        self._mark.record(torch.cuda.current_stream(self._device))

    def is_ahead(self) -> bool | None:
        """See `Host`."""
        assert self._mark is not None, "there is a mark"
        return not self._mark.query()


def host_of(device: torch.device) -> Host:
    """That of a rank whose payload lives there."""
    return CudaHost(device) if device.type == "cuda" else Host()


T = TypeVar("T")

# What is launched first takes at least so long, and twice as long the next time if that was too short: a host takes 5
# to 20 us for an operator, autograd's part in it, and workloads have up to 70. More is for functions that wait.
_LEAST_HOLD_S, _MOST_HOLD_S = 1e-3, 8e-3
# Which kernels tell what the memory reaches: those that touch each byte once, and so much of what the largest of them
# moves, which no cache holds.
_STREAMING, _LARGE = ("permute", "elementwise", "reduction", "optimizer"), 0.25
_EMPTY = "empty"
# Inputs of 10 GB are drawn on a CPU, which takes longer than the rounds.
_LIMIT_S = 120.0


class DeviceProbes(Program):
    """The probes of a CPU's or a GPU's kernels as a program; a scenario gives the cluster, and its steps the rounds."""

    def __init__(self, scenario: Scenario, sizes: Sizes | None = None) -> None:
        self._computing = computing_ranks(scenario.cluster)
        self._gpu, self._rounds = scenario.cluster.host.gpu, scenario.steps
        self._sizes = sizes_for(self._gpu) if sizes is None else sizes

    async def __call__(self, rank: Rank) -> None:
        """On every rank."""
        if self._gpu.kind == "cpu":
            await probe_kernels(rank, self._computing, rounds=self._rounds, sizes=self._sizes)
            return
        held = Held(Hold(rank.device, self._gpu.memory_bytes_per_s), host_of(rank.device))
        await probe_kernels(
            rank, self._computing, rounds=self._rounds, sizes=self._sizes, play=held.play, limit_s=_LIMIT_S
        )


def sizes_for(gpu: Gpu) -> Sizes:
    """What a GPU is probed with, or a CPU, in the dtypes that it has a peak for."""
    if gpu.kind == "cpu":
        return HOST
    return dataclasses.replace(
        DEVICE, other_dtypes=tuple(each for each in DEVICE.other_dtypes if each in gpu.flops_per_s)
    )


class Held:
    """Plays workloads on a device that is kept busy until they are launched."""

    def __init__(self, hold: Hold, host: Host) -> None:
        self._hold, self._host = hold, host
        self._for_s: dict[str, float] = defaultdict(lambda: _LEAST_HOLD_S)

    async def play(self, rank: Rank, workload: Workload) -> None:
        """Keep the device busy, then launch the workload."""
        hold = self._hold.kernel(self._for_s[workload.name])
        self._host.wait()
        await rank.compute(hold, self._hold.play, hold.launches, label="hold")
        await rank.compute(Kernel(kind="elementwise", launches=0), _nothing, label=_EMPTY)
        self._host.mark()
        watched = Watched(rank, workload.name, self._host, lambda: self._again(hold.launches))
        await workload.play(cast(Rank, watched))
        if watched.has_fallen_behind:
            self._for_s[workload.name] = min(2 * self._for_s[workload.name], _MOST_HOLD_S)

    def _again(self, passes: int) -> None:
        self._host.wait()  # a queue that is full would make the host wait for its places
        self._hold.play(passes)
        self._host.mark()


class Watched(Alone):
    """A rank alone whose host is watched: where it has fallen behind the device, `hold` comes again."""

    def __init__(self, rank: Rank, name: str, host: Host, hold: Callable[[], None]) -> None:
        super().__init__(rank, name)
        self._host, self._hold = host, hold
        self.has_fallen_behind = False

    def compute(self, kernel: Kernel, function: Callable[..., T], *arguments: object, label: str = "") -> Work[T]:
        """On the true rank."""
        if self._is_behind():
            self._hold()
        work = super().compute(kernel, function, *arguments, label=label)
        self.has_fallen_behind |= self._is_behind()
        return work

    def _is_behind(self) -> bool:
        return self._host.is_ahead() is False


def _nothing() -> None:
    """Between two events."""


def between_events_ns(spans: Iterable[Span]) -> int:
    """What a span of a device has that contains nothing."""
    return round(median(span.end_ns - span.start_ns for span in spans if span.label == _EMPTY and span.step >= WARM_UP))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """The best kernel's rate: `what` is "memory", in bytes/s, or the dtype of products, in flop/s.

    The peak is a data sheet's; CPUs have none.
    """

    what: str
    per_s: float
    peak_per_s: float | None

    @property
    def share(self) -> float | None:
        """The rate as a share of the peak; None where the peak is not known."""
        return None if self.peak_per_s is None else self.per_s / self.peak_per_s


def reached(timed: Sequence[Timed], like: Gpu) -> list[Reached]:
    """By the memory, and by the products of each dtype; `like` has the peaks."""
    streams = [each for each in timed if each.kind in _STREAMING]
    large_bytes = _LARGE * max(each.moved_bytes for each in streams)
    moved = max(each.moved_bytes / each.median_s for each in streams if each.moved_bytes >= large_bytes)
    products: dict[str, float] = defaultdict(float)
    for each in timed:
        if each.kind == "gemm":
            products[each.dtype] = max(products[each.dtype], each.flops / each.median_s)
    peaks = {"memory": like.memory_bytes_per_s, **like.flops_per_s} if like.kind == "cuda" else {}
    rates = {"memory": moved, **products}
    return [Reached(what=what, per_s=rate, peak_per_s=peaks.get(what)) for what, rate in rates.items()]


def cpu_here(like: Gpu) -> Gpu:
    """`like` under the name of this machine's processor."""
    return dataclasses.replace(like, name=f"a core of {cpu_name()}")


def gpu_here(like: Gpu) -> Gpu:
    """`like` with what the driver says of CUDA device 0.

    A compute capability that no profile can have (NCCL's choices for it are not known) stays that of `like`.
    """
    found = torch.cuda.get_device_properties(0)
    known = get_args(get_args(GpuSection.model_fields["compute_capability"].annotation)[0])
    is_known = f"{found.major}.{found.minor}" in known
    return dataclasses.replace(
        like,
        name=found.name,
        memory_bytes=found.total_memory,
        multiprocessors=found.multi_processor_count,
        compute_capability=10 * found.major + found.minor if is_known else like.compute_capability,
    )
