"""The change torch.compile: elementwise operators fused with their producers, and little host work between kernels.

A script's process recorded the compiled program during a step; a program that traces its modules is traced with
`launching.fusion`.
"""

from __future__ import annotations

from collections.abc import Iterator

from scenarios.config.scenario import Scenario
from scenarios.seam.program import COMPILED_STEP, Program
from twinstep.what_ifs.counterfactuals import Counterfactual
from twinstep.what_ifs.program_changes.kernels import OF_LIBRARIES, Step, tables_of

_NAME = "torch.compile"


def proposals(scenario: Scenario, program: Program, step: Step) -> Iterator[Counterfactual]:
    """Yield the change to compiled code (`launching.fusion`, torch.compile), unless the program has it or cannot."""
    made = program.compiled()
    if made is not None:
        fused = ((one, times) for _, one, times in step.operations if not isinstance(one, OF_LIBRARIES))
        yield Counterfactual(
            name=_NAME,
            group="setting",
            program=made,
            repeats=COMPILED_STEP,
            replays=True,
            made_by="torch.compile(model)",
            saves_at_most_ns=step.host_ns + step.ns(fused),
        )
    elif "model" in tables_of(scenario) and not scenario.workload.launching.fusion:
        yield Counterfactual(name=_NAME, group="setting", values={"launching.fusion": True})
