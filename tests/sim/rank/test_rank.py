"""The verbs in simulated time: overlap, order, values, and what is said when a program goes wrong."""

from __future__ import annotations

import pytest
import torch

from scenarios.seam.errors import CollectiveError, DeadlockError, ProgramError, ScenarioError
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording
from sim.run import simulate
from tests.small import Play, cluster, scenario

US = Kernel(kind="test", flops=1e7)  # one microsecond of the test GPU


def play(program: object, **changes: object) -> Recording:
    return simulate(scenario(**changes), Play(program))  # type: ignore[arg-type]


def test_a_program_computes_on_one_thread_as_a_real_rank_does() -> None:
    async def program(rank: Rank) -> None:
        threads.append(torch.get_num_threads())

    threads: list[int] = []
    torch.set_num_threads(2)
    play(program, on=cluster(1, 1))
    threads.append(torch.get_num_threads())
    torch.set_num_threads(1)
    assert threads == [1, 2]


def test_an_output_is_poisoned_until_its_operation_completes() -> None:
    seen = []

    async def program(rank: Rank) -> None:
        tensor, counts = torch.ones(4), torch.ones(2, dtype=torch.int64)
        work, counting = rank.all_reduce(tensor), rank.all_reduce(counts)
        seen.append((tensor.isnan().all().item(), counts.tolist()))
        assert (await work).tolist() == [4.0] * 4
        assert (await counting).tolist() == [4, 4]

    play(program)
    assert seen == [(True, [-1, -1])] * 4


def test_kernels_of_one_stream_run_one_after_the_other_and_of_two_side_by_side() -> None:
    async def program(rank: Rank) -> None:
        first, second = rank.compute(US, int, label="first"), rank.compute(US, int, label="second")
        await first
        await second
        side = rank.stream("side")

        async def beside() -> None:
            await side.compute(US, int, label="beside")

        work = side.spawn(beside())
        await rank.compute(US, int, label="main")
        await work

    spans = {span.label: span for span in play(program, on=cluster(1, 1)).spans}
    assert (spans["first"].end_ns, spans["second"].start_ns, spans["second"].end_ns) == (1000, 1000, 2000)
    assert (spans["main"].start_ns, spans["beside"].start_ns) == (2000, 2000)
    assert (spans["main"].end_ns, spans["beside"].end_ns) == (4000, 4000)


def test_a_collective_waits_for_what_its_stream_has_computed() -> None:
    async def program(rank: Rank) -> None:
        computing = rank.compute(US, int)
        await rank.barrier()
        await computing

    for span in play(program).spans:
        if span.kind == "barrier":
            assert span.start_ns == 1000


def test_gloo_serves_two_collectives_of_a_group_at_a_time_and_nccl_one() -> None:
    async def program(rank: Rank) -> None:
        works = [rank.all_reduce(torch.empty(100_000, device="meta")) for _ in range(3)]
        for work in works:
            await work

    for library, started in (("gloo", 2), ("nccl", 1)):
        spans = [span for span in play(program, library=library, payload="sizes").spans if span.rank == 0]
        assert sum(span.start_ns == 0 for span in spans) == started


@pytest.mark.parametrize("library", ["gloo", "nccl"])
@pytest.mark.parametrize("fidelity", ["flows", "links"])
def test_every_library_and_fidelity_moves_the_true_bytes(library: str, fidelity: str) -> None:
    async def program(rank: Rank) -> None:
        size, me = rank.world_size, rank.rank
        output = torch.empty(sum(source + 1 for source in range(size)), dtype=torch.int64)
        sent = torch.full((size * (me + 1),), me)
        splits = [source + 1 for source in range(size)]
        await rank.all_to_all_single(output, sent, splits, [me + 1] * size)
        assert output.tolist() == [source for source in range(size) for _ in range(source + 1)]
        part = await rank.reduce_scatter_tensor(torch.empty(1), torch.arange(float(size)))
        assert part.item() == me * size
        assert (await rank.all_gather_into_tensor(torch.empty(size), part)).tolist() == [i * size for i in range(size)]
        assert (await rank.broadcast(torch.full((2,), float(me)), 2)).tolist() == [2.0, 2.0]
        if me == 0:
            await rank.send(torch.ones(3), 3)
        if me == 3:
            assert (await rank.recv(torch.empty(3), 0)).tolist() == [1.0] * 3

    spans = play(program, library=library, fidelity=fidelity).spans
    assert sum(span.kind == "all_to_all_single" for span in spans) == 4


def test_a_deadlock_names_the_ranks_and_what_each_waits_for() -> None:
    async def program(rank: Rank) -> None:
        if rank.rank == 0:
            await rank.barrier(rank.intra)
        elif rank.rank == 1:
            await rank.all_reduce(torch.ones(1), label="late")

    with pytest.raises(DeadlockError) as caught:
        play(program)
    assert str(caught.value) == (
        "deadlock at 4038 ns: rank 0 waits for barrier (call 0 of group intra:0), which rank 1 never entered;"
        " rank 1 waits for all_reduce 'late' (call 0 of group world), which ranks 0, 2, 3 never entered"
    )


def test_calls_that_do_not_fit_explain_a_deadlock_better_than_the_member_that_never_came() -> None:
    async def disagrees(rank: Rank) -> None:
        if rank.rank < 3:
            await rank.all_reduce(torch.ones(1 + rank.rank % 2))

    async def is_refused(rank: Rank) -> None:
        if rank.rank == 1:
            with pytest.raises(TypeError):
                rank.all_to_all((), [])  # type: ignore[arg-type]
        elif rank.rank < 3:
            await rank.barrier()

    for program, sentence in (
        (
            disagrees,
            "group world: rank 0 calls all_reduce (4 bytes, float32, sum),"
            " but rank 1 calls all_reduce (8 bytes, float32, sum)",
        ),
        (is_refused, "rank 1: all_to_all: output_tensor_list must be a list of tensors, got tuple"),
    ):
        with pytest.raises(CollectiveError) as caught:
            play(program)
        assert str(caught.value) == sentence


@pytest.mark.parametrize("library", ["gloo", "nccl"])
@pytest.mark.parametrize("fidelity", ["flows", "links"])
def test_a_group_goes_on_after_a_call_that_failed(library: str, fidelity: str) -> None:
    async def program(rank: Rank) -> None:
        for root in range(2):
            with pytest.raises(CollectiveError):
                await rank.broadcast(torch.ones(1000), 0 if rank.rank < 3 else root + 1)
        tensor = torch.ones(3)
        assert (await rank.all_reduce(tensor)).tolist() == [4.0] * 3

    play(program, library=library, fidelity=fidelity)


def test_a_tensor_without_values_does_not_meet_one_that_has_them() -> None:
    async def program(rank: Rank) -> None:
        await rank.all_reduce(torch.ones(1, device="meta" if rank.rank else "cpu"))

    with pytest.raises(CollectiveError) as caught:
        play(program, on=cluster(1, 2), payload="sizes")
    assert str(caught.value) == (
        "group world: rank 0 calls all_reduce (4 bytes, float32, sum),"
        " but rank 1 calls all_reduce (4 bytes, float32, meta, sum)"
    )


def test_exceptions_on_another_stream_win_over_the_deadlock_they_cause() -> None:
    async def program(rank: Rank) -> None:
        side = rank.stream("side")

        async def wrong() -> None:
            raise ValueError("no such table")

        work = side.spawn(wrong()) if rank.rank == 1 else None
        if rank.rank != 3:
            await rank.barrier()
        if work is not None:
            await work

    with pytest.raises(ProgramError) as caught:
        play(program)
    assert str(caught.value).startswith(f"rank 1 raised ValueError: no such table (at {__file__}:")


def test_a_mistake_in_a_file_that_ranks_read_is_its_sentence_alone() -> None:
    async def program(rank: Rank) -> None:
        raise ScenarioError("trace.json: no kernels of a GPU")

    with pytest.raises(ProgramError, match=r"\Atrace.json: no kernels of a GPU\Z"):
        play(program)


@pytest.mark.parametrize("flops", [-1.0, float("nan"), float("inf")])
def test_a_kernel_of_impossible_size_is_refused(flops: float) -> None:
    async def program(rank: Rank) -> None:
        await rank.compute(Kernel(kind="test", flops=flops), int)

    with pytest.raises(ProgramError) as caught:
        play(program, on=cluster(1, 1))
    assert str(caught.value) == f"a test kernel has flops = {flops}: expected a finite number of at least 0"


def test_spawned_work_belongs_to_the_step_of_its_spawn() -> None:
    async def program(rank: Rank) -> None:
        side = rank.stream("side")

        async def slow() -> None:
            for _ in range(3):
                await side.compute(US, int)

        with rank.step(0):
            work = side.spawn(slow())
            await rank.compute(US, int)
        with rank.step(1):
            await rank.compute(US, int)
            await work

    spans = play(program, on=cluster(1, 1)).spans
    assert [span.step for span in spans if span.stream == "side"] == [0, 0, 0]
