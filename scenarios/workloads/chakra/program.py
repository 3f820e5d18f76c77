"""The program `chakra`: each step runs all nodes of each rank's execution trace once, in dependency order.

Computations run on the rank's main stream, or on the one in their attribute `stream`; those with `is_cpu_op` on a
stream of the host. The calls of a group run on a stream of their own, as in torch, and so do the messages to, and those
from, each other rank: a stream for all messages would make them wait for each other, and may deadlock. Nodes of a
stream run in sequence, and each begins when all its dependencies have ended.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import Any

import torch

from scenarios.config.scenario import Scenario
from scenarios.seam.backend import Work
from scenarios.seam.errors import ScenarioError
from scenarios.seam.group import Group
from scenarios.seam.kernel import Kernel
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.workloads.chakra.collectives import arguments_of
from scenarios.workloads.chakra.config import ChakraTraces, step_effort
from scenarios.workloads.chakra.nodes import COLLECTIVE, METADATA, RECV, SEND, TraceError, TraceNode
from scenarios.workloads.chakra.traces import WORLD, CallGroup, calls_of
from scenarios.workloads.recording.packed import nothing

KIND = "trace"  # kind of computations, in tables of efficiency
# Names of the streams that no computation names: of the host, and those of groups and other ends by number.
_HOST, _CALLS, _MESSAGES = "host", "calls", "messages"
_ENDS = {SEND: "comm_dst", RECV: "comm_src"}


class ChakraProgram(Program):
    """A program that runs the traces' nodes `scenario.steps` times; a step ends before the next one begins."""

    def __init__(self, scenario: Scenario) -> None:
        assert isinstance(scenario.options, ChakraTraces)
        self.scenario, self.options = scenario, scenario.options
        size = scenario.cluster.world_size
        try:
            self.traces = self.options.read()
            if self.traces.world_size != size:
                raise TraceError(
                    f"{self.traces.world_size} traces in {self.options.named}: expected {size}, one of each rank of"
                    f" {scenario.cluster.hosts} hosts with {scenario.cluster.host.gpus} GPUs"
                )
            self.calls = calls_of(self.traces, scenario.cluster.host.gpus)
        except TraceError as error:
            raise ScenarioError(f"{scenario.path}: chakra.traces: {error}") from None
        compute = (node for nodes in self.traces.nodes for node in nodes if node.type not in (COLLECTIVE, SEND, RECV))
        own = sorted({_stream(node) for node in compute} - {"main", ""})
        prefixes = ("_" * number for number in count())
        self.prefix = next(each for each in prefixes if not any(map(partial(_is_name, each), own)))
        groups = max(Counter(rank for key in self.calls for rank in key.ranks).values(), default=0)
        ends = max(len(_ends(nodes)) for nodes in self.traces.nodes)
        numbered = [self.name(_CALLS, each) for each in range(groups)]
        numbered += [self.name(_MESSAGES, each) for each in range(ends)]
        self.streams = (*own, self.name(_HOST), *numbered)
        self.effort = step_effort(scenario)

    def name(self, word: str, number: int | None = None) -> str:
        """Return a name for a stream of calls, messages or the host that differs from all computations' streams."""
        return f"{self.prefix}{word}" + ("" if number is None else f" {number}")

    async def __call__(self, rank: Rank) -> None:
        played = _PlayedTrace(self, rank)
        for step in range(self.scenario.run.steps):
            with rank.step(step):
                await played.run()


class _PlayedTrace:
    """A rank's trace while it is simulated."""

    def __init__(self, program: ChakraProgram, rank: Rank) -> None:
        self._program, self._rank = program, rank
        self._nodes = program.traces.nodes[rank.rank]
        self._streams = {"main": rank, **{name: rank.stream(name) for name in program.streams}}
        self._groups = dict[CallGroup, tuple[Group, str]]()  # this rank's groups, each with its stream
        for key in program.calls:  # every rank makes all groups
            group = rank.world if key == (WORLD, rank.world.ranks) else rank.new_group(key.ranks)
            if rank.rank in key.ranks:
                self._groups[key] = group, program.name(_CALLS, len(self._groups))
        self._messages = {
            end: program.name(_MESSAGES, number) for number, end in enumerate(_ends(self._nodes))
        }  # by type and rank of the other end
        self._works = dict[int, tuple[Work[Any], ...]]()  # by node: the works that dependent nodes wait for
        self._waited = defaultdict[str, set[Work[Any]]](set)  # by stream: the works for which it waits already
        self._counts = Counter[CallGroup]()

    async def run(self) -> None:
        """Issue all nodes, and wait for their works."""
        self._works.clear()
        self._waited.clear()
        self._counts.clear()
        issued = list[Work[Any]]()
        for node in self._nodes:
            deps = node.depends_on(with_controls=self._program.options.dependencies == "all")
            works = dict.fromkeys(work for dep in deps for work in self._works[dep])
            stream, begin = self._beginning(node)
            if begin is None:  # takes no time
                self._works[node.id] = tuple(works)
                continue
            for work in works:
                if work not in self._waited[stream]:
                    self._waited[stream].add(work)
                    self._streams[stream].after(work)
            work = begin(self._streams[stream])
            self._works[node.id] = (work,)
            issued.append(work)
        for work in issued:
            await work

    def _beginning(self, node: TraceNode) -> tuple[str, Callable[[Rank], Work[Any]] | None]:
        """Return the stream of a node, and the function that begins it there; None: the node takes no time."""
        label, options = node.name or f"node {node.id}", self._program.options
        if node.type == COLLECTIVE:
            return self._call(node, label)
        if node.type in (SEND, RECV):
            buffer = torch.empty(node.number("comm_size"), dtype=torch.uint8, device=self._rank.device)
            end, world = _end(node), self._rank.world
            verb = "send" if node.type == SEND else "recv"
            return self._messages[end], lambda rank: getattr(rank, verb)(buffer, end[1], world, label=label)
        kernel = _kernel(node, options.dtype, is_roofline=options.compute == "roofline")
        if kernel is None:
            return "main", None
        stream = _stream(node) or self._program.name(_HOST)
        return stream, lambda rank: rank.compute(kernel, nothing, label=label)

    def _call(self, node: TraceNode, label: str) -> tuple[str, Callable[[Rank], Work[Any]]]:
        calls, own = self._program.calls, self._rank
        key = self._program.traces.key(node, own.rank, own.local_world_size)
        members = [by_rank[self._counts[key]] for by_rank in calls[key].values()]
        self._counts[key] += 1
        group, stream = self._groups[key]
        verb, arguments = arguments_of(node, members, key.ranks, own.rank, own.device)
        return stream, lambda rank: getattr(rank, verb)(*arguments, group=group, label=label)


def _end(node: TraceNode) -> tuple[int, int]:
    """Return the type of a message, and the rank at its other end."""
    return node.type, node.number(_ENDS[node.type])


def _ends(nodes: Iterable[TraceNode]) -> list[tuple[int, int]]:
    return [*dict.fromkeys(_end(node) for node in nodes if node.type in _ENDS)]


def _is_name(prefix: str, stream: str) -> bool:
    """Return whether the name of a computation's stream could be one of those with this prefix."""
    return stream.startswith(tuple(prefix + word for word in (_HOST, _CALLS, _MESSAGES)))


def _stream(node: TraceNode) -> str:
    """Return the stream that a computation names, by default "main"; "" for the host's."""
    if node.attributes.get("is_cpu_op") is True:
        return ""
    return str(node.attributes.get("stream", "")) or "main"


def _kernel(node: TraceNode, dtype: str, *, is_roofline: bool) -> Kernel | None:
    """Return a computation's kernel; None: it takes no time."""
    ops, size_bytes = node.number("num_ops"), node.number("tensor_size")
    if node.type == METADATA or not (node.duration_ns or ops or size_bytes):
        return None
    if node.duration_ns and not (is_roofline and (ops or size_bytes)):
        return Kernel(kind=KIND, lasts_ns=node.duration_ns, launches=0)
    return Kernel(kind=KIND, flops=float(ops), bytes_read=float(size_bytes), dtype=dtype, launches=0)
