"""A recording of the network's probes, real or simulated, as times by probe and size; pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from real.calibration.network.probes import WARM_UP, Probe
from scenarios.seam.trace import Metric, Span


@dataclass(frozen=True, slots=True)
class Seen:
    """What a probe showed at one size: seconds of each repetition but the first ones."""

    probe: Probe
    whole_s: tuple[float, ...]
    parts_s: Mapping[str, tuple[float, ...]]


def observe(
    probes: Iterable[Probe], spans: Iterable[Span], metrics: Iterable[Metric] = ()
) -> dict[tuple[str, int], Seen]:
    """A recording of these probes (see `schedule`), by probe and size.

    `whole_s` are rank 0's steps, but of "loaded ping" the ping's, and of "barrier" all ranks': who comes late has a
    short one. `parts_s` are of its sends ("send"), from a barrier's
    call until the program awaits it ("issue"), and the numbers recorded by each rank ("cpu_process_s/0").
    """
    by_step: dict[int, list[Span]] = defaultdict(list)
    both: dict[int, list[Span]] = defaultdict(list)
    for span in spans:
        if span.kind == "step":
            both[span.step].append(span)
        if span.rank == 0 and span.step >= 0:
            by_step[span.step].append(span)
    numbers: dict[int, list[Metric]] = defaultdict(list)
    for metric in metrics:
        numbers[metric.step].append(metric)
    seen: dict[tuple[str, int], Seen] = {}
    first = 0
    for probe in probes:
        steps = range(first + WARM_UP, first + probe.repeats)
        first += probe.repeats
        parts: dict[str, list[float]] = defaultdict(list)
        for step in steps:
            for span in by_step[step]:
                if span.kind == "send" and span.bytes_in == probe.size_bytes:
                    parts["send"].append((span.end_ns - span.issued_ns) / 1e9)
                if span.label == "barrier":
                    parts["issue"].append((span.wait_from_ns - span.issued_ns) / 1e9)
            for metric in numbers[step]:
                parts[f"{metric.name}/{metric.rank}"].append(metric.value)
        key = probe.name, probe.size_bytes
        before = seen.get(key, Seen(probe, (), {}))  # a probe may come several times
        seen[key] = Seen(
            probe,
            before.whole_s + tuple(_duration_s(probe.name, by_step[step], both[step]) for step in steps),
            {name: before.parts_s.get(name, ()) + tuple(values) for name, values in parts.items()},
        )
    return seen


def whole_s(steps: Sequence[Span]) -> float:
    """Seconds of one step, of which these are all ranks': from the first's start to the last's end."""
    return (max(span.end_ns for span in steps) - min(span.start_ns for span in steps)) / 1e9


def _duration_s(name: str, spans: Sequence[Span], both: Sequence[Span]) -> float:
    if name == "barrier":
        return whole_s(both)
    if name == "loaded ping":
        ping = [span for span in spans if span.label == name]
        (coming,) = [span for span in ping if span.kind == "recv"]
        (leaving,) = [span for span in ping if span.kind == "send"]
        return (coming.end_ns - leaving.issued_ns) / 1e9
    (whole,) = [span for span in spans if span.kind == "step"]
    return (whole.end_ns - whole.start_ns) / 1e9
