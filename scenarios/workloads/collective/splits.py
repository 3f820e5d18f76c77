"""The splits of an all-to-all, the values that ranks send, and the checksum of what arrives."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from scenarios.config.scenario import Exchange, TimedCollective
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank

_CYCLE = 127  # values sent are below this: exact in every dtype, also int8 and bfloat16
_STEP_STRIDE, SLACK = 37, 127  # a step's values start at multiples of the stride, modulo the slack
_LINE_CYCLE = 1021
_LINE = 61  # elements in a line of the checksum; prime, so that equal chunks do not fall on lines


def splits_of(splits: Splits, step: int, rank: Rank) -> tuple[Sequence[float], Sequence[float], int]:
    """Return the elements that a rank sends to, and receives from, each member of the world's group; and their sum."""
    if rank.world.counts:  # representatives have even splits
        each = [splits.elements / rank.world.size] * len(rank.world.ranks)
        return each, each, splits.elements
    sends, receives = splits.of_rank(step, rank.rank)
    return sends, receives, sum(receives)


class Splits:
    """The splits of an all-to-all, equal on all ranks: seeded by the scenario's seed and the step.

    "even": as equal as possible, with one element more for the first peers; the skew has no effect. "random": the
    shares of a rank's peers are drawn from a Dirichlet distribution with mean proportional to (k + 1) ** -skew for peer
    k, and concentration 1 per peer: without skew, all divisions are equally likely. Random splits hold world size
    squared numbers a step.
    """

    def __init__(self, exchange: Exchange | TimedCollective, world_size: int, seed: int) -> None:
        dtype = getattr(torch, exchange.dtype)
        assert isinstance(dtype, torch.dtype)
        self.dtype = dtype
        self.elements = exchange.size_bytes // dtype.itemsize
        self._even, self._skew, self._size, self._seed = exchange.splits == "even", exchange.skew, world_size, seed
        self._random = functools.lru_cache(maxsize=4)(self._draw)  # ranks may be some steps apart
        self._most: dict[int, npt.NDArray[np.int64]] = {}

    def of_rank(self, step: int, rank: int) -> tuple[list[int], list[int]]:
        """Return the elements that this rank sends to, and receives from, every rank."""
        if self._even:
            row = self._even_row()
            return row.tolist(), [int(row[rank])] * self._size
        matrix = self._random(step)
        return matrix[rank].tolist(), matrix[:, rank].tolist()

    def received_elements(self, step: int) -> npt.NDArray[np.int64]:
        """Return the elements that each rank receives in total."""
        return self._even_row() * self._size if self._even else self._random(step).sum(axis=0)

    def most_received(self, steps: int) -> npt.NDArray[np.int64]:
        """Return the maximum that each rank receives in one of the first `steps` steps."""
        if steps not in self._most:
            every = range(1 if self._even else steps)
            self._most[steps] = np.maximum.reduce([self.received_elements(step) for step in every])
        return self._most[steps]

    def _even_row(self) -> npt.NDArray[np.int64]:
        share, rest = divmod(self.elements, self._size)
        return share + (np.arange(self._size) < rest).astype(np.int64)

    def _draw(self, step: int) -> npt.NDArray[np.int64]:
        """Return elements by sender (row) and receiver (column); each row sums to `elements`."""
        weights = (np.arange(self._size) + 1.0) ** -self._skew
        generator = np.random.default_rng([self._seed, step])
        shares = generator.dirichlet(weights * (self._size / weights.sum()), size=self._size)
        ends = np.rint(np.cumsum(shares, axis=1) * self.elements).astype(np.int64)
        ends[:, -1] = self.elements  # the shares add up to 1 but for rounding
        return np.diff(np.minimum(ends, self.elements), axis=1, prepend=0)


def draw_values(seed: int, rank: int, elements: int, *, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a rank's values, whole numbers from 0 to 126, enough for the windows of all steps; none on meta."""
    numel = elements + SLACK
    if device.type == "meta":
        return torch.empty(numel, dtype=dtype, device=device)
    generator = torch.Generator().manual_seed(int(np.random.SeedSequence([seed, rank]).generate_state(1)[0]))
    return torch.randint(_CYCLE, (numel,), generator=generator, dtype=torch.uint8).to(dtype).to(device)


def start_of(step: int) -> int:
    """Return where a step's values begin within a rank's values."""
    return step * _STEP_STRIDE % SLACK


def checksum(received: Tensor) -> Tensor:
    """Return a float64: elements weighted by their place in the line, plus lines weighted by their number.

    Weights repeat in cycles, so that all sums are whole numbers below 2 ** 53, hence exact in any order.
    """
    if received.is_meta:
        return received.new_empty((), dtype=torch.float64)
    flat = torch.view_as_real(received)[..., 0].contiguous() if received.is_complex() else received
    whole = len(flat) // _LINE * _LINE
    lines = flat[:whole].view(-1, _LINE)
    by_place, by_line = lines.sum(0, dtype=torch.float64), lines.sum(1, dtype=torch.float64)
    return _weigh(by_place) + _weigh(by_line) + _weigh(flat[whole:].double())


def checksum_cost(received: Tensor) -> Kernel:
    """Return the checksum's kernel: elements are read twice, 8-byte sums per line and per place five times.

    Launches: two sums, five operators for each of three weighted sums, two additions; a conversion to float64 if
    needed, and a copy of the real parts of complex numbers.
    """
    numel = received.numel()
    sums = 8 * (numel / _LINE + _LINE)
    return Kernel(
        kind="reduction",
        bytes_read=2 * numel * received.element_size() + 5 * sums,
        bytes_written=5 * sums,
        launches=19 + (received.dtype != torch.float64) + received.is_complex(),
    )


def _weigh(values: Tensor) -> Tensor:
    places = torch.arange(len(values), device=values.device) % _LINE_CYCLE + 1
    return torch.dot(values, places.double())
