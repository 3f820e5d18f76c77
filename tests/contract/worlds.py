"""The worlds that the contract of `Rank` is held in: each plays a program on hosts x GPUs and gives its recording.

A further world is one more entry of WORLDS. All of them raise ProgramError when a program goes wrong.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from scenarios.config.hardware import Cluster, Gpu, Host, Inside, Link, Network, Nics
from scenarios.config.scenario import Scenario
from scenarios.seam.program import Program
from scenarios.seam.trace import Recording
from sim.run import simulate
from tests.contract.scripts import Script
from tests.real.pool import shared_pool

WIRE = Link(bytes_per_s=1e9, latency_ns=10_000)
FLOPS_PER_S = dict.fromkeys(("float16", "bfloat16", "float32", "float64"), 1e10)


def scenario(hosts: int, gpus_per_host: int, *, name: str = "contract", timeout_s: float = 20.0) -> Scenario:
    """The least scenario of that many ranks; its own program is not what is played."""
    gpu = Gpu(name="cpu", kind="cpu", memory_bytes=1 << 30, memory_bytes_per_s=1e10, flops_per_s=FLOPS_PER_S)
    inside = Inside(kind="memory", link=WIRE, bridge_bytes_per_s=1e10)
    nics = Nics(per="host", count=1, link=WIRE)
    host = Host(gpus=gpus_per_host, gpu=gpu, inside=inside, nics=nics, cores=2, memory_bytes=1 << 33)
    return Scenario(
        name=name,
        path=Path(f"{name}.toml"),
        program="all_to_all",
        cluster=Cluster(profile="inline", hosts=hosts, host=host, network=Network(kind="non_blocking")),
        batch_size=1,
        steps=1,
        seed=0,
        payload="values",
        fidelity="flows",
        library="gloo",
        timeout_s=timeout_s,
    )


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
