"""Checks all-to-all calls of every form, dtype and group, several in flight."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import prod

from torch import Tensor

from real.check.cases.case import WORLD, Case, GroupSpec, RankGroups, ShortRepr
from real.check.cases.error_classes import arbitrary
from scenarios.seam.backend import Work
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank


@dataclass(frozen=True, kw_only=True, repr=False)
class AllToAllCase(ShortRepr):
    """An all-to-all among the ranks of each group at `place`.

    A rank's inputs and outputs are views of one memory of arbitrary bits, in which inputs begin at 1.

    Attributes:
        is_list: whether the call takes lists of tensors.
        counts: rows by global rank, [source][target].
        trailing: the other dimensions of a row.
        scalar: whether chunks have no dimension at all (list form only).
        omits_splits: whether equal splits of a side are left out.
        shift: elements from inputs to outputs, which overlap if it is less than their size (0: in place); None: apart.
        conjugates: whether the input is a lazy conjugate.
    """

    place: GroupSpec = WORLD
    is_list: bool = False
    dtype: str = "float32"
    counts: tuple[tuple[int, ...], ...] = ()
    trailing: tuple[int, ...] = ()
    scalar: bool = False
    omits_splits: bool = False
    shift: int | None = None
    conjugates: bool = False
    seed: int = 0

    def sizes(self, rank: int, members: tuple[int, ...]) -> tuple[list[int], list[int]]:
        """Return the rows sent to and received from each member."""
        return [self.counts[rank][peer] for peer in members], [self.counts[peer][rank] for peer in members]

    def memory(self, rank: int, members: tuple[int, ...]) -> Tensor:
        """Return a rank's memory before the call."""
        sent, got = (sum(rows) * prod(self.trailing) for rows in self.sizes(rank, members))
        memory = arbitrary(self.dtype, self.output_start(sent) + max(sent, got) + 1, self.seed, rank)
        if self.conjugates:  # CPUs turn a NaN's sign when they negate it, GPUs do not
            # Conjugation negates the imaginary part.
            memory.imag[memory.imag.isnan()] = 0
        return memory

    def output_start(self, sent: int) -> int:
        """Return the element of the memory at which outputs begin."""
        return 1 + (sent + 1 if self.shift is None else self.shift)

    def issue(self, rank: Rank, group: Group) -> tuple[Tensor, Work[Tensor] | Work[list[Tensor]]]:
        """Issue the call; return the memory and the call's work."""
        memory = self.memory(rank.rank, group.ranks).to(rank.device)
        sends, receives = self.sizes(rank.rank, group.ranks)
        sent, got = (sum(rows) * prod(self.trailing) for rows in (sends, receives))
        start = self.output_start(sent)
        input, output = memory[1 : 1 + sent], memory[start : start + got]
        input = input.conj() if self.conjugates else input
        if self.is_list:
            return memory, rank.all_to_all(self._chunks(output, receives), self._chunks(input, sends), group)
        rows = output.view(sum(receives), *self.trailing), input.view(sum(sends), *self.trailing)
        return memory, rank.all_to_all_single(*rows, self._splits(receives), self._splits(sends), group)

    def after(self, members: tuple[int, ...]) -> dict[int, Tensor]:
        """Compute the oracle: every member's memory, with each chunk that was sent to it in its place."""
        before = {rank: self.memory(rank, members) for rank in members}
        after = {rank: memory.clone() for rank, memory in before.items()}
        row = prod(self.trailing)
        for target in members:
            at = self.output_start(sum(self.counts[target][peer] for peer in members) * row)
            for source in members:
                skipped = sum(self.counts[source][peer] for peer in members[: members.index(target)])
                size = self.counts[source][target] * row
                chunk = before[source][1 + skipped * row :][:size]
                after[target][at : at + size] = chunk.conj() if self.conjugates else chunk
                at += size
        return after

    def _splits(self, rows: list[int]) -> list[int] | None:
        return None if self.omits_splits and len(set(rows)) == 1 else rows

    def _chunks(self, flat: Tensor, rows: list[int]) -> list[Tensor]:
        ends = accumulate(count * prod(self.trailing) for count in rows)
        shapes = [() if self.scalar else (count, *self.trailing) for count in rows]
        return [flat[end - prod(shape) : end].view(shape) for end, shape in zip(ends, shapes, strict=True)]


@dataclass(frozen=True, kw_only=True, repr=False)
class AllToAll(Case):
    """A set of exchanges that are all issued before the first is awaited.

    Rank r begins with the calls of group `turns[r]`, then those of the next group: all members of a group issue its
    calls in one order. With `is_backwards` the last call is awaited first.
    """

    exchanges: tuple[AllToAllCase, ...]
    turns: tuple[int, ...]
    is_backwards: bool = False

    async def play(self, here: RankGroups) -> list[Tensor]:
        """Return each exchange's memory."""
        groups, me = here.join([exchange.place for exchange in self.exchanges]), here.rank.rank
        issued = {at: self.exchanges[at].issue(*groups[at]) for at in self._order(me) if me in groups[at][1]}
        # Awaiting in another order than that of issue must not change what arrives.
        for at in reversed(issued) if self.is_backwards else issued:
            await issued[at][1]
        return [issued[at][0] for at in sorted(issued)]

    def oracle(self) -> list[list[Tensor]]:
        """Return each exchange's memory, by `AllToAllCase.after`."""
        memories: list[list[Tensor]] = [[] for _ in range(self.hosts * self.gpus)]
        for exchange in self.exchanges:
            for members in exchange.place.members(self.hosts, self.gpus):
                for rank, memory in exchange.after(members).items():
                    memories[rank].append(memory)
        return memories

    def _order(self, rank: int) -> list[int]:
        places = list(dict.fromkeys(exchange.place for exchange in self.exchanges))
        turned = places[self.turns[rank] % len(places) :] + places[: self.turns[rank] % len(places)]
        return sorted(range(len(self.exchanges)), key=lambda at: turned.index(self.exchanges[at].place))
