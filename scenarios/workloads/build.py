"""The program of a scenario; checks that what each rank needs fits into its GPU's memory."""

from __future__ import annotations

from dataclasses import replace

from scenarios.config.scenario import Scenario
from scenarios.seam.errors import ScenarioError
from scenarios.seam.program import Program
from scenarios.workloads.device_memory import CONTEXT, FRAGMENTATION, check_fits, device_rows
from scenarios.workloads.effort import Effort, check_memory
from scenarios.workloads.locate import factory


def build(scenario: Scenario) -> Program:
    """The scenario's program.

    Raises:
        ScenarioError: the factory returns no program, or what a rank needs exceeds its GPU's memory.
    """
    program = factory(scenario.program, scenario.path.parent)(scenario)
    if not isinstance(program, Program):
        raise ScenarioError(
            f"{scenario.path}: program = '{scenario.program}': expected a function that returns a"
            f" scenarios.seam.program.Program, but it returns a {type(program).__name__}"
        )
    program.memory = (*program.memory, *device_rows(scenario.cluster.host.gpu, program.memory))
    check_fits(scenario, program)
    return program


def build_simulation(scenario: Scenario) -> Program:
    """The same, for this machine to simulate.

    Raises:
        ScenarioError: as `build` does, or the simulation takes more memory than this machine has.
    """
    program = build(scenario)
    check_memory(f"{scenario.path}: run.ranks = '{scenario.ranks}'", effort_of(scenario, program))
    return program


def effort_of(scenario: Scenario, program: Program) -> Effort:
    """What simulating a step takes; with payload, all that the ranks hold is there."""
    effort = program.effort or Effort()
    tensors = (row.size_bytes for row in program.memory if row.part not in (CONTEXT, FRAGMENTATION))
    held = sum(tensors) if scenario.payload == "values" else 0
    return replace(effort, held_bytes=effort.held_bytes + held)
