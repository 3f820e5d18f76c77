"""States that differ between ranks: one sentence on every rank, before anything is reduced."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from real.ddp.agreement import difference, facts_of
from real.ddp.buckets import BucketLayout
from scenarios.compression import PowerSGDState
from tests.contract.worlds import results
from tests.real.ddp import scripts as hook_scripts
from tests.real.ddp.scripts import Training

OPTIONS: dict[str, Any] = {"start_powerSGD_iter": 2, "matrix_approximation_rank": 2}
PLAIN = Training("batched", OPTIONS)


def describe(trainings: tuple[Training, ...], stored: tuple[bytes, ...] = ()) -> list[str]:
    return results("real", 1, len(trainings), hook_scripts.mistake_of, trainings, 4, stored)


def other(**options: Any) -> Training:
    return dataclasses.replace(PLAIN, options={**OPTIONS, **options})


@pytest.mark.parametrize(
    ("trainings", "what"),
    [
        ((PLAIN, other(matrix_approximation_rank=4)), "matrix_approximation_rank is 2 on rank 0, 4 on rank 1"),
        ((PLAIN, other(start_powerSGD_iter=3), PLAIN), "start_powerSGD_iter is 2 on ranks 0 and 2, 3 on rank 1"),
        (
            (PLAIN, PLAIN, dataclasses.replace(other(use_error_feedback=False), hook="layerwise")),
            "the hook is batched_powerSGD_hook on ranks 0 and 1, powerSGD_hook on rank 2;"
            " use_error_feedback is True on ranks 0 and 1, False on rank 2",
        ),
    ],
    ids=["rank", "start", "hook"],
)
def test_states_that_differ_are_one_sentence_on_every_rank(trainings: tuple[Training, ...], what: str) -> None:
    sentence = f"ValueError: the PowerSGD states differ: {what}; expected the same on every rank"
    assert describe(trainings) == [sentence] * len(trainings)


def test_a_rank_that_begins_anew_where_others_resume_is_told_on_every_rank() -> None:
    kept = [stored for _, stored in results("real", 1, 2, hook_scripts.train, PLAIN, 0, 4, 3, ())]
    found = describe((PLAIN, PLAIN), (kept[0], b""))
    start = (
        "ValueError: the PowerSGD states differ: iter is 3 on rank 0, 0 on rank 1; what is remembered of buckets is "
    )
    assert [sentence.startswith(start) for sentence in found] == [True, True]
    assert found[0] == found[1]
    assert "; the generator of draws is " in found[0]


def test_logging_options_may_differ() -> None:
    assert describe((PLAIN, other(compression_stats_logging_frequency=3))) == ["nothing was refused"] * 2
    assert describe((PLAIN, other(min_compression_rate=2.0))) == ["nothing was refused"] * 2


def state(**options: Any) -> PowerSGDState:
    return PowerSGDState(**{**OPTIONS, **options})


DIFFERENT: dict[str, Any] = {
    "matrix_approximation_rank": 3,
    "start_powerSGD_iter": 5,
    "min_compression_rate": 2.5,
    "use_error_feedback": False,
    "warm_start": False,
    "orthogonalization_epsilon": 1e-8,
    "random_seed": 1,
    "batch_tensors_with_same_shape": True,
    "survive_zero_matrices": True,
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_every_option_that_decides_numbers_is_a_fact(name: str) -> None:
    mine, theirs = (
        facts_of("powerSGD_hook", each, BucketLayout()) for each in (state(), state(**{name: DIFFERENT[name]}))
    )
    assert f"{name} is {getattr(state(), name)} on rank 4, {DIFFERENT[name]} on rank 7" in difference(
        [mine, theirs], [4, 7]
    )


def test_draws_that_were_made_and_memory_are_facts() -> None:
    layout = BucketLayout(forms=[((3,), torch.float32)], buckets=[(0,)])
    one, drawn, holding = state(), state(), state()
    drawn.next_seed()
    holding.error_dict[0] = torch.zeros(3)
    facts = [facts_of("powerSGD_hook", each, layout) for each in (one, drawn, holding)]
    differing = [{name for name in facts[0] if facts[0][name] != each[name]} for each in facts]
    assert differing == [set(), {"the generator of draws"}, {"what is remembered of buckets"}]
