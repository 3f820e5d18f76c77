"""Compiles modules: elementwise operators fused with what they follow, and little work of the host between kernels.

A script's is what its process noted beside a step; a program that traces its modules is traced with `launching.fusion`.
"""

from __future__ import annotations

from collections.abc import Iterator

from scenarios.config.scenario import Scenario
from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.convolution import Convolution
from scenarios.seam.operations.products import Product
from scenarios.seam.program import Program
from scenarios.workloads.registry import find
from sim.study.counterfactuals import Counterfactual
from sim.study.program_changes.kernels import Step

_NAME = "torch.compile"
# What stays as it is, but for its alignment.
_OF_LIBRARIES = (Product, Attention, Convolution)


def proposals(scenario: Scenario, program: Program, step: Step) -> Iterator[Counterfactual]:
    """Yield the change where it can be simulated and is not made."""
    made = program.compiled()
    if made is not None:
        fused = ((one, times) for _, one, times in step.operations if not isinstance(one, _OF_LIBRARIES))
        yield Counterfactual(
            name=_NAME,
            group="setting",
            program=made,
            replays=True,
            made_by="torch.compile(model)",
            saves_at_most_ns=step.host_ns + step.ns(fused),
        )
    elif "model" in _tables(scenario) and not scenario.launching.fusion:
        yield Counterfactual(name=_NAME, group="setting", values={"launching.fusion": True})


def _tables(scenario: Scenario) -> set[str]:
    return {table.key for table in find(scenario.program, scenario.program_folder).tables}
