"""Who is to blame, from what is known of each rank."""

from __future__ import annotations

import pytest

from real.supervise.rank_status import ENDED, PLAYING, READY, RankStatusTable, where

WORLD = "all_reduce 'x' on stream main in step 3"


def table(size: int = 3, *, sees_exits: bool = True) -> RankStatusTable:
    made = RankStatusTable(size, 30.0, 0.0, sees_exits=sees_exits, start_s=60.0)
    for rank in range(size):
        made.came(rank, 1.0)
    return made


def at(
    moves: int,
    reached: int = 0,
    last: str = "",
    inside: bool = False,
    waits: list[object] | None = None,
    stage: int = PLAYING,
    step: int | None = None,
) -> dict[str, object]:
    place = {"step": step, "stage": stage, "moves": moves, "reached": {"world": reached}}
    return {"at": {**place, "last": last, "inside": inside, "waits": waits or []}}


def in_call(call: int, ranks: list[int]) -> list[object]:
    return [[WORLD, "world", call, ranks]]


def test_verdict_is_none_without_news() -> None:
    assert table().verdict(30.9) is None


def test_a_killed_rank_is_named_with_its_signal_and_step_whatever_others_say_first() -> None:
    watched = table()
    watched.hear(2, {"step": 3}, 2.0)
    watched.hear(0, {"lost": "rank 0: x failed: Connection closed"}, 5.0)
    assert watched.verdict(5.5) is None
    watched.was_cut(2, 5.0)
    watched.note_exit(2, -9, 5.6)
    assert watched.verdict(5.6) == "rank 2 was killed by SIGKILL in step 3"


def test_shared_memory_steps_count_like_reported_steps() -> None:
    watched = table()
    watched.hear(1, {"step": 4}, 2.0)
    watched.see([7, None, 0], 20.0)
    assert [member.step for member in watched.members] == [7, 4, 0]
    watched.see([7, None, 0], 30.0)
    assert [member.moved_s for member in watched.members] == [20.0, 2.0, 20.0]


def test_a_failure_carries_its_step() -> None:
    watched = table(sees_exits=False)
    watched.hear(1, {"step": 3}, 2.0)
    watched.hear(1, {"lost": "rank 1: x failed: Connection closed", "step": 8}, 5.0)
    watched.hear(2, {"lost": "rank 2: x failed: Connection closed", "step": None}, 5.0)
    assert [where(member.step) for member in watched.members[1:]] == ["in step 8", "before its first step"]


def test_a_rank_that_raised_is_named_before_one_that_lost_its_connection() -> None:
    watched = table()
    watched.hear(0, {"lost": "rank 0: x failed: Connection closed"}, 5.0)
    watched.hear(1, {"failed": "rank 1 raised ValueError: no"}, 5.1)
    assert watched.verdict(5.1) is None
    assert watched.verdict(5.2) == "rank 1 raised ValueError: no"


def test_lowest_of_several_raising_ranks_is_named() -> None:
    watched = table()
    watched.hear(2, {"failed": "rank 2 raised ValueError: no"}, 5.0)
    watched.hear(1, {"failed": "rank 1 raised ValueError: no"}, 5.1)
    assert watched.verdict(5.3) == "rank 1 raised ValueError: no"


def test_ranks_with_equal_sentences_are_named_together() -> None:
    watched = table()
    for rank, sentence in ((2, "no data"), (1, "no"), (0, "no data")):
        watched.hear(rank, {"failed": f"rank {rank}: train.py:6: ValueError: {sentence}\n  File 'train.py'"}, 5.0)
    assert watched.verdict(5.3) == "ranks 0 and 2: train.py:6: ValueError: no data\n  File 'train.py'"


@pytest.mark.parametrize(("code", "sentence"), [(3, "rank 1 exited with code 3 before its first step")])
def test_a_rank_that_leaves_by_itself_is_named(code: int, sentence: str) -> None:
    watched = table()
    watched.note_exit(1, code, 5.0)
    assert watched.verdict(5.3) == sentence


def test_a_cut_line_is_the_end_where_no_parent_watches() -> None:
    watched = table(sees_exits=False)
    watched.hear(1, {"step": 0}, 2.0)
    watched.was_cut(1, 5.0)
    assert watched.verdict(5.3) == "rank 1 was lost in step 0"


def test_ranks_that_waited_for_the_last_to_be_ready_have_only_just_begun() -> None:
    watched = table()
    for rank in range(2):
        watched.hear(rank, at(1, stage=READY), 2.0)
    watched.hear(2, at(2, stage=PLAYING), 50.0)
    assert watched.verdict(50.0) is None
    assert watched.verdict(79.9) is None
    assert watched.verdict(80.0) == (
        "ranks 0, 1 and 2 did not move for 30 s: rank 0 before its first step, rank 1 before its first step,"
        " rank 2 before its first step"
    )


def test_lost_connection_is_reported_without_better_evidence() -> None:
    watched = table()
    watched.hear(0, {"lost": "rank 0: x failed: Connection closed"}, 5.0)
    assert watched.verdict(6.9) is None
    assert watched.verdict(7.0) == "rank 0: x failed: Connection closed"


def test_ranks_that_never_came_are_named() -> None:
    watched = RankStatusTable(4, 10.0, 0.0, sees_exits=True, start_s=30.0)
    watched.came(0, 1.0)
    watched.came(2, 1.0)
    assert watched.verdict(29.9) is None
    assert watched.verdict(30.0) == "ranks 1 and 3 did not come within 30 s"
    watched.came(1, 30.0)
    assert watched.verdict(30.0) == "rank 3 did not come within 30 s"


def test_the_rank_that_has_not_reached_a_call_is_named_with_where_it_stands() -> None:
    watched = table()
    watched.hear(0, at(9, 6, WORLD, waits=in_call(5, [0, 1, 2])), 3.0)
    watched.hear(1, at(9, 6, WORLD, waits=in_call(5, [0, 1, 2])), 3.0)
    watched.hear(2, at(8, 5, "compute 'sleep' on stream main in step 3", inside=True), 3.0)
    assert watched.verdict(32.9) is None
    assert watched.verdict(33.0) == (
        f"rank 2 did not reach {WORLD} (call 5 of group world) within 30 s;"
        " it stands in compute 'sleep' on stream main in step 3"
    )


def test_a_rank_that_goes_on_keeps_the_others_from_being_blamed_but_not_for_ever() -> None:
    watched = table()
    for rank in range(2):
        watched.hear(rank, at(9, 6, waits=in_call(5, [0, 1, 2])), 3.0)
    watched.hear(2, at(8, 5, "compute 'a'"), 20.0)
    for rank in range(2):
        watched.hear(rank, {"here": True}, 32.0)
    assert watched.verdict(33.0) == (
        f"rank 2 did not reach {WORLD} (call 5 of group world) within 30 s; it stands after compute 'a'"
    )


def test_rank_at_the_end_of_a_waiting_chain_is_named() -> None:
    watched = table()
    watched.hear(0, at(9, 6, waits=in_call(5, [0, 1])), 3.0)
    watched.hear(1, at(8, 5, waits=[["recv", "world", -1, [2]]]), 3.0)
    watched.hear(2, at(7, 4, "compute 'a'", inside=True), 3.0)
    assert watched.verdict(33.0) == "rank 2 did not reach recv within 30 s; it stands in compute 'a'"


def test_ranks_that_wait_for_each_other_are_all_named() -> None:
    watched = table(2)
    watched.hear(0, at(9, 6, waits=[["recv from 1", "world", -1, [1]]], step=2), 3.0)
    watched.hear(1, at(8, 5, waits=[["recv from 0", "world", -1, [0]]]), 4.0)
    watched.hear(0, {"step": 2}, 4.0)
    assert watched.verdict(34.0) == (
        "ranks 0 and 1 did not move for 30 s: rank 0 in recv from 1, in step 2, rank 1 in recv from 0"
    )


def everyone(stage: int) -> list[object]:
    return [["the start of the run" if stage == READY else "the end of the run", "", -1, [0, 1]]]


def test_ranks_have_another_time_to_start_than_to_move_once_one_plays() -> None:
    watched = table(2)
    watched.hear(0, at(0, waits=everyone(READY), stage=READY), 3.0)
    assert watched.verdict(59.0) is None
    assert watched.verdict(63.0) == (
        "rank 1 did not reach the start of the run within 60 s; it was last heard of before its first step"
    )
    watched.hear(1, at(0, waits=everyone(READY), stage=READY), 63.0)
    watched.hear(0, at(1, last="compute 'a' in step 0", stage=PLAYING), 63.5)
    watched.hear(0, at(2, last="compute 'a' in step 0", stage=PLAYING), 64.0)
    assert watched.verdict(93.0) is None
    assert watched.verdict(93.5) == "rank 1 did not move for 30 s: rank 1 in the start of the run"


def test_a_rank_that_gathers_or_merges_is_one_that_moves_while_it_is_heard_of() -> None:
    watched = table(2)
    watched.hear(1, at(9, waits=everyone(ENDED), stage=ENDED), 3.0)
    watched.hear(1, {"bye": True}, 4.0)
    for now_s in range(3, 200, 10):
        watched.hear(0, at(now_s, waits=everyone(ENDED), stage=ENDED), float(now_s))
        assert watched.verdict(now_s + 9.0) is None
    assert watched.verdict(193.0 + 30.0) == "rank 0 did not move for 30 s: rank 0 in the end of the run"


def test_a_rank_that_has_begun_a_step_since_it_was_heard_of_waits_for_nobody_any_more() -> None:
    watched = table(2)
    watched.hear(0, at(9, 6, WORLD, waits=in_call(5, [0, 1]), step=3), 3.0)
    watched.hear(1, at(7, 5, "all_reduce 'x' on stream main in step 2", waits=in_call(4, [0, 1]), step=2), 3.0)
    watched.see([3, 3], 4.0)
    assert watched.verdict(34.0) == (
        f"rank 1 did not reach {WORLD} (call 5 of group world) within 30 s; it was last heard of in step 3"
    )
    watched.hear(1, at(7, 5, "all_reduce 'x' on stream main in step 2", step=3), 5.0)
    assert watched.verdict(35.0) == (
        f"rank 1 did not reach {WORLD} (call 5 of group world) within 30 s;"
        " it stands after all_reduce 'x' on stream main in step 2, in step 3"
    )


def test_a_rank_that_is_not_heard_of_while_others_are_is_the_one_that_stands() -> None:
    """As a process that was stopped (SIGSTOP), whose last words may be of another call of the same step."""
    watched = table(2)
    for rank in range(2):
        watched.hear(rank, at(9, 6, WORLD, waits=in_call(5, [0, 1])), 3.0)
    watched.hear(1, {"here": True}, 32.0)
    assert watched.verdict(33.0) == "rank 0 did not move for 30 s: rank 0 before its first step"


def test_a_run_is_done_when_all_have_said_so_and_all_processes_have_ended_well() -> None:
    watched = table(2)
    watched.hear(0, {"bye": True}, 3.0)
    watched.was_cut(0, 3.0)
    watched.hear(1, {"bye": True}, 4.0)
    assert not watched.is_done
    watched.note_exit(0, 0, 5.0)
    watched.note_exit(1, 0, 5.0)
    assert watched.is_done
    assert watched.verdict(100.0) is None
