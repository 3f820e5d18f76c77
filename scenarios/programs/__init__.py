"""One workload a file; `build` chooses."""

from __future__ import annotations

from collections.abc import Callable

from scenarios.programs.all_to_all import AllToAllProgram
from scenarios.programs.dlrm import DlrmProgram
from scenarios.programs.powersgd import PowerSGDProgram
from scenarios.rank import Program
from scenarios.scenario import Scenario

_PROGRAMS: dict[str, Callable[[Scenario], Program]] = {
    "dlrm": DlrmProgram,
    "all_to_all": AllToAllProgram,
    "powersgd": PowerSGDProgram,
}


def build(scenario: Scenario) -> Program:
    """The scenario's program.

    Raises:
        ScenarioError: its model does not fit its cluster.
    """
    return _PROGRAMS[scenario.program](scenario)
