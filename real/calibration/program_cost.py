"""Measures what a program costs besides its kernels and calls, from the spans of a program and the gaps between them.

Python, torch and kernels' code are quick in a tight loop. In a program each line runs once a step, on caches that hold
other data, and is several times slower. So a short kernel takes longer than its probe, too.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median

from scenarios.config.hardware import Cluster
from scenarios.config.host_costs import Tcp
from scenarios.config.scenario import Compression, Interaction, Model, Recommender, Scenario, Table
from scenarios.seam.trace import Span
from scenarios.workloads.dlrm.program import DlrmProgram

STEPS = 45
# First steps, which compress nothing and warm up.
_WARM_UP = 5
# Shorter kernels are mostly launch.
_SHORT_NS = 150_000
# Before these computations the program may wait for something that is no operation: for another stream.
_AWAITED = (
    "dense.update",
    "dense.gradients.bucket",
    "dense.forward.1",
    "table_row_wise.update",
    "table_row_wise.output_dist_backward.columns",
)
# More cores than threads of a rank.
_PLENTY = 32
# A place that takes this many times the median place has waited for a core.
_WAITED = 8

Places = Mapping[tuple[str, ...], Sequence[int]]


def scenario_of(scenario: Scenario) -> Scenario:
    """Return a scenario of a small recommender with compressed gradients, on the scenario's cluster."""
    tables = tuple(
        Table(name=f"table {number}", rows=5000, dim=64, ids_per_sample=4, sharding=("table_row_wise",))
        for number in range(4)
    )
    return dataclasses.replace(
        scenario.with_run(steps=STEPS, batch_size=128),
        program="dlrm",
        workload=Recommender(
            model=Model(
                dense_features=13,
                bottom=(256, 64),
                top=(256, 128, 1),
                interaction=Interaction(kind="dot"),
                tables=tables,
            ),
            compression=Compression(kind="batched_powersgd", matrix_approximation_rank=2, start_powerSGD_iter=2),
        ),
    )


def alone(cluster: Cluster) -> Cluster:
    """Return the cluster on which kernels take their probes' times: each thread has a core, and Python costs
    nothing.
    """
    assert cluster.tcp is not None
    free = dataclasses.replace(cluster.tcp, verb_ns=0, cold_ns=0)
    host = dataclasses.replace(cluster.host, cores=_PLENTY * cluster.host.gpus)
    return dataclasses.replace(cluster, host=host, tcp=free, hosts_share_cores=False)


def build(scenario: Scenario) -> DlrmProgram:
    """Build the program of the small recommender, for `Job.program`."""
    return DlrmProgram(scenario_of(scenario))


def fit(tcp: Tcp, measured: Iterable[Span], predicted: Iterable[Span]) -> Tcp:
    """Fit `verb_ns` and `cold_ns` to a real recording of such a program and a prediction of its kernels alone."""
    measured = list(measured)
    between, issuing = _gaps(measured)
    kernels, alone = _kernels(measured), _kernels(predicted)
    short = [time_ns - alone[place] for place, time_ns in kernels.items() if alone[place] < _SHORT_NS]
    verb_ns = max(_typical(between) + fmean(short), 0)
    # A call is issued at few places, before some of which a stream waits for another: hence the median.
    cold_ns = max(median(median(times) for times in issuing.values()) - tcp.issue_ns, 0)
    return dataclasses.replace(tcp, verb_ns=round(verb_ns), cold_ns=round(cold_ns))


def _gaps(spans: Iterable[Span]) -> tuple[Places, Places]:
    """Return ns before a computation, and ns before and while an operation is issued, by place in the program."""
    streams: dict[tuple[int, str, int], list[Span]] = defaultdict(list)
    for span in spans:
        if span.kind != "step" and span.step >= _WARM_UP:
            streams[span.rank, span.stream, span.step].append(span)
    between: dict[tuple[str, ...], list[int]] = defaultdict(list)
    issuing: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for (_, stream, _), own in streams.items():
        for before, after in pairwise(sorted(own, key=lambda span: span.sequence)):
            since_ns = before.end_ns if before.kind == "compute" else before.wait_until_ns
            place = stream, before.label, after.label
            if after.kind == "compute" and after.label not in _AWAITED:
                between[place].append(after.start_ns - since_ns)
            elif (
                after.kind != "compute" and since_ns <= after.issued_ns
            ):  # else it was issued before the other's wait was over
                issuing[place].append(after.wait_from_ns - since_ns)
    return between, issuing


def _kernels(spans: Iterable[Span]) -> dict[tuple[str, str], float]:
    """Return the median ns of each computation of the program."""
    times_ns: dict[tuple[str, str], list[int]] = defaultdict(list)
    for span in spans:
        if span.kind == "compute" and span.step >= _WARM_UP:
            times_ns[span.stream, span.label].append(span.end_ns - span.start_ns)
    return {place: median(times) for place, times in times_ns.items()}


def _typical(places: Places) -> float:
    """Return the mean of the places' medians, as a step contains their sum."""
    medians = [max(median(times), 0) for times in places.values()]
    return fmean(one for one in medians if one <= _WAITED * median(medians))
