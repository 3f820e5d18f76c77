"""Fits the compute model's parameters to the times of probed kernels, and judges their errors; pure arithmetic.

The model is that of `sim.engine.roofline`: launches * launch of the kind + max(flops / (peak * efficiency), bytes /
(memory rate * efficiency)). Only products of peak and efficiency can be seen: on CPUs the memory rate is chosen so that
the best kind has an efficiency of 1. Errors are differences of logarithms, so that twice and half the time have equal
weight.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from statistics import mean, quantiles

import numpy as np
import numpy.typing as npt

from real.calibration.kernels.probes import WARM_UP, launches_in
from scenarios.config.gpu import Gpu
from scenarios.config.provenance import ErrorGroup
from scenarios.seam.trace import Span

Floats = npt.NDArray[np.float64]

_MAIN_DTYPE = "float32"
# The kind whose kernels are bound by arithmetic as well as by memory, and so show the ratio of the two peaks.
_ARITHMETIC = "gemm"
# Kernels of at least this time show how times vary: interruptions dominate shorter ones.
_LONG_S = 100e-6
_LEAST_KERNELS = 3  # of a kind: any two kernels fit two parameters exactly
# Range of the ridge (FLOP per byte) at which a machine's two roofs may meet, and the resolution of its search.
_RIDGES, _RIDGE_STEPS, _RIDGE_ROUNDS = (0.25, 4096.0), 33, 4
_DIGITS = 4
# Beyond this many times its size a residual no longer counts with its square (Huber).
_ROBUST = 0.25
# Gauss-Newton on logarithms: most steps, longest step, and the step short enough to stop.
_STEPS, _STRIDE, _CLOSE = 100, 0.5, 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedKernel:
    """A probed kernel: the median of its repeats, and each repeat over the median."""

    kind: str
    label: str
    dtype: str
    launches: int
    flops: float
    moved_bytes: float
    median_s: float
    repeats: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFit:
    """A fitted GPU, and for each kind of kernel the error of its model, over the bytes that kernels moved."""

    gpu: Gpu
    groups: tuple[ErrorGroup, ...]


def observe(recordings: Iterable[Iterable[Span]]) -> list[TimedKernel]:
    """Return the probed kernels of all ranks and rounds in recordings, without warm-ups."""
    times: dict[TimedKernel, list[int]] = defaultdict(list)
    for span in chain.from_iterable(recordings):
        launches = launches_in(span.label) if span.kind == "compute" else None
        if launches is not None and span.step >= WARM_UP:
            key = TimedKernel(
                kind=span.kernel,
                label=span.label,
                dtype=span.dtype,
                launches=launches,
                flops=span.flops,
                moved_bytes=span.bytes_read + span.bytes_written,
                median_s=0.0,
            )
            times[key].append(span.end_ns - span.start_ns)
    return [_with_times(key, values) for key, values in times.items()]


def fit(timed: Sequence[TimedKernel], like: Gpu) -> KernelFit:
    """Return `like` with the fitted parameters. One spread describes all kernels; the fit predicts means.

    Raises:
        ValueError: there are too few products, or too few kernels of some kind, for its parameters.
    """
    by_kind, quantiles = _means(timed)
    for kind in {_ARITHMETIC: 0, **by_kind}:
        count = sum(each.dtype == _MAIN_DTYPE for each in by_kind[kind])
        if count < _LEAST_KERNELS:
            raise ValueError(f"{count} {kind} kernels of {_MAIN_DTYPE}: expected {_LEAST_KERNELS} or more")
    roofs, ridge = _fit_roofs(by_kind)
    memory_rate = max(roof.bytes_per_s for roof in roofs.values())
    shares = {kind: _round(roof.bytes_per_s / memory_rate) for kind, roof in roofs.items()}
    gpu = dataclasses.replace(
        like,
        memory_bytes_per_s=_round(memory_rate),
        flops_per_s=_peaks(by_kind[_ARITHMETIC], roofs[_ARITHMETIC], ridge, memory_rate),
        efficiency={**shares, "default": _round(float(np.median(list(shares.values()))))},
        launch_ns=round(1e9 * float(np.median([roof.launch_s for roof in roofs.values()]))),
        launches_ns={kind: round(1e9 * roof.launch_s) for kind, roof in roofs.items()},
        spread=quantiles,
    )
    return KernelFit(gpu=gpu, groups=tuple(_judge(kind, members, gpu) for kind, members in by_kind.items()))


def predicted_s(kernel: TimedKernel, gpu: Gpu) -> float:
    """Return the model's time of a probed kernel on an idle GPU whose host has launched it in time, in s."""
    efficiency = gpu.efficiency.get(kernel.kind, gpu.efficiency.get("default", 1.0))
    operator_ns = gpu.ramps_ns.get(kernel.kind, gpu.ramp_ns)
    if gpu.device.runs_on_cores:
        operator_ns += gpu.launches_ns.get(kernel.kind, gpu.launch_ns)
    arithmetic_s = kernel.flops / gpu.flops_per_s[kernel.dtype] if kernel.flops else 0.0
    work_s = max(arithmetic_s, kernel.moved_bytes / gpu.memory_bytes_per_s) / efficiency
    return kernel.launches * operator_ns / 1e9 + work_s


@dataclass(frozen=True, slots=True)
class _Roof:
    """A kind's roofline: time of an operator beyond its work, rate for bytes, and misfit."""

    launch_s: float
    bytes_per_s: float
    misfit: float


def _fit_roofs(by_kind: Mapping[str, Sequence[TimedKernel]]) -> tuple[dict[str, _Roof], float]:
    """Return the roof of each kind, and the FLOP per byte at which arithmetic takes over."""

    def line(kind: str, ridge: float) -> _Roof:
        members = _main(by_kind[kind])
        return _fit_line(members, [max(each.moved_bytes, each.flops / ridge) for each in members])

    # The misfit has one minimum along the ridge: search a coarse grid, then ever finer around its best point.
    least, most = _RIDGES
    for _ in range(_RIDGE_ROUNDS):
        ridges = np.geomspace(least, most, _RIDGE_STEPS).tolist()
        best = min(ridges, key=lambda ridge: line(_ARITHMETIC, ridge).misfit)
        factor = ridges[1] / ridges[0]
        least, most = best / factor, best * factor
    return {kind: line(kind, best) for kind in by_kind}, best


def _fit_line(members: Sequence[TimedKernel], work_bytes: Sequence[float]) -> _Roof:
    """Fit launches * x + work * y = time, x and y positive."""
    launches = np.array([each.launches for each in members], float)
    work = np.array(work_bytes)
    times = np.array([each.median_s for each in members])
    # The kernel with the least time is mostly launch, the one with the most mostly work.
    guess = np.log([np.min(times / launches), np.median(times / work)])
    found, errors = fit_prices(np.stack([launches, work], axis=1), times, guess)
    launch_s, s_per_byte = np.exp(found)
    return _Roof(float(launch_s), float(1 / s_per_byte), _huber(errors))


def fit_prices(
    parts: Floats, measured: Floats, guess: Floats, *, known: Floats | float = 0.0, ties: Floats | None = None
) -> tuple[Floats, Floats]:
    """Return the logarithms x with which known + parts @ exp(x) is nearest `measured`, by ratio, and the errors' logs.

    By Gauss-Newton with Huber's weights, from `guess` on. `ties` are further rows, [ties, x], whose sums are near 0:
    they keep the problem solvable where measurements cannot tell prices apart.
    """
    if ties is None:
        ties = np.empty((0, len(guess)))
    for _ in range(_STEPS):
        shares = parts * np.exp(guess)
        predicted = known + shares.sum(axis=1)
        errors = np.log(measured / predicted)
        # Huber's weights: beyond _ROBUST an error counts linearly.
        weights = np.sqrt(np.minimum(1.0, _ROBUST / np.maximum(np.abs(errors), 1e-12)))
        matrix = np.concatenate([shares / predicted[:, None] * weights[:, None], ties])
        step = np.linalg.lstsq(matrix, np.concatenate([errors * weights, -ties @ guess]), rcond=1e-6)[0]
        # Far from the solution the linearisation overshoots, so steps are bounded.
        guess = guess + np.clip(step, -_STRIDE, _STRIDE)
        if np.max(np.abs(step)) < _CLOSE:
            break
    return guess, errors


def _huber(errors: Floats) -> float:
    size = np.abs(errors)
    return float(np.sum(np.where(size <= _ROBUST, size**2 / 2, _ROBUST * (size - _ROBUST / 2))))


def _peaks(products: Sequence[TimedKernel], roof: _Roof, ridge: float, memory_rate: float) -> dict[str, float]:
    """Return FLOP/s by dtype: float32's from the fit, other dtypes' from their products' times beyond the launch."""
    efficiency = roof.bytes_per_s / memory_rate
    peaks = {_MAIN_DTYPE: _round(ridge * memory_rate)}
    for dtype in dict.fromkeys(each.dtype for each in products if each.dtype != _MAIN_DTYPE):
        shown = [
            each.flops / max(each.median_s - each.launches * roof.launch_s, each.median_s / 2)
            for each in products
            if each.dtype == dtype
        ]
        peaks[dtype] = _round(float(np.median(shown)) / efficiency)
    return peaks


def _judge(name: str, members: Sequence[TimedKernel], gpu: Gpu) -> ErrorGroup:
    errors = [predicted_s(each, gpu) / each.median_s - 1 for each in members]
    spreads = [_range(each.repeats) for each in members]
    return group_of(f"{name} kernels", errors, spreads, [each.moved_bytes for each in members])


def group_of(name: str, errors: Sequence[float], spreads: Sequence[float], sizes: Sequence[float]) -> ErrorGroup:
    """Return the model's error over some probes, from their relative errors, spreads of repeats, and bytes."""
    worst: float = max(errors, key=abs)
    return ErrorGroup(
        name=name,
        median_error=round(float(np.median(errors)), _DIGITS),
        typical_error=round(float(np.median(np.abs(errors))), _DIGITS),
        worst_error=round(worst, _DIGITS),
        spread=round(float(np.median(spreads)), _DIGITS),
        least_bytes=max(1, int(min(sizes))),
        most_bytes=max(1, int(max(sizes))),
    )


def _with_times(key: TimedKernel, times_ns: Sequence[int]) -> TimedKernel:
    median_ns = float(np.median(times_ns))
    return dataclasses.replace(key, median_s=median_ns / 1e9, repeats=tuple(time / median_ns for time in times_ns))


def _range(repeats: Sequence[float]) -> float:
    """Return the distance between the quartiles."""
    first, third = np.quantile(repeats, [0.25, 0.75]) if repeats else (1.0, 1.0)
    return float(third - first)


def _means(timed: Sequence[TimedKernel]) -> tuple[dict[str, list[TimedKernel]], tuple[float, ...]]:
    """Return kernels by kind, with means in place of medians, and the quantiles of all times."""
    share, quantiles = _variation(timed)
    by_kind: dict[str, list[TimedKernel]] = defaultdict(list)
    for each in timed:
        by_kind[each.kind].append(dataclasses.replace(each, median_s=each.median_s * share))
    return by_kind, quantiles


def _variation(timed: Sequence[TimedKernel]) -> tuple[float, tuple[float, ...]]:
    """Return a kernel's mean over its median, and its quantiles over the mean; no quantiles if all times are equal."""
    long = [each for each in timed if each.median_s >= _LONG_S] or timed
    repeats = [one for each in long for one in each.repeats]
    if len(set(repeats)) < _LEAST_KERNELS:
        return 1.0, ()
    return spread(repeats)


def _main(members: Sequence[TimedKernel]) -> list[TimedKernel]:
    return [each for each in members if each.dtype == _MAIN_DTYPE]


def _round(value: float) -> float:
    """Round to the digits that a measurement supports."""
    return float(f"{value:.{_DIGITS}g}")


_QUANTILES = 20


def spread(times: Sequence[float]) -> tuple[float, tuple[float, ...]]:
    """Return the mean of times and their quantiles over it, without the least and the greatest, which are outliers."""
    cuts = quantiles(times, n=_QUANTILES, method="inclusive")
    middle = mean((low + high) / 2 for low, high in pairwise(cuts))
    return middle, tuple(round(one / middle, 3) for one in cuts)


# Kinds of kernels that show the memory's rate: they touch each byte once. Only those count that move at least this
# share of the largest one's bytes, which no cache holds.
_STREAMING, _LARGE = ("permute", "elementwise", "reduction", "optimizer"), 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A rate of the best kernel: `what` is "memory", in bytes/s, or the dtype of products, in FLOP/s."""

    what: str
    per_s: float


def reached_rates(timed: Sequence[TimedKernel]) -> list[Reached]:
    """Return the memory's rate, and the rate of products of each dtype."""
    streams = [each for each in timed if each.kind in _STREAMING]
    large_bytes = _LARGE * max(each.moved_bytes for each in streams)
    moved = max(each.moved_bytes / each.median_s for each in streams if each.moved_bytes >= large_bytes)
    products: dict[str, float] = defaultdict(float)
    for each in timed:
        if each.kind == "gemm":
            products[each.dtype] = max(products[each.dtype], each.flops / each.median_s)
    return [Reached(what=what, per_s=rate) for what, rate in {"memory": moved, **products}.items()]
