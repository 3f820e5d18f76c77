"""Simulates scripts of which tests look at single lines: many make no step, which no prediction may lack."""

from __future__ import annotations

from scenarios.config.scenario import Scenario
from scenarios.seam.trace import Recording
from scenarios.workloads.build import build
from sim.run import simulate


def simulate_unjudged(scenario: Scenario) -> Recording:
    """Simulate whatever the scenario's script does, also if that is no prediction."""
    program = build(scenario)
    program.judge = lambda: None  # type: ignore[method-assign]
    return simulate(scenario, program)
