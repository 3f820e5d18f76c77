"""When a real rank checks calls before data moves, and that order and overlap stay as they are."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from real.launch.job import Check
from real.libraries.errors import failure_of
from real.rank.run import is_second_hand, sentence_of
from scenarios.seam.errors import CollectiveError, ProgramError, RankLostError
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from tests.contract.scripts import Script
from tests.contract.worlds import scenario
from tests.real.pool import shared_pool

SLEEP_S = 0.3
SLEEP = Kernel(kind="elementwise")


def collect_results(body: Any, check: Check, ranks: int = 2) -> list[Any]:
    script = Script(body)
    shared_pool().play(script, scenario(1, ranks), check)
    return [script.returned[rank] for rank in range(ranks)]


async def is_checked(rank: Rank) -> bool:
    """Whether ranks that give the same bytes as different types are told."""
    tensors = [torch.ones(1, dtype=torch.int32 if rank.rank else torch.float32) for _ in range(rank.world_size)]
    try:
        await rank.all_to_all(tensors, tensors)
    except CollectiveError:
        return True
    return False


async def checks_by_step(rank: Rank) -> list[bool]:
    checked = [await is_checked(rank)]
    for step in range(3, 5):
        with rank.step(step):
            checked.append(await is_checked(rank))
        checked.append(await is_checked(rank))
    return checked


@pytest.mark.parametrize(
    ("check", "checked"),
    [("always", [True] * 5), ("first", [True, True, False, False, False]), ("never", [False] * 5)],
)
def test_calls_are_checked_always_or_until_the_first_step_has_ended_or_never(check: Check, checked: list[bool]) -> None:
    assert collect_results(checks_by_step, check) == [checked] * 2


async def outlives_the_first_step(rank: Rank) -> tuple[bool, bool]:
    side = rank.stream("side")
    with rank.step(0):
        spawned = side.spawn(checks_late(side))
    later = await is_checked(rank)
    return await spawned, later


async def checks_late(rank: Rank) -> bool:
    await rank.compute(SLEEP, time.sleep, SLEEP_S * (1 + rank.rank))
    return await is_checked(rank)


def test_coroutines_spawned_in_the_first_step_stay_checked() -> None:
    assert collect_results(outlives_the_first_step, "first") == [(True, False)] * 2


async def leaves_the_first_step_behind(rank: Rank) -> list[float]:
    """Rank 1 comes late, so that rank 0 issues without a check what must come after calls that wait for one."""
    tensors = [torch.full((1,), float(number)) for number in range(6)]
    if rank.rank == 1:
        time.sleep(SLEEP_S)
    with rank.step(0):
        works = [rank.all_reduce(tensor) for tensor in tensors[:3]]
    works += [rank.all_reduce(tensor) for tensor in tensors[3:]]
    for work in works:
        await work
    return [tensor.item() for tensor in tensors]


def test_unchecked_calls_stay_behind_earlier_checked_ones() -> None:
    assert collect_results(leaves_the_first_step_behind, "first") == [[0.0, 2.0, 4.0, 6.0, 8.0, 10.0]] * 2


async def issues_before_the_others(rank: Rank) -> tuple[bool, bool]:
    """Whether a verb returned, and the program went on, while another member was away."""
    tensor = torch.ones(4)
    if rank.rank == 1:
        time.sleep(SLEEP_S)
    began_s = time.monotonic()
    work = rank.all_reduce(tensor)
    issued_s = time.monotonic()
    await rank.compute(SLEEP, time.sleep, 0.0)
    await work
    return issued_s - began_s < SLEEP_S / 2, time.monotonic() - began_s > SLEEP_S / 2


def test_a_verb_returns_at_once_and_only_await_waits() -> None:
    assert collect_results(issues_before_the_others, "always") == [(True, True), (True, False)]


async def leave_untouched(rank: Rank) -> list[float]:
    output = torch.full((2 + rank.rank,), 5.0)
    with pytest.raises(CollectiveError):
        await rank.all_gather_into_tensor(torch.full((2 * (1 + rank.rank),), 7.0), torch.ones(1 + rank.rank))
    with pytest.raises(CollectiveError):
        await rank.all_to_all_single(output, torch.ones(2 + rank.rank), [1 + rank.rank, 1], [1 + rank.rank, 1])
    return list(output.tolist())


def test_outputs_of_calls_that_do_not_fit_stay_as_they_were() -> None:
    assert collect_results(leave_untouched, "always") == [[5.0] * 2, [5.0] * 3]


async def refuses(rank: Rank) -> int:
    """A call that failed is a span like any other, and the rank is not said to wait for it."""
    for _ in range(2):
        with pytest.raises(CollectiveError):
            await rank.all_reduce(torch.ones(1 + rank.rank))
    await rank.barrier()
    return 0


def test_a_call_that_failed_is_in_the_recording() -> None:
    recording = shared_pool().play(Script(refuses), scenario(1, 2))
    spans = [(span.rank, span.kind, span.call) for span in recording.spans]
    assert spans == [
        (rank, kind, call) for rank in range(2) for call, kind in enumerate(["all_reduce"] * 2 + ["barrier"])
    ]
    assert all(span.start_ns <= span.end_ns <= span.wait_until_ns for span in recording.spans)


GLOOS = "[/somewhere/third_party/gloo/gloo/transport/tcp/pair.cc:537] Connection closed by peer [127.0.0.1]:417"
REFUSED = "[enforce fail at /somewhere/gloo/gloo/transport/tcp/pair.cc:922] nbytes <= tbuf->size - offset. 20 vs 16"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError(GLOOS), RankLostError),
        (dist.DistNetworkError("The client socket has timed out"), RankLostError),
        (dist.DistBackendError("NCCL error"), RankLostError),
        (RuntimeError(REFUSED), ProgramError),
        (RuntimeError("Invalid scalar type\nException raised from ..."), ProgramError),
    ],
    ids=["broken", "store", "nccl", "enforce", "refused"],
)
def test_only_what_the_transport_raises_is_a_lost_connection(error: RuntimeError, kind: type) -> None:
    lost = failure_of(1, "all_reduce", error)
    assert type(lost) is kind
    assert str(lost) == f"rank 1: all_reduce failed: {str(error).splitlines()[0]}"


def test_news_of_another_ranks_mistake_is_second_hand_also_when_it_is_dressed_up() -> None:
    sentence = "rank 1: all_to_all: input must be a tensor, got int"
    heard, outer = CollectiveError(sentence), ValueError("my layer failed")
    outer.__cause__ = heard
    assert [is_second_hand(heard, rank) for rank in range(2)] == [True, False]
    assert [is_second_hand(outer, rank) for rank in range(2)] == [True, False]
    assert is_second_hand(RankLostError("rank 0: barrier failed"), 0)
    assert not is_second_hand(CollectiveError("group world: rank 0 calls barrier, but rank 1 calls broadcast"), 0)
    assert not is_second_hand(ValueError("rank 3: no"), 0)


def test_the_sentence_of_a_bad_call_is_the_same_from_every_rank() -> None:
    sentence = "rank 1: all_to_all: input must be a tensor, got int"
    assert sentence_of(TypeError(sentence), 1) == sentence_of(CollectiveError(sentence), 0) == sentence
    assert sentence_of(TypeError("no"), 1) == "rank 1 raised TypeError: no"
