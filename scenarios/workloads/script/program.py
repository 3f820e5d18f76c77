"""A user's own training script, live: a process a rank runs it, one at a time, and its collectives in simulated time.

Values travel as the script has them, so that control flow, losses and plans are those of a real run. What a process
computes between two calls is charged as it took here, in CPU time of one thread. Nothing is charged before the first
step of an optimizer is over: setting up and the first step belong to no step, and after the last the script is ended.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any

from scenarios.config.scenario import Scenario
from scenarios.seam.backend import Work
from scenarios.seam.errors import ProgramError
from scenarios.seam.group import Group
from scenarios.seam.kernel import Kernel
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.workloads.script.config import Script
from scenarios.workloads.script.environment import environment_of
from scenarios.workloads.script.player import main
from scenarios.workloads.script.requests import Collective, Packed, issue

# What is computed of a script, in reports.
KIND = "script"


class ScriptProgram(Program):
    """`scenario.steps` steps of the script, unless it ends before; records `loss`, that of each backward pass.

    Raises:
        ProgramError: a rank raises, says nothing for `run.timeout`, or makes calls that do not fit the others'.
    """

    needs_values = True

    def __init__(self, scenario: Scenario) -> None:
        assert isinstance(scenario.options, Script)
        self.scenario, self.script = scenario, scenario.options
        self._start = multiprocessing.get_context("forkserver")
        self._start.set_forkserver_preload([f"{__package__}.player"])

    async def __call__(self, rank: Rank) -> None:
        if rank.device.type != "cpu":
            raise ProgramError(f"rank {rank.rank}: {self.script.path} computes on CPUs, not on {rank.device.type}")
        player = _Player(self._start, self.script, rank, self.scenario)
        try:
            await _Played(self, rank, player).run()
        finally:
            player.close()


class _Player:
    """The process of one rank."""

    def __init__(self, start: Any, script: Script, rank: Rank, scenario: Scenario) -> None:
        self._rank = f"rank {rank.rank}"
        self._name = f"{self._rank}: {script.path}"
        self._timeout_s = scenario.timeout_s
        self._connection: Connection
        self._connection, other = start.Pipe()
        env = environment_of(script, rank, address="localhost", port=29500)
        given = (other, os.fspath(script.path), script.args, env)
        self._process = start.Process(target=main, args=given, daemon=True)
        with _without_main():
            self._process.start()
        other.close()

    def next(self) -> tuple[int, str, Any]:
        """What the rank asks next: CPU time in ns, the request and its argument."""
        if not self._connection.poll(self._timeout_s):
            raise ProgramError(
                f"{self._name} made no call for {self._timeout_s:g} s (run.timeout): it computes, sleeps or waits for"
                " something that is not torch.distributed"
            )
        try:
            found: tuple[int, str, Any] = self._connection.recv()
        except EOFError:
            self._process.join(1)
            raise ProgramError(f"{self._name}: its process ended with code {self._process.exitcode}") from None
        if found[1] == "error":
            raise ProgramError(f"{self._rank}: {found[2]}")
        return found

    def answer(self, value: Any = None) -> None:
        self._connection.send(value)

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._connection.close()


class _Played:
    """One rank's script, request by request."""

    def __init__(self, program: ScriptProgram, rank: Rank, player: _Player) -> None:
        self._program, self._scenario, self._rank, self._player = program, program.scenario, rank, player
        self._works: dict[int, Work[Any]] = {}
        self._groups: list[Group] = [rank.world]
        self._step: AbstractContextManager[None] | None = None
        self._steps = 0

    async def run(self) -> None:
        """Until the script ends, or has made as many steps as are wanted."""
        is_running = True
        while is_running:
            spent_ns, kind, argument = self._player.next()
            if self._step is not None and spent_ns:
                await self._charge(spent_ns)
            is_running = kind != "end" and not (kind == "step" and not self._next_step())
            if is_running:
                self._player.answer(await self._respond(kind, argument))
        for work in self._works.values():
            await work
        if self._step is not None:
            self._step.__exit__(None, None, None)

    async def _respond(self, kind: str, argument: Any) -> Any:
        if kind == "issue":
            self._works[argument.number] = self._issue(argument)
        elif kind == "wait":
            found = await self._works.pop(argument)
            outputs = [] if found is None else found if isinstance(found, Sequence) else [found]
            return [Packed.of(each) for each in outputs]
        elif kind == "new_group":
            self._groups.append(self._rank.new_group(argument))
            return len(self._groups) - 1
        elif kind == "plan":
            self._program.plan = tuple(argument)
        elif kind == "record" and self._step is not None:
            self._rank.record(*argument)
        return None

    def _next_step(self) -> bool:
        """Begin a step where the last one ends; whether there is to be a further one."""
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None
        if self._steps == self._scenario.steps:
            return False
        self._step = self._rank.step(self._steps)
        self._step.__enter__()
        self._steps += 1
        return True

    async def _charge(self, spent_ns: int) -> None:
        """What the process computed: as long as it took here."""
        gpu = self._scenario.cluster.host.gpu
        rate = gpu.flops_per_s["float32"] * gpu.efficiency.get(KIND, gpu.efficiency.get("default", 1.0))
        kernel = Kernel(kind=KIND, flops=spent_ns * 1e-9 * rate, launches=0)
        await self._rank.compute(kernel, _nothing, label=KIND)

    def _issue(self, call: Collective) -> Work[Any]:
        """The verb on tensors of its own."""
        inputs, targets = ([each.tensor() for each in tensors] for tensors in (call.inputs, call.outputs))
        group = self._groups[call.group]
        return issue(self._rank, call.verb, inputs, targets, group=group, label=call.label, options=call.options)


@contextmanager
def _without_main() -> Iterator[None]:
    """A process that is started runs this one's main module anew, which may be the one that asks for a prediction."""
    main_module = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main_module


def _nothing() -> None:
    """What the process has computed already."""
