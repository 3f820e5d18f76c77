"""A user's own training script, live: a process a rank runs it, one at a time, and its collectives in simulated time.

Values travel as the script has them, so that control flow, losses and plans are those of a real run. What a process
computes between two calls is charged as it took here, in CPU time of one thread. Nothing is charged before the first
step of an optimizer is over: setting up and the first step belong to no step, and after the last the script is ended.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
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
from scenarios.workloads.script.gpu.pretend import SeenGpu
from scenarios.workloads.script.player import main
from scenarios.workloads.script.requests import Collective, Launched, Packed, issue
from scenarios.workloads.script.streams import KIND, Streams


class ScriptProgram(Program):
    """`scenario.steps` steps of the script, unless it ends before; records `loss`, that of each backward pass.

    Raises:
        ProgramError: a rank raises, says nothing for `run.timeout`, or makes calls that do not fit the others'.
    """

    needs_values = True

    def __init__(self, scenario: Scenario) -> None:
        assert isinstance(scenario.options, Script)
        self.scenario, self.script = scenario, scenario.options
        self.mail: defaultdict[tuple[int, int], deque[Packed]] = defaultdict(deque)
        self._start = multiprocessing.get_context("forkserver")
        of_gpus = [f"{__package__}.gpu.play"] if scenario.cluster.host.gpu.kind == "cuda" else []
        self._start.set_forkserver_preload([f"{__package__}.player", *of_gpus])

    async def __call__(self, rank: Rank) -> None:
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
        given = (other, os.fspath(script.path), script.args, env, _seen(scenario))
        self._process = start.Process(target=main, args=given, daemon=True)
        with _without_main():
            self._process.start()
        other.close()

    def next(self) -> tuple[int | Sequence[Launched], str, Any]:
        """What the rank asks next: what it has computed, the request and its argument."""
        if not self._connection.poll(self._timeout_s):
            raise ProgramError(
                f"{self._name} made no call for {self._timeout_s:g} s (run.timeout): it computes, sleeps or waits for"
                " something that is not torch.distributed"
            )
        try:
            found: tuple[int | Sequence[Launched], str, Any] = self._connection.recv()
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
        self._streams = Streams(rank)
        self._is_on_gpu = self._scenario.cluster.host.gpu.kind == "cuda"
        self._has_values: dict[int, bool] = {}
        self._receives: dict[int, tuple[int, int]] = {}  # source and target of a message, by the call's number
        self._groups: list[Group] = [rank.world]
        self._step: AbstractContextManager[None] | None = None
        self._steps = 0

    async def run(self) -> None:
        """Until the script ends, or has made as many steps as are wanted."""
        is_running = True
        while is_running:
            spent, kind, argument = self._player.next()
            if spent and (self._step is not None or not isinstance(spent, int)):
                await self._charge(spent)
            is_running = kind != "end" and not (kind == "step" and not await self._next_step())
            if is_running:
                self._player.answer(await self._respond(kind, argument))
        for work in self._works.values():
            await work
        await self._streams.settle()
        if self._step is not None:
            self._step.__exit__(None, None, None)

    async def _respond(self, kind: str, argument: Any) -> Any:
        if kind == "issue":
            self._works[argument.number] = self._issue(argument)
        elif kind == "wait":
            number, stream = argument
            work = self._works.pop(number)
            if number in self._receives:
                await work
                return [self._program.mail[self._receives.pop(number)].popleft()]
            if self._is_on_gpu and not self._has_values.pop(number):
                self._streams.after(stream, work)
                return []
            found = await work
            outputs = [] if found is None else found if isinstance(found, Sequence) else [found]
            return [Packed.shape_of(each) if each.is_meta else Packed.of(each) for each in outputs]
        elif kind == "new_group":
            self._groups.append(self._rank.new_group(argument))
            return len(self._groups) - 1
        elif kind == "synchronize":
            await self._streams.settle()
        elif kind == "plan":
            self._program.plan = tuple(argument)
        elif kind == "record" and self._step is not None:
            self._rank.record(*argument)
        return None

    async def _next_step(self) -> bool:
        """Begin a step where the last one ends; whether there is to be a further one."""
        await self._streams.settle()
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None
        if self._steps == self._scenario.steps:
            return False
        self._step = self._rank.step(self._steps)
        self._step.__enter__()
        self._steps += 1
        return True

    async def _charge(self, spent: int | Sequence[Launched]) -> None:
        """What the process computed: as long as it took here, or what it has launched."""
        if not isinstance(spent, int):
            self._streams.launch(spent)
            return
        gpu = self._scenario.cluster.host.gpu
        rate = gpu.flops_per_s["float32"] * gpu.efficiency.get(KIND, gpu.efficiency.get("default", 1.0))
        kernel = Kernel(kind=KIND, flops=spent * 1e-9 * rate, launches=0)
        await self._rank.compute(kernel, _nothing, label=KIND)

    def _issue(self, call: Collective) -> Work[Any]:
        """The verb on tensors of its own."""
        has_values = all(each.values is not None for each in call.inputs)
        if self._is_on_gpu and call.verb in ("send", "recv"):
            # Whether a message has values only its source knows, so they go beside it.
            has_values, here = False, self._rank.rank
            if call.verb == "send":
                self._program.mail[here, call.options["dst"]].append(call.inputs[0])
            else:
                self._receives[call.number] = call.options["src"], here
        self._has_values[call.number] = has_values
        device = self._rank.control_device if has_values else self._rank.device
        given = call.inputs if has_values else [replace(each, values=None) for each in call.inputs]
        inputs, targets = ([each.tensor(device) for each in tensors] for tensors in (given, call.outputs))
        group = self._groups[call.group]
        return issue(
            self._streams.of(call.stream),
            call.verb,
            inputs,
            targets,
            group=group,
            label=call.label,
            options=call.options,
        )


@contextmanager
def _without_main() -> Iterator[None]:
    """A process that is started runs this one's main module anew, which may be the one that asks for a prediction."""
    main_module = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main_module


def _seen(scenario: Scenario) -> SeenGpu | None:
    """What a script sees of the scenario's GPUs; None on CPUs."""
    host = scenario.cluster.host
    if host.gpu.kind != "cuda":
        return None
    return SeenGpu(count=host.gpus, name=host.gpu.name, memory_bytes=round(host.gpu.memory_bytes))


def _nothing() -> None:
    """What the process has computed already."""
