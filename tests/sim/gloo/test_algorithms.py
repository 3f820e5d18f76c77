from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.seam.calls import Call
from sim.gloo import algorithms as gloo
from sim.gloo.closed_forms import reduced_parts
from sim.gloo.script import Copy, Recv, Reduce, Send, WaitRecv, WaitSend, latency_steps, totals
from sim.gloo.segments import all_reduce_segments, reduce_segments
from tests.sim import collective_calls as make

REDUCTIONS = ("all_reduce", "reduce_scatter_tensor", "all_gather_into_tensor", "all_gather", "reduce")
ROOTED = ("gather", "scatter")
IN_PARTS = ("reduce_scatter", "reduce_scatter_tensor_coalesced", "all_gather", "all_gather_into_tensor_coalesced")


@st.composite
def groups_of_calls(draw: st.DrawFn) -> list[Call]:
    """Draw any operation on 1 to 17 ranks, from nothing up to several segments a chunk."""
    ranks = draw(st.integers(1, 17))
    root = draw(st.integers(0, ranks - 1))
    element = draw(st.sampled_from((1, 2, 4, 8, 16)))
    count = draw(st.one_of(st.integers(0, 3 * ranks), st.integers(0, 5000), st.integers(0, (6 << 20) * ranks // 16)))
    kind = draw(
        st.sampled_from((*REDUCTIONS, *ROOTED, "broadcast", "a2a", "a2a list", "barrier", "monitored_barrier", "p2p"))
    )
    if kind in REDUCTIONS:
        size_bytes = count * element * (ranks if kind == "reduce_scatter_tensor" else 1)
        return make.reduction(kind, size_bytes, ranks, element, root if kind == "reduce" else -1)
    if kind == "broadcast":
        return make.broadcast(count, ranks, root)
    if kind in ROOTED:
        return make.make_rooted(kind, count, ranks, root)
    if kind in ("barrier", "monitored_barrier"):
        return make.barrier(ranks, kind)
    if kind == "p2p":
        order = draw(st.permutations(make.send_recv(count, ranks + 1, root, ranks)))
        return list(order)
    sizes = draw(st.lists(st.integers(0, 9), min_size=ranks * ranks, max_size=ranks * ranks))
    rows = [[size * (count + 1) for size in sizes[i * ranks : (i + 1) * ranks]] for i in range(ranks)]
    return make.all_to_all(rows, "all_to_all" if kind == "a2a list" else "all_to_all_single")


@st.composite
def calls_in_parts(draw: st.DrawFn) -> list[Call]:
    """Several tensors, or one for each member."""
    ranks, element = draw(st.integers(1, 17)), draw(st.sampled_from((1, 2, 4, 8, 16)))
    op, sizes = draw(st.sampled_from(IN_PARTS)), st.integers(0, 4000).map(lambda count: count * element)
    return make.in_parts(op, draw(st.lists(sizes, min_size=ranks, max_size=ranks)), ranks, element)


def any_calls() -> st.SearchStrategy[list[Call]]:
    return st.one_of(groups_of_calls(), calls_in_parts())


@given(any_calls())
def test_totals_equal_the_sums_of_the_schedule(calls: list[Call]) -> None:
    exact, closed = totals(gloo.schedule(calls)), gloo.totals(calls)
    assert closed.pair_bytes == exact.pair_bytes
    assert closed.reduce_bytes == exact.reduce_bytes
    assert closed.copy_bytes == exact.copy_bytes
    assert all(few <= many for few, many in zip(exact.latency_steps, closed.latency_steps, strict=True))
    if not _leaves_segments_empty(calls):
        assert closed.latency_steps == exact.latency_steps


def _leaves_segments_empty(calls: list[Call]) -> bool:
    cut = {"all_reduce": all_reduce_segments, "reduce_scatter_tensor": all_reduce_segments, "reduce": reduce_segments}
    cut |= dict.fromkeys(["reduce_scatter", "reduce_scatter_tensor_coalesced"], all_reduce_segments)
    first = calls[0]
    if first.op not in cut:
        return False
    sizes = (first.bytes_in,) if first.op == "reduce" else reduced_parts(first)
    parts = [cut[first.op](size, first.element_size, len(calls)) for size in sizes if size]
    return any(each.count_filled(0, each.count) < each.count for each in parts)


@given(any_calls())
def test_every_send_meets_one_receive_of_its_size_and_both_are_waited_for_once(calls: list[Call]) -> None:
    scripts = gloo.schedule(calls)
    sends, recvs, left, arrived = [], [], [], []
    for rank, script in enumerate(scripts):
        sends += [(rank, i.peer, i.tag, i.size_bytes) for i in script if isinstance(i, Send)]
        recvs += [(i.peer, rank, i.tag, i.size_bytes) for i in script if isinstance(i, Recv)]
        left += [(rank, i.peer, i.tag) for i in script if isinstance(i, WaitSend)]
        arrived += [(i.peer, rank, i.tag) for i in script if isinstance(i, WaitRecv)]
    assert sorted(sends) == sorted(recvs)
    assert sorted(left) == sorted(arrived) == sorted(key[:3] for key in sends)
    assert len(set(left)) == len(left)
    assert all(source != target for source, target, *_ in sends)


@given(any_calls())
def test_rings_keep_at_most_two_messages_of_a_direction_in_flight(calls: list[Call]) -> None:
    # At a reduce's end the root receives from all; tensors of several sizes are exchanged, each pair for itself.
    if calls[0].op not in REDUCTIONS or calls[0].op == "reduce" or calls[0].parts:
        return
    for script in gloo.schedule(calls):
        flying = {Send: 0, Recv: 0}
        for instruction in script:
            if isinstance(instruction, Send | Recv):
                flying[type(instruction)] += 1
            elif isinstance(instruction, WaitSend | WaitRecv):
                flying[Send if isinstance(instruction, WaitSend) else Recv] -= 1
            assert max(flying.values()) <= 2


@given(any_calls())
def test_every_member_ends_with_the_sum_of_all_or_with_the_pieces_of_all(calls: list[Call]) -> None:
    """Bytes that come in over the ring: what one member lacks."""
    op, ranks = calls[0].op, len(calls)
    if op not in ("all_reduce", "all_gather_into_tensor") or ranks == 1:
        return
    for script in gloo.schedule(calls):
        arrived = sum(i.size_bytes for i in script if isinstance(i, Recv))
        reduced = sum(i.size_bytes for i in script if isinstance(i, Reduce))
        if op == "all_gather_into_tensor":
            assert (arrived, reduced) == ((ranks - 1) * calls[0].bytes_in, 0)
        else:
            assert reduced <= calls[0].bytes_in
            assert arrived - reduced <= calls[0].bytes_in


# The order of posts, as a trace of gloo's writev calls shows it.


def test_all_to_all_posts_the_send_before_the_receive_of_equal_distance() -> None:
    scripts = gloo.schedule(make.all_to_all([[10 * i + j for j in range(3)] for i in range(3)]))
    assert scripts[1] == (
        Copy(11),
        Send(2, 12, 0),
        Recv(0, 1, 0),
        Send(0, 10, 0),
        Recv(2, 21, 0),
        WaitSend(2, 0),
        WaitRecv(0, 0),
        WaitSend(0, 0),
        WaitRecv(2, 0),
    )


def test_all_reduce_posts_receives_first_and_reduces_before_waiting_for_sends() -> None:
    script = gloo.schedule(make.reduction("all_reduce", 16, 2))[0]
    assert script[:10] == (
        Recv(1, 4, 0),
        Send(1, 4, 0),
        Recv(1, 4, 1),
        Send(1, 4, 1),
        WaitRecv(1, 0),
        Reduce(4),
        WaitSend(1, 0),
        WaitRecv(1, 1),
        Reduce(4),
        WaitSend(1, 1),
    )
    assert script[10:12] == (Recv(1, 4, 2), Send(1, 4, 2))
    assert sum(isinstance(each, Reduce) for each in script) == 2


def test_all_gather_posts_sends_first_and_keeps_two_halves_in_flight() -> None:
    assert gloo.schedule(make.reduction("all_gather", 3, 3, 1))[0][:9] == (
        Copy(3),
        Send(1, 1, 0),
        Recv(2, 1, 0),
        Send(1, 2, 1),
        Recv(2, 2, 1),
        WaitSend(1, 0),
        WaitRecv(2, 0),
        Send(1, 1, 2),
        Recv(2, 1, 2),
    )


def test_broadcast_hands_the_buffer_to_all_children_before_it_waits() -> None:
    scripts = gloo.schedule(make.broadcast(7, 6, root=1))
    assert scripts[1] == (
        Send(2, 7, 0), Send(3, 7, 0), Send(5, 7, 0), WaitSend(2, 0), WaitSend(3, 0), WaitSend(5, 0),
    )  # fmt: skip
    assert scripts[2] == (Recv(1, 7, 0), WaitRecv(1, 0), Send(4, 7, 0), Send(0, 7, 0), WaitSend(4, 0), WaitSend(0, 0))
    assert scripts[4] == (Recv(2, 7, 0), WaitRecv(2, 0))


def test_reduce_goes_round_the_ring_until_two_segments_are_left_as_gloo_was_seen_to_do() -> None:
    """24 MB on 3 ranks: 24 segments, 22 messages a rank; a trace counted 22 of 1 MiB and a chunk of 7222784 bytes."""
    script = gloo.schedule(make.reduction("reduce", 24_000_000, 3, root=1))[2]
    assert [each.size_bytes for each in script if isinstance(each, Send)] == [1 << 20] * 22 + [24_000_000 - (16 << 20)]


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (make.barrier(5), (6,) * 5),
        (make.all_to_all([[1] * 4] * 4), (2,) * 4),
        (make.broadcast(1, 8, 0), (1, 2, 2, 3, 2, 3, 3, 4)),
        (make.reduction("all_gather", 8, 4), (6,) * 4),
        (make.reduction("all_reduce", 64, 2), (4, 4)),
        (make.send_recv(5, 3, 0, 2), (1, 0, 2)),
    ],
    ids=["barrier", "all_to_all", "broadcast", "all_gather", "all_reduce", "send"],
)
def test_latency_steps_count_a_notice_and_the_data_of_each_dependent_message(
    calls: list[Call], expected: tuple[int, ...]
) -> None:
    assert latency_steps(gloo.schedule(calls)) == list(expected)


def test_a_reduce_scatter_of_lists_is_an_all_reduce_of_each_tensor_as_the_kernel_counted_it() -> None:
    """1001, 1002 and 1003 float32 of each of 3 ranks, over gloo of torch 2.13."""
    sent = gloo.totals(make.in_parts("reduce_scatter", [4004, 4008, 4012], 3)).pair_bytes
    assert [[sent.get((source, target), 0) for target in range(3)] for source in range(3)] == [
        [0, 1152, 18344],
        [18320, 0, 1152],
        [1152, 18344, 0],
    ]


def test_a_schedule_that_cannot_end_is_an_assertion() -> None:
    script = (Recv(1, 1, 0), WaitRecv(1, 0))
    with pytest.raises(AssertionError, match="the schedule never ends"):
        latency_steps((script, ()))


def test_a_group_of_one_rank_sends_no_message() -> None:
    for calls in (make.reduction("all_reduce", 64, 1), make.barrier(1), make.broadcast(8, 1, 0)):
        assert gloo.schedule(calls) == ((),)
        assert gloo.totals(calls).pair_bytes == {}
