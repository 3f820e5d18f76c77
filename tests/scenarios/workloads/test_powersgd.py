from __future__ import annotations

from math import prod

import pytest
import torch

from scenarios.config.scenario import Buckets, Compression, GradientReduction, Gradients, Scenario
from scenarios.workloads.powersgd.program import PowerSGDProgram, Products, draw_pool, update_sgd, weight_gradient
from tests.lockstep import Lockstep, play
from tests.scenarios.compression.helpers import GPU_BYTES, a_scenario, list_issued

SHAPES = ((16, 8), (16,), (4, 16), (4,), (3, 2, 4))
NUMEL = sum(map(prod, SHAPES))
LAYERWISE = Compression(kind="layerwise_powersgd", start_powerSGD_iter=2)
BATCHED = Compression(kind="batched_powersgd", start_powerSGD_iter=2, matrix_approximation_rank=2)


def scenario(compression: Compression = LAYERWISE, *, flops: float = 2.0 * NUMEL * 6, steps: int = 4) -> Scenario:
    return a_scenario(
        3,
        gradients=Gradients(shapes=SHAPES, backward_flops=flops),
        compression=compression,
        buckets=Buckets(first_bytes=64, cap_bytes=300),
        steps=steps,
    )


def play_steps(given: Scenario, device: str = "cpu", seed: int = 0) -> Lockstep:
    return play(PowerSGDProgram(given), given.cluster.world_size, device=device, seed=seed)[1]


def norms(fabric: Lockstep, rank: int = 0) -> list[float]:
    found = {step: value for member, step, name, value in fabric.records if (member, name) == (rank, "gradient_norm")}
    return [found[step] for step in range(len(found))]


@pytest.mark.parametrize("flops", [0.0, 2.0 * NUMEL * 6])
def test_the_norm_is_that_of_the_mean_of_all_ranks_gradients(flops: float) -> None:
    given = scenario(Compression(), flops=flops)
    work = Products(GradientReduction.of(given.workload).shapes, GradientReduction.of(given.workload).backward_flops)
    pools = [
        draw_pool(given.run.seed, rank, work, dtype=torch.float32, device=torch.device("cpu")) for rank in range(3)
    ]
    expected = []
    for step in range(given.run.steps):
        means = [
            torch.stack([weight_gradient(*work.inputs(pool, step, index), shape).double() for pool in pools]).mean(0)
            for index, shape in enumerate(SHAPES)
        ]
        expected.append(float(torch.cat([mean.reshape(-1) for mean in means]).norm()))
    assert len({round(norm, 3) for norm in expected}) == given.run.steps  # every step has gradients of its own
    fabric = play_steps(given)
    for rank in range(3):
        assert norms(fabric, rank) == pytest.approx(expected, rel=1e-5)


def test_ranks_and_seeds_have_gradients_of_their_own() -> None:
    work = Products(SHAPES, 0.0)
    drawn = [
        draw_pool(seed, rank, work, dtype=torch.float32, device=torch.device("cpu"))
        for seed in (0, 1)
        for rank in (0, 1)
    ]
    assert not any(torch.equal(one, other) for one in drawn for other in drawn if one is not other)


def test_gradients_vary_by_about_one_whatever_the_work() -> None:
    shape = ((200, 100),)
    for flops in (0.0, 2 * 20_000 * 10, 2 * 20_000 * 300):
        work = Products(shape, flops)
        pool = draw_pool(1, 2, work, dtype=torch.float32, device=torch.device("cpu"))
        assert weight_gradient(*work.inputs(pool, 3, 0), shape[0]).std() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("compression", [LAYERWISE, BATCHED], ids=lambda compression: compression.kind)
def test_compression_starts_at_its_step_and_all_ranks_agree(compression: Compression) -> None:
    fabric, exact = play_steps(scenario(compression)), norms(play_steps(scenario(Compression())))
    assert norms(fabric)[:2] == exact[:2]
    assert all(ours != pytest.approx(true, rel=1e-4) for ours, true in zip(norms(fabric)[2:], exact[2:], strict=True))
    assert norms(fabric, 0) == norms(fabric, 1) == norms(fabric, 2)
    labels = [call.label for call in fabric.calls if call.rank == 0]
    assert labels.count("powersgd.vanilla") == labels.count("powersgd.P") > 0


@pytest.mark.parametrize("compression", [Compression(), LAYERWISE, BATCHED], ids=lambda compression: compression.kind)
def test_a_meta_run_issues_the_same_as_one_with_values(compression: Compression) -> None:
    values, sizes = play_steps(scenario(compression)), play_steps(scenario(compression), device="meta")
    for rank in range(3):
        assert list_issued(sizes, rank) == list_issued(values, rank)
    assert not sizes.records


def test_no_interleaving_changes_a_bit() -> None:
    first = play_steps(scenario())
    for seed in (1, 2, 3):
        again = play_steps(scenario(), seed=seed)
        assert [norms(again, rank) for rank in range(3)] == [norms(first, rank) for rank in range(3)]


def test_the_backward_passes_take_the_flops_that_were_asked_for() -> None:
    flops = 2.0 * NUMEL * 6
    fabric = play_steps(scenario(flops=flops, steps=2))
    backward = [(label, kernel) for rank, label, kernel in fabric.kernels if rank == 1 and "backward" in label]
    assert [label for label, _ in backward] == [f"backward.{index}" for index in (4, 3, 2, 1, 0)] * 2
    assert sum(kernel.flops for _, kernel in backward) == pytest.approx(2 * flops)
    assert backward[4][1].flops == pytest.approx(flops * 128 / NUMEL)
    # ... and these are the flops of the products that are made: 6 samples, 2 flops for each element of the gradient.
    assert backward[4][1].flops == pytest.approx(2 * 6 * 128)
    assert backward[4][1].bytes_read == 4 * 6 * (16 + 8)
    assert backward[4][1].bytes_written == 4 * 128


def test_the_update_is_plain_sgd_and_gives_the_norm() -> None:
    parameters = [torch.tensor([1.0, 2.0]), torch.tensor([[3.0]])]
    norm = update_sgd(parameters, [torch.tensor([4.0, 0.0]), torch.tensor([[-3.0]])], 0.5)
    assert [parameter.tolist() for parameter in parameters] == [[-1.0, 2.0], [[4.5]]]
    assert float(norm) == 5


def test_the_norm_of_half_precision_is_summed_in_float32() -> None:
    gradient = torch.full((10_000,), 100.0, dtype=torch.float16)
    norm = update_sgd([torch.zeros_like(gradient)], [gradient])
    assert norm.dtype == torch.float32
    assert float(norm) == 10_000


def test_memory_is_stated_for_every_rank() -> None:
    rows = PowerSGDProgram(scenario()).memory
    assert {row.rank for row in rows} == {0, 1, 2}
    assert {row.capacity_bytes for row in rows} == {GPU_BYTES}
    parts = {row.part: row.size_bytes for row in rows if row.rank == 2}
    # The matrices all pay: 2 (16 + 8) < 16 * 8, 2 (4 + 16) < 4 * 16, 2 (3 + 8) < 3 * 8.
    assert parts == {
        "parameters": 4 * NUMEL,
        "gradients": 4 * NUMEL,
        "operands": 4 * (4093 + 6 * (16 + 8)),
        "gradient buckets": 4 * NUMEL,
        "compression factors": 4 * (16 + 8 + 4 + 16 + 3 + 8),
        "compression error": 4 * NUMEL,
    }
