"""The program `all_to_all`: one all_to_all_single of a given size per step between all ranks."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from scenarios.config.host_classes import simulated_ranks, uniform_host_classes
from scenarios.config.scenario import Exchange, Scenario
from scenarios.seam.kernel import Kernel
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.seam.roles import OTHER
from scenarios.seam.trace import MemoryRow
from scenarios.workloads.all_to_all.config import step_effort

_CYCLE = 127  # sent values are below it: exact in every dtype from int8 and bfloat16 on
_STEPS_AHEAD = 100  # looked at before they are run
_STEP_STRIDE, _SLACK = 37, 127  # where a step's values start among a rank's
_LINE_CYCLE = 1021
_LINE = 61  # elements in a line of the checksum; prime, so that equal chunks do not fall on lines


class AllToAllProgram(Program):
    """Each step sends `exchange.size_bytes` from every rank with one all_to_all_single, and records a `checksum`.

    The checksum weighs each received element by its place, in exact integers: two runs agree only if every rank
    received the same elements in the same order.
    """

    def __init__(self, scenario: Scenario) -> None:
        assert scenario.exchange is not None
        self._scenario = scenario
        self._splits = Splits(scenario.exchange, scenario.cluster.world_size, scenario.seed)
        self.host_classes = uniform_host_classes(scenario)
        self.memory = self._memory()
        self.effort = step_effort(scenario)

    async def __call__(self, rank: Rank) -> None:
        elements, dtype = self._splits.elements, self._splits.dtype
        values = draw_values(self._scenario.seed, rank.rank, elements, dtype=dtype, device=rank.device)
        received = torch.empty(self._capacity(rank.rank), dtype=dtype, device=rank.device)
        for step in range(self._scenario.steps):
            sends, receives, count = splits_of(self._splits, step, rank)
            start = step * _STEP_STRIDE % _SLACK
            if count > received.numel():
                received = received.new_empty(count)
            given, output = values[start : start + elements], received[:count]
            await rank.barrier(label="start")
            with rank.step(step):
                await rank.all_to_all_single(output, given, receives, sends, label="exchange")
                total = await rank.compute(checksum_cost(output), checksum, output, label="checksum", role=OTHER)
                rank.record("checksum", total)

    def _capacity(self, rank: int) -> int:
        """The most elements that a rank receives in one of the first steps."""
        if self.host_classes is not None:
            return self._splits.elements
        return int(self._splits.most_received(self._scenario.steps)[rank])

    def _memory(self) -> tuple[MemoryRow, ...]:
        size, capacity_bytes = self._splits.dtype.itemsize, self._scenario.cluster.host.gpu.memory_bytes
        return tuple(
            MemoryRow(
                rank=rank, part=part, size_bytes=size * int(elements), capacity_bytes=capacity_bytes, rank_count=count
            )
            for rank, count in simulated_ranks(self._scenario, self.host_classes)
            for part, elements in (
                ("send buffer", self._splits.elements + _SLACK),
                ("receive buffer", self._capacity(rank)),
            )
        )


def splits_of(splits: Splits, step: int, rank: Rank) -> tuple[Sequence[float], Sequence[float], int]:
    """Elements that a rank sends to, and receives from, each member of the world's group; and from all ranks."""
    if rank.world.counts:  # even ones
        each = [splits.elements / rank.world.size] * len(rank.world.ranks)
        return each, each, splits.elements
    sends, receives = splits.of_rank(step, rank.rank)
    return sends, receives, sum(receives)


class Splits:
    """Who sends how many elements to whom, the same on all ranks: seeded by the scenario's seed and the step.

    "even": as equal as can be, the first peers get one element more; the skew means nothing. "random": the shares
    of a rank's peers are drawn from a Dirichlet distribution whose mean is their weights, (k + 1) ** -skew for peer k,
    and whose concentration is 1 a peer: without skew, every division of the whole is as likely as any other.
    Random splits hold world size squared numbers a step.
    """

    def __init__(self, exchange: Exchange, world_size: int, seed: int) -> None:
        dtype = getattr(torch, exchange.dtype)
        assert isinstance(dtype, torch.dtype)
        self.dtype = dtype
        self.elements = exchange.size_bytes // dtype.itemsize
        self._even, self._skew, self._size, self._seed = exchange.splits == "even", exchange.skew, world_size, seed
        self._random = functools.lru_cache(maxsize=4)(self._draw)  # ranks may be a step or two apart
        self._received: dict[int, npt.NDArray[np.int64]] = {}

    def of_rank(self, step: int, rank: int) -> tuple[list[int], list[int]]:
        """Elements that this rank sends to, and receives from, every rank."""
        if self._even:
            row = self._even_row()
            return row.tolist(), [int(row[rank])] * self._size
        matrix = self._random(step)
        return matrix[rank].tolist(), matrix[:, rank].tolist()

    def received(self, step: int) -> npt.NDArray[np.int64]:
        """Elements that each rank receives from all."""
        if step not in self._received:
            self._received[step] = self._even_row() * self._size if self._even else self._random(step).sum(axis=0)
        return self._received[step]

    def most_received(self, steps: int) -> npt.NDArray[np.int64]:
        """The most that each rank receives in one of so many steps; looks at the first `_STEPS_AHEAD`."""
        ahead = min(steps, 1 if self._even else _STEPS_AHEAD)
        most: npt.NDArray[np.int64] = np.maximum.reduce([self.received(step) for step in range(ahead)])
        return most

    def _even_row(self) -> npt.NDArray[np.int64]:
        share, rest = divmod(self.elements, self._size)
        return share + (np.arange(self._size) < rest).astype(np.int64)

    def _draw(self, step: int) -> npt.NDArray[np.int64]:
        """Elements by sender (row) and receiver (column); each row adds up to `elements`."""
        weights = (np.arange(self._size) + 1.0) ** -self._skew
        generator = np.random.default_rng([self._seed, step])
        shares = generator.dirichlet(weights * (self._size / weights.sum()), size=self._size)
        ends = np.rint(np.cumsum(shares, axis=1) * self.elements).astype(np.int64)
        ends[:, -1] = self.elements  # the shares add up to 1 but for rounding
        return np.diff(np.minimum(ends, self.elements), axis=1, prepend=0)


def draw_values(seed: int, rank: int, elements: int, *, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A rank's values, whole numbers from 0 to 126, enough for the windows of all steps; none on meta."""
    numel = elements + _SLACK
    if device.type == "meta":
        return torch.empty(numel, dtype=dtype, device=device)
    generator = torch.Generator().manual_seed(int(np.random.SeedSequence([seed, rank]).generate_state(1)[0]))
    return torch.randint(_CYCLE, (numel,), generator=generator, dtype=torch.uint8).to(dtype).to(device)


def checksum(received: Tensor) -> Tensor:
    """One float64: elements weighed by their place in the line, plus lines weighed by their number.

    Lines are numbered in cycles, so that all sums are whole numbers below 2 ** 53, hence exact in any order.
    """
    if received.is_meta:
        return received.new_empty((), dtype=torch.float64)
    flat = torch.view_as_real(received)[..., 0].contiguous() if received.is_complex() else received
    whole = len(flat) // _LINE * _LINE
    lines = flat[:whole].view(-1, _LINE)
    by_place, by_line = lines.sum(0, dtype=torch.float64), lines.sum(1, dtype=torch.float64)
    return _weighed(by_place) + _weighed(by_line) + _weighed(flat[whole:].double())


def checksum_cost(received: Tensor) -> Kernel:
    """The elements are read twice, and numbers of 8 bytes for each line and for each place in a line five times.

    Two sums, five operators for each of three weighed ones, two additions; the rest as float64 where it is not, and of
    complex numbers a copy of the real parts.
    """
    numel = received.numel()
    sums = 8 * (numel / _LINE + _LINE)
    return Kernel(
        kind="reduction",
        bytes_read=2 * numel * received.element_size() + 5 * sums,
        bytes_written=5 * sums,
        launches=19 + (received.dtype != torch.float64) + received.is_complex(),
    )


def _weighed(values: Tensor) -> Tensor:
    places = torch.arange(len(values), device=values.device) % _LINE_CYCLE + 1
    return torch.dot(values, places.double())
