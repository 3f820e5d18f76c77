"""Replays what torch's own hooks did, case by case: results, errors, factors, draws, traffic and statistics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from scenarios.compression import PowerSGDState, batched_powersgd, layerwise_powersgd
from scenarios.compression.state import draw_normal
from scenarios.programs.buckets import GradientBucket
from tests.scenarios.compression.lockstep import play

DATA = Path(__file__).parents[2] / "data"
ALGORITHMS = {"batched_powerSGD_hook": batched_powersgd, "powerSGD_hook": layerwise_powersgd}
TOLERANCE = {"float32": 2e-5, "float64": 1e-12, "float16": 1e-2, "bfloat16": 5e-2}
KEYS = {
    *("id", "ws", "hook", "param_shapes", "dtype", "steps_requested", "steps_recorded", "data", "data_seed", "zero_at"),
    *("bucket_cap_mb", "state_kwargs", "error_shim213", "error_v111", "error_shipped213", "compression_stats"),
    *("steps", "has_nan", "outputs_equal_on_all_ranks", "max_rel_diff_numpy_float64_ref", "max_rel_diff_v111"),
    "stats_ref",
}


def cases() -> list[Any]:
    found = []
    for file in ("batched_powersgd", "layerwise_powersgd"):
        for case in json.loads((DATA / f"{file}.json").read_text())["cases"]:
            found.append(pytest.param(file, case, id=case["id"]))  # noqa: PERF401
    assert len(found) == 26 + 7
    return found


class CountingState(PowerSGDState):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.seeds: list[int] = []

    def next_seed(self) -> int:
        self.seeds.append(super().next_seed())
        return self.seeds[-1]


class Replay:
    """One case: the buckets as they were recorded, and what came out."""

    def __init__(self, file: str, case: dict[str, Any]) -> None:
        assert set(case) <= KEYS, f"unknown fields {set(case) - KEYS}"
        with np.load(DATA / f"{file}.npz") as arrays:
            self.arrays = {name: arrays[name] for name in arrays if name.startswith(f"{case['id']}/")}
        self.case, self.dtype = case, getattr(torch, case["dtype"])
        self.states: dict[int, CountingState] = {}

    def array(self, step: int, bucket: int, name: str) -> Tensor | None:
        found = self.arrays.get(f"{self.case['id']}/s{step}/b{bucket}/{name}")
        return None if found is None else torch.from_numpy(found).to(self.dtype)

    async def steps(self, rank: Any) -> list[list[Tensor]]:
        state = self.states[rank.rank] = CountingState(**self.case["state_kwargs"])
        outputs = []
        for step, recorded in enumerate(self.case["steps"]):
            assert state.iter == recorded["iter_before"]
            outputs.append([await self.reduce(rank, state, step, row) for row in recorded["buckets"]])
            assert state.iter == recorded["iter_after"]
        return outputs

    async def reduce(self, rank: Any, state: CountingState, step: int, row: dict[str, Any]) -> Tensor:
        index = row["bucket"]
        inputs = self.array(step, index, "in")
        assert inputs is not None
        shapes = [tuple(self.case["param_shapes"][member]) for member in row["param_order"]]
        bucket = GradientBucket(index, inputs[rank.rank].clone(), shapes, is_last=row["is_last"])
        seeds_before = len(state.seeds)
        result = (await ALGORITHMS[self.case["hook"]](rank, state, bucket)).clone()
        # One integer of the RandomState for each call that draws, whatever the number of draws in it.
        assert len(state.seeds) == seeds_before + (1 if row["n_draws"] else 0)
        if rank.world_size == self.case["ws"]:
            self.check_memory(state, step, index, rank.rank)
        return result

    def check_memory(self, state: PowerSGDState, step: int, bucket: int, rank: int) -> None:
        error = self.array(step, bucket, "err")
        for memory, expected in (
            (state.p_memory_dict, self.array(step, bucket, "p")),
            (state.q_memory_dict, self.array(step, bucket, "q")),
            (state.error_dict, None if error is None else error[rank]),
        ):
            if expected is not None:
                self.close(memory[bucket], expected.reshape(-1), f"step {step} bucket {bucket}")

    def close(self, actual: Tensor, expected: Tensor, where: str) -> None:
        assert actual.dtype == expected.dtype
        scale = expected.double().abs().nan_to_num(0).max().item() if expected.numel() else 0.0
        bound = TOLERANCE[self.case["dtype"]] * scale
        torch.testing.assert_close(
            actual.double(), expected.double(), rtol=0, atol=bound, equal_nan=True, msg=lambda text: f"{where}: {text}"
        )


@pytest.mark.parametrize(("file", "case"), cases())
def test_every_recorded_case_replays(file: str, case: dict[str, Any]) -> None:
    replay = Replay(file, case)
    error = case["error_shim213"]
    if error and error["where"] == "PowerSGDState":
        with pytest.raises(ValueError, match=r"^start_powerSGD_iter = \d: expected 2 or more with use_error_feedback"):
            PowerSGDState(**case["state_kwargs"])
        return
    results, fabric = play(replay.steps, case["ws"], seed=case["data_seed"])
    for step, row in enumerate(case["steps"]):
        for bucket, recorded in enumerate(row["buckets"]):
            expected = replay.array(step, recorded["bucket"], "out")
            assert expected is not None
            for rank in range(case["ws"]):
                replay.close(results[rank][step][bucket], expected, f"step {step}, bucket {bucket}, rank {rank}")
                assert torch.equal(results[rank][step][bucket].nan_to_num(7), results[0][step][bucket].nan_to_num(7))
    for rank in range(case["ws"]):
        sent = [(call.op, call.bytes_in, call.dtype) for call in fabric.calls if call.rank == rank]
        rows = [reduced for row in case["steps"] for reduced in row["allreduce"]]
        assert sent == [("all_reduce", row[2], row[1]) for row in rows]
    if error:
        check_rank_beyond_the_side(replay, case)
    else:
        assert case["steps_recorded"] == case["steps_requested"] == len(case["steps"])
    assert all(list(state.compression_stats()) == case["compression_stats"] for state in replay.states.values())


def check_rank_beyond_the_side(replay: Replay, case: dict[str, Any]) -> None:
    assert case["error_shim213"]["where"] == f"step {len(case['steps'])}"
    (shape,) = case["param_shapes"]

    async def one_more(rank: Any) -> str:
        bucket = GradientBucket(0, torch.ones(*shape), [tuple(shape)], is_last=True)
        with pytest.raises(ValueError, match="bucket 0: matrix_approximation_rank") as caught:
            await batched_powersgd(rank, replay.states[rank.rank], bucket)
        return str(caught.value)

    sentences, fabric = play(one_more, case["ws"])
    rank = case["state_kwargs"]["matrix_approximation_rank"]
    sentence = f"bucket 0: matrix_approximation_rank = {rank}: expected 2 or less, the side of the square that holds 3"
    assert sentences == [f"{sentence} elements"] * case["ws"]
    assert not fabric.calls
    assert not fabric.meetings


@pytest.mark.parametrize(("file", "case"), [case for case in cases() if case.values[1].get("steps")])
def test_draws_are_torchs_bit_for_bit(file: str, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    replay, drawn = Replay(file, case), list[Tensor]()

    def keep(seed: int, targets: list[Tensor]) -> None:
        draw_normal(seed, targets)
        drawn.extend(target.clone() for target in targets)

    monkeypatch.setattr("scenarios.compression.power_iteration.draw_normal", keep)
    play(replay.steps, 1)
    expected = [
        replay.array(step, recorded["bucket"], f"draw{number}")
        for step, row in enumerate(case["steps"])
        for recorded in row["buckets"]
        for number in range(recorded["n_draws"])
    ]
    assert len(drawn) == len(expected)
    for ours, theirs in zip(drawn, expected, strict=True):
        assert theirs is not None
        assert torch.equal(ours.reshape(-1), theirs.reshape(-1))
