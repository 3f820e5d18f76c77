"""Fits a cluster's parameters to its network probes, so that the simulator shows the same times.

Each parameter has one observation that it moves most. The fit simulates the same probes, so that what else an
observation contains (other threads' wake-ups, headers, a segment's way through the switch) is not counted twice.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from real.calibration.kernels.fit import spread
from real.calibration.network.probes import LONG, VERBS, WARM_UP, Probe, bulk_bytes, calls_timed
from scenarios.config.hardware import Cluster
from scenarios.config.host_costs import Tcp
from scenarios.seam.trace import Metric, Span


@dataclass(frozen=True, slots=True)
class Seen:
    """A probe's times at one size, in s, without the warm-up."""

    probe: Probe
    whole_s: tuple[float, ...]
    parts_s: Mapping[str, tuple[float, ...]]


def observe(
    probes: Iterable[Probe], spans: Iterable[Span], metrics: Iterable[Metric] = ()
) -> dict[tuple[str, int], Seen]:
    """Return a recording of these probes (see `schedule`), by probe and size.

    `whole_s` are rank 0's steps; for "loaded ping" the ping's time, and for "barrier" all ranks' time, because a rank
    that comes late has a short step. `parts_s` are rank 0's sends ("send"), from a barrier's call until the program
    awaits it ("issue"), and the numbers recorded by each rank ("cpu_process_s/0").
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
    observed: dict[tuple[str, int], Seen] = {}
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
        before = observed.get(key, Seen(probe, (), {}))  # a schedule may repeat a probe
        observed[key] = Seen(
            probe,
            before.whole_s + tuple(_duration_s(probe.name, by_step[step], both[step]) for step in steps),
            {name: before.parts_s.get(name, ()) + tuple(values) for name, values in parts.items()},
        )
    return observed


def whole_s(steps: Sequence[Span]) -> float:
    """Return seconds from the first rank's start of a step to the last rank's end."""
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


Sight = Mapping[tuple[str, int], Seen]
Play = Callable[[Cluster], Sight]

_SWEEPS = 3
# A socket's buffer and a connection's queue hold at least one segment.
_LEAST = 1 << 14
_QUEUES = [segments * _LEAST for segments in (*range(1, 17), 20, 24, 32, 48, 64)]
# Probes that are measured only.
_NOT_PLAYED = ("idle", "wake", "path")
# Time after which an idle core is asleep. On KVM the host looks for work for a guest's idle core for some time before
# it lets another guest have it (Documentation/virt/kvm/halt-polling.rst); a thread woken on a virtual machine of 2
# cores took 1 us when the other core had been idle for 50 us, 1 or 40 us after 100 us, and 40 us after 200 us.
_NAP_NS = 100_000
# Handlings of a barrier of two ranks by gloo's threads: a rank writes three messages, reads three, and
# wakes a worker.
_WRITTEN_AND_READ = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """A probe at a size: measured and fitted times, in s."""

    probe: str
    size_bytes: int
    measured_s: float
    low_s: float
    high_s: float
    predicted_s: float

    @property
    def error(self) -> float:
        """The signed error relative to the measured time."""
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A parameter: its bounds, the offset at which to look for its effect, and the observation (in s) that decides it.

    `below` names a parameter that this one must not exceed.
    """

    name: str
    least: float
    most: float
    aside: float
    observe: Callable[[Sight], float]
    below: str | None = None


def fit(
    cluster: Cluster, measured: Sight, play: Play, crowded_s: float | None = None
) -> tuple[Cluster, list[Residual]]:
    """Fit a cluster whose simulated probes show the measured times; return the residuals too.

    Args:
        cluster: hosts, their NICs' nominal rates and bursts, and whether they share cores; its `tcp` is replaced.
        crowded_s: core seconds of a barrier by gloo's threads on busy cores (see `crowded_cores`): waking idle cores
            costs a virtual machine core time, too.
    """
    values = _direct(cluster, measured, crowded_s)
    bulk = bulk_bytes(cluster)
    parameters = [
        # A core that was busy just now wakes no slower than one that sleeps: without that bound, this parameter alone
        # would absorb barriers that the system delayed.
        _Parameter("wake_soon_ns", 0, 1e8, 2000, lambda sight: _whole(sight, "barrier", 0), below="wake_ns"),
        _Parameter("wake_ns", 0, 1e8, 2000, lambda sight: _whole(sight, "late barrier", 0)),
        _Parameter(
            "payload_share",
            0.01,
            1,
            0.01,
            lambda sight: _whole(sight, "message", LONG * bulk) - _whole(sight, "message", bulk),
        ),
        _Parameter("acknowledged_share", 0, 1, 0.01, lambda sight: _whole(sight, "both", bulk)),
        _Parameter(
            "send_buffer_bytes", _LEAST, 1 << 30, _LEAST, lambda sight: median(sight["message", bulk].parts_s["send"])
        ),
    ]
    wanted = {parameter.name: parameter.observe(measured) for parameter in parameters}
    # One parameter after the other, as each has its own observation; what they share settles over the sweeps.
    for sweep in range(_SWEEPS):
        if sweep == _SWEEPS - 1:
            # In the last sweep only: a search over all sizes simulates often, and needs the others nearly right.
            values["queue_bytes"] = _best_queue(cluster, values, measured, play)
        for parameter in parameters:
            _improve(parameter, values, wanted[parameter.name], lambda: play(_with(cluster, values)))
    issue_s, wake_s = measured["barrier", 0].parts_s["issue"], measured["wake", 0].parts_s["wake_s/0"]
    fitted = _with(cluster, values, spread(issue_s)[1], spread(wake_s)[1])
    return fitted, _residuals(measured, play(fitted))


def _best_queue(cluster: Cluster, values: dict[str, float], measured: Sight, play: Play) -> float:
    """Return the best of some queue sizes: a ping waits for whole segments, so that slopes mean nothing."""
    bulk = bulk_bytes(cluster)
    wanted_s = _whole(measured, "loaded ping", bulk)

    def off_s(queue_bytes: int) -> float:
        played = play(_with(cluster, {**values, "queue_bytes": float(queue_bytes)}))
        return abs(_whole(played, "loaded ping", bulk) - wanted_s)

    return float(min(_QUEUES, key=off_s))


def _improve(parameter: _Parameter, values: dict[str, float], wanted_s: float, look: Callable[[], Sight]) -> None:
    """Improve a parameter by one step of the secant method; a parameter without effect stays."""
    most = parameter.most if parameter.below is None else max(values[parameter.below], parameter.least)
    here = min(values[parameter.name], most)
    values[parameter.name] = here
    here_s = parameter.observe(look())
    # To the other side at the upper bound, where a step ahead would show no effect.
    aside = here + parameter.aside if here + parameter.aside <= most else max(here - parameter.aside, parameter.least)
    if aside == here:
        return
    # Some parameters depend on each other: later sweeps correct what one step leaves.
    values[parameter.name] = aside
    slope = (parameter.observe(look()) - here_s) / (aside - here)
    step = (wanted_s - here_s) / slope if slope else 0.0
    values[parameter.name] = min(max(here + step, parameter.least), most)


def _direct(cluster: Cluster, measured: Sight, crowded_s: float | None) -> dict[str, float]:
    """Return the parameters that need no model, and starting values of the others."""
    bulk = bulk_bytes(cluster)
    bulk_s = _busy_s(cluster, measured, bulk)
    barrier_s = min(_barrier_s(measured), math.inf if crowded_s is None else crowded_s)
    issue_s = median(measured["barrier", 0].parts_s["issue"])
    handling_ns = barrier_s / _WRITTEN_AND_READ * 1e9
    wake_ns = mean(measured["wake", 0].parts_s["wake_s/0"]) * 1e9
    path_ns = median(measured["path", 0].parts_s["path_s/0"]) * 1e9
    return {
        "issue_ns": issue_s * 1e9,
        "verb_ns": _whole(measured, "verbs", 0) / VERBS * 1e9,
        "post_ns": handling_ns,
        "message_ns": handling_ns,
        "send_bytes_per_s": bulk / max(bulk_s[0], 1e-9),
        "receive_bytes_per_s": bulk / max(bulk_s[1], 1e-9),
        "wake_ns": wake_ns,
        "wake_soon_ns": min(wake_ns, 5000.0),
        "latency_ns": max(path_ns - 2 * handling_ns, 0.0),  # a path contains one write and one read
        "payload_share": 0.95,
        "acknowledged_share": 0.02,
        "send_buffer_bytes": float(1 << 20),
        "queue_bytes": float(1 << 17),
    }


def _busy_s(cluster: Cluster, measured: Sight, size_bytes: int) -> tuple[float, float]:
    """Return core seconds of a one-way message on the sender's and on the receiver's side, without other processes'
    work.

    The kernel charges a message's work to whichever process it interrupts. So the whole machine's time counts as the
    message's, and where the hosts share one machine, the receiver's is what the sender's process leaves.
    """
    observed = measured["cpu", size_bytes]
    whole_s = sum(observed.whole_s)
    messages = len(observed.whole_s) * calls_timed(size_bytes)

    def machine_s(rank: int) -> float:
        idle = median(measured["idle", 0].parts_s[f"busy_cores/{rank}"])
        return (sum(observed.parts_s[f"cpu_machine_s/{rank}"]) - idle * whole_s) / messages

    if not cluster.hosts_share_cores:
        return machine_s(0), machine_s(cluster.host.gpus)
    sending_s, reading_s = (
        sum(observed.parts_s[f"cpu_process_s/{rank}"]) / messages for rank in (0, cluster.host.gpus)
    )
    # /proc/stat counts ticks, and may miss short work: the receiver's own account is a bound.
    return sending_s, max(machine_s(0) - sending_s, reading_s)


def _barrier_s(measured: Sight) -> float:
    """Return core seconds of a barrier on one rank, of gloo's threads alone, by its process's own account.

    The least of all repetitions counts: time beyond it was spent on spinning (see `crowded_cores`).
    """
    return min(measured["cpu", 0].parts_s["cpu_others_s/0"]) / calls_timed(0)


def _with(
    cluster: Cluster,
    values: Mapping[str, float],
    issue_spread: tuple[float, ...] = (),
    wake_spread: tuple[float, ...] = (),
) -> Cluster:
    fields: dict[str, Any] = {
        name: round(value) if name.endswith(("_ns", "_bytes")) else value for name, value in values.items()
    }
    latency_ns, payload_share = fields.pop("latency_ns"), fields.pop("payload_share")
    for name in ("queue_bytes", "send_buffer_bytes"):
        fields[name] = max(1, fields[name])
    fields["wake_soon_ns"] = min(fields["wake_soon_ns"], fields["wake_ns"])
    tcp = Tcp(**fields, nap_ns=_NAP_NS, wake_spread=wake_spread, issue_spread=issue_spread)
    nics, inside = cluster.host.nics, cluster.host.inside
    link = dataclasses.replace(nics.link, latency_ns=latency_ns // 2)
    host = dataclasses.replace(
        cluster.host,
        nics=dataclasses.replace(nics, link=link),
        inside=dataclasses.replace(inside, link=dataclasses.replace(inside.link, latency_ns=latency_ns)),
    )
    return dataclasses.replace(cluster, host=host, tcp=tcp, payload_share=payload_share)


def _whole(sight: Sight, name: str, size_bytes: int) -> float:
    return median(sight[name, size_bytes].whole_s)


def _residuals(measured: Sight, predicted: Sight) -> list[Residual]:
    rows = []
    for key, observed in measured.items():
        if key[0] in _NOT_PLAYED:
            continue
        ordered = sorted(observed.whole_s)
        tenth = len(ordered) // 10
        rows.append(
            Residual(
                probe=key[0],
                size_bytes=key[1],
                measured_s=median(ordered),
                low_s=ordered[tenth],
                high_s=ordered[-1 - tenth],
                predicted_s=median(predicted[key].whole_s),
            )
        )
    return rows
