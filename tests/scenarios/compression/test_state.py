from __future__ import annotations

import inspect
import logging
import pickle

import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState as TorchState

from scenarios.compression import PowerSGDState, batched_powersgd, layerwise_powersgd
from scenarios.config.scenario import Compression
from scenarios.seam.group import Group
from tests.scenarios.compression.helpers import Run, random_gradients

SHAPES = [(6, 8), (5,), (6, 8), (4, 9)]


def test_options_defaults_and_order_are_torchs() -> None:
    theirs = inspect.signature(TorchState).parameters
    ours = inspect.signature(PowerSGDState).parameters
    assert list(ours)[: len(theirs)] == list(theirs)
    assert list(ours)[len(theirs) :] == ["survive_zero_matrices"]
    for name, parameter in list(theirs.items())[1:]:
        assert ours[name].default == parameter.default, name
    assert PowerSGDState().survive_zero_matrices is False


def test_a_scenarios_options_arrive() -> None:
    options = Compression(
        kind="layerwise_powersgd",
        matrix_approximation_rank=3,
        start_powerSGD_iter=7,
        min_compression_rate=1.5,
        use_error_feedback=False,
        warm_start=False,
        orthogonalization_epsilon=1e-6,
        random_seed=5,
        compression_stats_logging_frequency=9,
        batch_tensors_with_same_shape=True,
    )
    group = Group("some", (0, 2))
    state = PowerSGDState.from_options(options, group)
    assert state.process_group is group
    assert {name: getattr(state, name) for name in options.__dataclass_fields__ if name != "kind"} == {
        name: getattr(options, name) for name in options.__dataclass_fields__ if name != "kind"
    }


@pytest.mark.parametrize("options", [{}, {"warm_start": False}, {"use_error_feedback": False}])
@pytest.mark.parametrize("start", [0, 1])
def test_memory_from_before_the_second_step_is_refused(options: dict[str, bool], start: int) -> None:
    with pytest.raises(ValueError, match="start_powerSGD_iter") as caught:
        PowerSGDState(start_powerSGD_iter=start, **options)  # type: ignore[arg-type]
    assert str(caught.value) == (
        f"start_powerSGD_iter = {start}: expected 2 or more with use_error_feedback or warm_start, whose memory is by"
        " bucket, and DDP changes its buckets after the first step"
    )
    assert PowerSGDState(start_powerSGD_iter=start, warm_start=False, use_error_feedback=False).warming_up is (
        start > 0
    )


def test_a_rank_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="matrix") as caught:
        PowerSGDState(matrix_approximation_rank=0)
    assert str(caught.value) == "matrix_approximation_rank = 0: expected 1 or more"


@pytest.mark.parametrize("algorithm", [batched_powersgd, layerwise_powersgd])
@pytest.mark.parametrize("warm_start", [True, False])
@pytest.mark.parametrize("pickle_before", [0, 2, 3, 5])
def test_a_pickled_state_goes_on_with_the_same_bits(algorithm: object, warm_start: bool, pickle_before: int) -> None:
    gradients = random_gradients(SHAPES, 2, 6, dtype=torch.float32)
    options = {"start_powerSGD_iter": 2, "warm_start": warm_start, "matrix_approximation_rank": 2, "random_seed": 3}
    whole = Run(algorithm, SHAPES, gradients, **options)  # type: ignore[arg-type]
    resumed = Run(algorithm, SHAPES, gradients, pickle_before=pickle_before, **options)  # type: ignore[arg-type]
    for step in range(6):
        assert torch.equal(whole.results[step], resumed.results[step]), step
    for before, after in zip(whole.states, resumed.states, strict=True):
        assert torch.equal(before.error_dict[0], after.error_dict[0])
        assert before.compression_stats() == after.compression_stats()
        assert before.next_seed() == after.next_seed()


def test_everything_in_a_state_is_pickled() -> None:
    run = Run(
        layerwise_powersgd,
        SHAPES,
        random_gradients(SHAPES, 1, 4),
        start_powerSGD_iter=2,
        survive_zero_matrices=True,
        process_group=Group("main.world", (0,)),
    )
    state = run.states[0]
    copy = pickle.loads(pickle.dumps(state))
    for name in PowerSGDState.__dataclass_fields__:
        if name.endswith("_dict"):
            assert list(getattr(copy, name)) == [0]
            assert torch.equal(getattr(copy, name)[0], getattr(state, name)[0])
        elif name == "rng":
            assert copy.next_seed() == state.next_seed()
        else:
            assert getattr(copy, name) == getattr(state, name), name


def test_statistics_are_logged_each_so_many_steps(caplog: pytest.LogCaptureFixture) -> None:
    shapes = [(10, 10)]
    with caplog.at_level(logging.INFO, logger="scenarios.compression.state"):
        Run(
            batched_powersgd,
            shapes,
            random_gradients(shapes, 1, 8),
            start_powerSGD_iter=2,
            compression_stats_logging_frequency=3,
        )
    assert [record.getMessage() for record in caplog.records] == [
        "PowerSGD compresses from step 2 on",
        "step 2: compression rate 5 (100 elements to 20)",
        "step 5: compression rate 5 (400 elements to 80)",
    ]
