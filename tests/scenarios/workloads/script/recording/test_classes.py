"""Classes of ranks: which are found, of worlds whose ranks are told by what they do, and how few ranks are played."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import cast

import pytest
import torch

from scenarios.seam.errors import ProgramError
from scenarios.workloads.recording.events.calls import IssueCall
from scenarios.workloads.recording.packed import Packed
from scenarios.workloads.script.recording.classes import Classes, rank_classes
from scenarios.workloads.script.recording.few import Few
from scenarios.workloads.script.recording.replay import Families
from scenarios.workloads.script.recording.single_rank import Alone, SentByRanks


class Told:
    """A few ranks, each of which does what a function says, in a world with these groups and messages."""

    def __init__(
        self,
        does: Callable[[int], Hashable],
        world_size: int,
        groups: Iterable[Sequence[int]] = (),
        messages: Iterable[tuple[int, int]] = (),
        told_apart: Sequence[int] = (),
    ) -> None:
        self.boundaries = told_apart
        self.does, self.world_size = does, world_size
        self.running, self.to_end = set[int](), set[int]()
        self.created_groups = Families(world_size)
        for ranks in groups:
            self.created_groups.add(ranks)
        self.messages = {(tuple(self.created_groups.groups[number]), away) for number, away in messages}

    @property
    def ranks(self) -> list[int]:
        return sorted(self.running)

    def begin_early(self, *ranks: int) -> None:
        """Start nothing."""

    def play(self, *ranks: int, to_end: bool = False) -> None:
        self.running |= {*ranks}
        if to_end:
            self.to_end |= {*ranks}

    def difference(self, one: int, two: int, *, to_end: bool = False) -> str | None:
        assert {one, two} <= (self.to_end if to_end else set(self.ranks)), "they were played"
        return None if self.does(one) == self.does(two) else "it does"


def mesh(stages: int, replicas: int, shards: int) -> list[range]:
    size, stage = stages * replicas * shards, replicas * shards
    through = [range(first, size, stage) for first in range(stage)]
    across = [
        range(stage * place + first, stage * (place + 1), shards) for place in range(stages) for first in range(shards)
    ]
    return [*through, *across, *(range(first, first + shards) for first in range(0, size, shards))]


def rows_of(rank: int, size: int = 512, rows: int = 50368) -> int:
    """Return how many rows a rank has where torch.chunk cuts them."""
    each = -(-rows // size)
    return max(0, min(each, rows - rank * each))


@pytest.mark.parametrize(
    ("does", "size", "groups", "messages", "most"),
    [
        (lambda rank: 0, 64, [], [], 4),
        (lambda rank: rank == 0, 64, [], [], 6),
        (lambda rank: rank % 8 == 0, 64, [], [], 8),
        (lambda rank: (rank == 0, rank % 8 == 0), 512, [], [], 8),
        (lambda rank: rank == 127, 128, [], [], 10),
        (rows_of, 512, [], [], 20),
        (lambda rank: rows_of(rank, rows=50432), 512, [], [], 20),
        (lambda rank: (rank == 0, rows_of(rank)), 512, [], [], 25),
        (lambda rank: (rank // 8 % 8, rank % 8 == 7), 512, mesh(8, 8, 8), [], 64),
        (lambda rank: rank // 64, 512, mesh(8, 8, 8), [(1, 64)], 16),
        (lambda rank: (rank // 64, rank % 8 == 0), 512, mesh(8, 8, 8), [(1, 64)], 24),
        (lambda rank: (rank // 64, rank == 0), 512, mesh(8, 8, 8), [(1, 64)], 33),  # of 8 x 2 x 2 parts, and the last
        (lambda rank: rank // 16, 128, [], [(0, 16)], 16),
    ],
    ids=["even", "first", "host", "both", "last", "50368", "50432", "first50368", "mesh", "pp", "pptp", "pp0", "hand"],
)
def test_classes_are_found_of_few_ranks(
    does: Callable[[int], Hashable], size: int, groups: list[range], messages: list[tuple[int, int]], most: int
) -> None:
    """Stages whose ranks send each other messages are all played; elsewhere few ranks tell the others."""
    few = Told(does, size, groups, messages)
    found = Classes(cast(Few, few), 8).find()
    assert [does(rank) for rank in found] == [does(rank) for rank in range(size)]
    assert Counter(map(does, set(found))).most_common(1)[0][1] == 1  # one of each class
    assert set(found) <= few.to_end
    assert few.to_end <= {*found, size - 1}
    assert len(few.ranks) <= most


@pytest.mark.parametrize(("alone", "told"), [({37}, [37, 38]), ({37, 38, 39}, [37, 40]), ({8}, [8, 9]), ({63}, [63])])
def test_ranks_inside_an_axis_that_calls_tell_apart_are_found(alone: set[int], told: list[int]) -> None:
    few = Told(lambda rank: rank in alone, 64, told_apart=told)
    found = Classes(cast(Few, few), 8).find()
    assert [rank in alone for rank in found] == [rank in alone for rank in range(64)]
    assert len(few.ranks) <= 16


def exchange(sizes: list[int]) -> IssueCall:
    """Return an exchange with these split sizes, of what is sent and of what is received."""
    rows = [Packed((sum(sizes),), torch.float32)]
    splits = {"input_split_sizes": sizes, "output_split_sizes": sizes}
    return IssueCall(number=1, verb="all_to_all_single", group=0, label="", inputs=rows, outputs=rows, options=splits)


def test_a_call_tells_apart_to_whom_it_sends_more_or_less() -> None:
    """Few are told; as many as have other sizes by values are not."""
    alone = Alone(0, 16, SentByRanks(lambda *_: False))
    for sizes in ([1] * 5 + [3] + [1] * 10, [*range(16)]):
        alone.answer(exchange(sizes))
    gathered = [Packed((2 if rank == 9 else 1,), torch.float32) for rank in range(16)]
    alone.answer(IssueCall(number=2, verb="all_gather", group=0, label="", inputs=gathered[:1], outputs=gathered))
    assert alone.told_apart == {5, 6, 9, 10}


def test_many_calls_tell_few_apart_in_all() -> None:
    """Splits of values are other ones in each call: the ranks that they name do not leave too few to play."""
    alone = Alone(0, 512, SentByRanks(lambda *_: False))
    for number in range(10):
        own = {7 * number + place + 1 for place in range(7)}
        alone.answer(exchange([1 + rank * (rank in own) for rank in range(512)]))
    told = sorted(alone.told_apart)
    assert told == [*range(1, 16)]
    few = Told(lambda rank: rank == 3, 512, told_apart=told)
    Classes(cast(Few, few), 8).find()
    assert len(few.ranks) <= 24


def test_ranks_that_all_differ_are_a_sentence() -> None:
    with pytest.raises(
        ProgramError, match=r"ranks 0 and 1 do not do the same: it does; expected ranks of few classes, but 64 "
    ):
        Classes(cast(Few, Told(lambda rank: rank, 512)), 8).find()


def test_a_small_world_in_which_all_ranks_differ_is_a_sentence() -> None:
    """Ranks that send each other as many ids as they happen to draw, say, whose calls fit no other's."""
    with pytest.raises(ProgramError, match=r"no two of 16 do the same; run\.ranks = 'each' plays all"):
        Classes(cast(Few, Told(lambda rank: rank, 16)), 8).find()


@pytest.mark.parametrize("is_by_turns", [False, True])
def test_a_rank_is_in_the_group_that_its_mesh_has_for_it(is_by_turns: bool) -> None:
    """Rows and columns of a square mesh, all of one size, are families whichever way they are made."""
    rows, columns = ([[0, 1], [2, 3]], [[0, 2], [1, 3]])
    made = Families(4)
    pairs = zip(rows, columns, strict=True)
    for ranks in [each for pair in pairs for each in pair] if is_by_turns else [*rows, *columns]:
        made.add(ranks)
    first_row, first_column = made.groups.index(rows[0]), made.groups.index(columns[0])
    assert made.groups[made.like(first_row, 3) or 0] == [2, 3]
    assert made.groups[made.like(first_column, 3) or 0] == [1, 3]
    assert made.like(0, 3) == 0


@pytest.mark.parametrize(
    ("recorded_by", "classes"),
    [
        ([0, 1, 2], ()),
        ([0, 0, 0], ((0, 3, "0-2"),)),
        ([0, 1, 1, 1, 4], ((0, 1, "0"), (1, 3, "1-3"), (4, 1, "4"))),
        ([0, 1, 1, 1] * 3, ((0, 3, "0-8 in steps of 4"), (1, 9, "1-3, 5-7, 9-11"))),
        ([0, 1, 2, 3, 4, 0], ((0, 2, "0, 5"), *((rank, 1, str(rank)) for rank in range(1, 5)))),
        (
            [0, 1, 1] * 12,
            (
                (0, 12, "0-33 in steps of 3"),
                (1, 24, f"{', '.join(f'{first}-{first + 1}' for first in range(1, 25, 3))}, 4 more ranges"),
            ),
        ),
    ],
)
def test_classes_are_ranges_of_ranks(recorded_by: list[int], classes: tuple[tuple[int, int, str], ...]) -> None:
    assert rank_classes(recorded_by) == classes
