"""The worlds that the contract of `Rank` is held in: each plays a program on hosts x GPUs and gives its recording.

A further world is one more entry of WORLDS. All of them raise ProgramError when a program goes wrong.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from real.check.program import scenario_of
from scenarios.config.scenario import Scenario
from scenarios.seam.program import Program
from scenarios.seam.trace import Recording
from sim.run import simulate
from tests.contract.scripts import Script
from tests.real.pool import shared_pool


def scenario(hosts: int, gpus_per_host: int, *, name: str = "contract", timeout_s: float = 20.0) -> Scenario:
    """The least scenario of that many ranks; its own program is not what is played."""
    return scenario_of(hosts, gpus_per_host, name=name, timeout_s=timeout_s)


def _real(program: Program, scenario: Scenario) -> Recording:
    return shared_pool().play(program, scenario)


def _sim(program: Program, scenario: Scenario) -> Recording:
    return simulate(scenario, program)


WORLDS: dict[str, Callable[[Program, Scenario], Recording]] = {"sim": _sim, "real": _real}


def results(
    world: str, hosts: int, gpus_per_host: int, body: Callable[..., Awaitable[Any]], *given: object
) -> list[Any]:
    """What `await body(rank, *given)` returned on each rank of a world, in rank order.

    `body` is a function of a module; `given` and the results travel to and from the real world's processes as pickles.

    Raises:
        ProgramError: the program went wrong.
    """
    script = Script(body, given)
    WORLDS[world](script, scenario(hosts, gpus_per_host))
    return [script.returned[rank] for rank in range(hosts * gpus_per_host)]
