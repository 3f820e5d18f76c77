"""Where shards are placed: phases are levelled one by one, and nothing is lost."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from twinstep.plan_choice.placing import RankLoads, Shards, place


def empty(ranks: int, phases: int, free_bytes: float = 1e9) -> RankLoads:
    return RankLoads(np.zeros((ranks, phases)), np.full((ranks, 2), free_bytes))


def shards(loads: list[list[float]], size_bytes: float = 1.0) -> Shards:
    return Shards(np.array(loads, np.float64), np.full((len(loads), 2), size_bytes))


def test_phases_are_levelled_rather_than_their_sum() -> None:
    """Of the sum, one rank with all that computes and one with all that is sent would be level, too."""
    found = place(empty(2, 2), [], shards([[2.0, 0.0]] * 4 + [[0.0, 2.0]] * 4), np.ones(2))
    assert found is not None
    assert found.after.loads.tolist() == [[4.0, 4.0], [4.0, 4.0]]
    assert found.after.step_ms(np.array([1.0, 10.0])) == 44.0


def test_many_small_shards_come_close_to_the_mean() -> None:
    draw = np.random.default_rng(3)
    many = Shards(draw.lognormal(size=(300, 3)), np.ones((300, 2)))
    found = place(empty(8, 3), [], many, np.array([1.0, 2.0, 0.5]))
    assert found is not None
    assert (found.after.loads.max(axis=0) < 1.03 * found.after.loads.mean(axis=0)).all()


def test_blocks_lie_on_hosts_and_shards_around_them() -> None:
    block = shards([[3.0], [3.0]])
    found = place(empty(4, 1), [block], shards([[3.0], [3.0]]), np.ones(1))
    assert found is not None
    assert found.firsts[0] in (0, 2)
    assert found.after.loads.tolist() == [[3.0]] * 4


def test_where_there_is_no_room_there_is_no_placement() -> None:
    assert place(empty(2, 1, free_bytes=1.5), [], shards([[1.0]] * 3), np.ones(1)) is None
    assert place(empty(2, 1, free_bytes=0.5), [shards([[1.0], [1.0]])], shards([[0.0]], 0.0), np.ones(1)) is None


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 40))
def test_placing_keeps_all_shards_within_memory(seed: int, ranks: int, count: int) -> None:
    draw = np.random.default_rng(seed)
    many = Shards(draw.pareto(1.0, size=(count, 2)), draw.integers(0, 10, size=(count, 2)).astype(np.float64))
    before = empty(ranks, 2, free_bytes=float(10 + many.stored_bytes.sum() / ranks))
    found = place(before, [], many, np.array([1.0, 0.3]))
    if found is None:
        return
    loads, free = before.loads.copy(), before.free_bytes.copy()
    for rank, load, stored in zip(found.ranks, many.loads, many.stored_bytes, strict=True):
        loads[rank] += load
        free[rank] -= stored
    assert np.allclose(loads, found.after.loads)
    assert np.allclose(free, found.after.free_bytes)
    assert (free >= 0).all()
    assert (before.loads == 0).all()
