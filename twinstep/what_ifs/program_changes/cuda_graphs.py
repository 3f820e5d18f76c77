"""The change CUDA graphs: no kernel waits for the host, unless the step reads back results of the GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from scenarios.config.scenario import Scenario
from scenarios.seam.operations.operation import Operation
from sim.rank.observed import ObservedStep
from twinstep.what_ifs.counterfactuals import Counterfactual
from twinstep.what_ifs.program_changes.kernels import OF_LIBRARIES, Step, tables_of

_NAME = "CUDA graphs"
# A graph repeats its sizes, so exchanges and lookups need as many ids in each step: padded to a capacity, as HugeCTR's.
_OF_TABLES = "CUDA graphs with fixed numbers of ids"
_SCRIPT = "script"  # the only program that is barred: ready programs do not wait for the GPU between kernels
_READS = (
    "the host waits for the GPU within a step: expected no .item(), .cpu(), nonzero() or synchronize() between kernels"
)
_SHAPES = "shapes of products differ from step to step: expected the same kernels in each step"


def proposals(scenario: Scenario, step: Step) -> Iterator[Counterfactual]:
    """Yield the change where programs can have it and it is not made; a barred one states why."""
    if "launching" not in tables_of(scenario) or scenario.workload.launching.cuda_graphs:
        return
    yield Counterfactual(
        name=_OF_TABLES if scenario.workload.tables else _NAME,
        group="setting",
        values={"launching.cuda_graphs": True},
        replays=True,
        saves_at_most_ns=step.host_ns,
        barred=why_barred(step) if scenario.program == _SCRIPT else "",
    )


def why_barred(step: Step) -> str:
    """Return why a step cannot be launched as graphs, in words; "" if it can."""
    if step.observed.reads_back:
        return _READS
    return _SHAPES if step.before is not None and _shapes(step.before) != _shapes(step.observed) else ""


def _shapes(step: ObservedStep) -> Counter[Operation]:
    found = Counter[Operation]()
    for _, operation, times in step.operations():
        if isinstance(operation, OF_LIBRARIES):
            found[operation] += times
    return found
