"""The hooks on real processes: many buckets, all kinds of models, and trainings that are stored and resumed."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState as TorchState

from real.ddp.hooks import PowerSGDState
from scenarios.compression import PowerSGDState as CoroutineState
from scenarios.compression import batched_powersgd, layerwise_powersgd
from scenarios.modules.ddp_buckets import GradientBucket
from scenarios.seam.group import Group
from tests.contract.worlds import results
from tests.lockstep import play
from tests.real.ddp import scripts as hook_scripts
from tests.real.ddp.scripts import HOOKS, Outcome, Training
from tests.real.pool import shared_pool

ALGORITHMS = {"batched": batched_powersgd, "layerwise": layerwise_powersgd}
BOTH = pytest.mark.parametrize("hook", ["batched", "layerwise"])
OPTIONS: dict[str, Any] = {"start_powerSGD_iter": 2, "matrix_approximation_rank": 2, "min_compression_rate": 1.2}
WHOLE: dict[str, Any] = {**OPTIONS, "matrix_approximation_rank": 1000, "min_compression_rate": 1e-6}
DDP: dict[str, Any] = {"bucket_cap_mb": 0.004}


@pytest.fixture(scope="module", autouse=True)
def processes_that_end_with_these_tests() -> Iterator[None]:
    """DDP never lets go of a group that it has trained in, whose threads wake up a hundred times a second."""
    yield
    shared_pool().close()


def train(training: Training, *steps: int, ranks: int = 2, stored: tuple[bytes, ...] = ()) -> list[Any]:
    begin, end, *store_at = steps
    found = results("real", 1, ranks, hook_scripts.train, training, begin, end, *(store_at or [-1]), stored)
    for outcome, _ in found[1:]:
        assert torch.equal(outcome.parameters, found[0][0].parameters)
    return found


@BOTH
def test_many_buckets_give_what_the_algorithm_gives_bucket_by_bucket(hook: str) -> None:
    training = Training(hook, OPTIONS, dtype=torch.float64)
    outcomes = [outcome for outcome, _ in train(training, 0, 32, ranks=3)]
    assert outcomes[0].iteration == 32
    assert len(outcomes[0].buckets) == 5

    async def alone(rank: Any) -> list[Tensor]:
        state, results = CoroutineState(**OPTIONS), []
        for index, shapes, is_last, before, _ in outcomes[rank.rank].reduced:
            bucket = GradientBucket(index, before.clone(), shapes, is_last=is_last)
            results.append((await ALGORITHMS[hook](rank, state, bucket)).clone())
        return results

    expected, _ = play(alone, 3)
    for outcome in outcomes:
        assert len(outcome.reduced) == 1 + 31 * 5
        for (*_, after), one in zip(outcome.reduced, expected[0], strict=True):
            torch.testing.assert_close(after, one, rtol=1e-9, atol=1e-12)


MEMORY = [(True, True), (True, False), (False, True), (False, False)]


@BOTH
@pytest.mark.parametrize(("feedback", "warm"), MEMORY)
def test_a_stored_training_resumes_with_the_same_bits(hook: str, feedback: bool, warm: bool) -> None:
    """With three ranks a sum depends on where in its bucket a number lies."""
    options = {**OPTIONS, "use_error_feedback": feedback, "warm_start": warm, "survive_zero_matrices": feedback}
    resumes_with_the_same_bits(Training(hook, options), store_at=5)


@pytest.mark.parametrize("store_at", [2, 3, 4])
def test_a_training_stored_before_compression_resumes_with_the_same_bits(store_at: int) -> None:
    resumes_with_the_same_bits(Training("batched", {**OPTIONS, "start_powerSGD_iter": 4}), store_at)


@pytest.mark.parametrize("ddp", [{"static_graph": True}, {"find_unused_parameters": True}], ids=str)
def test_other_bucket_options_resume_with_the_same_bits(ddp: dict[str, Any]) -> None:
    options = {**OPTIONS, "start_powerSGD_iter": 3, "use_error_feedback": False, "warm_start": False}
    resumes_with_the_same_bits(Training("batched", options, ddp={**DDP, **ddp}), store_at=4)
    resumes_with_the_same_bits(Training("layerwise", OPTIONS, ddp={**DDP, **ddp}), store_at=4)


def test_buckets_of_two_dtypes_resume_with_the_same_bits() -> None:
    resumes_with_the_same_bits(Training("layerwise", OPTIONS, kind="mixed", ddp={"bucket_cap_mb": 0.001}), store_at=4)


def test_a_state_keeps_its_buckets_when_the_cap_has_changed() -> None:
    training = Training("batched", OPTIONS)
    first = train(training, 0, 9, 5)
    other = dataclasses.replace(training, ddp={"bucket_cap_mb": 0.002})
    again = train(other, 5, 9, stored=tuple(kept for _, kept in first))
    assert torch.equal(again[0][0].parameters, first[0][0].parameters)
    assert again[0][0].buckets == first[0][0].buckets


def resumes_with_the_same_bits(training: Training, store_at: int) -> None:
    whole = train(training, 0, 9, store_at, ranks=3)
    resumed = train(training, store_at, 9, ranks=3, stored=tuple(kept for _, kept in whole))
    for (mine, _), (other, _) in zip(resumed, whole, strict=True):
        assert torch.equal(mine.parameters, other.parameters)
        assert (mine.buckets, mine.iteration) == (other.buckets, other.iteration)
        same_state(mine, other)


def same_state(mine: Outcome, other: Outcome) -> None:
    (_, _, one), (_, _, two) = pickle.loads(mine.stored), pickle.loads(other.stored)
    for name in ("error_dict", "p_memory_dict", "q_memory_dict", "reserve_dict"):
        left, right = getattr(one, name), getattr(two, name)
        assert left.keys() == right.keys()
        assert all(torch.equal(left[bucket], right[bucket]) for bucket in left)
    assert one.compression_stats() == two.compression_stats()
    assert one.next_seed() == two.next_seed()


@pytest.mark.parametrize(
    ("kind", "ddp", "accumulated"),
    [
        ("layers", {"gradient_as_bucket_view": True}, 0),
        ("layers", {"static_graph": True}, 0),
        ("layers", {}, 2),
        ("choosing", {"find_unused_parameters": True}, 0),
        ("mixed", {}, 0),
    ],
    ids=["bucket_view", "static_graph", "no_sync", "find_unused", "mixed"],
)
def test_with_full_rank_a_hook_changes_nothing_but_rounding(kind: str, ddp: dict[str, Any], accumulated: int) -> None:
    plain = Training(kind=kind, ddp={**DDP, **ddp}, accumulated=accumulated)
    hooked = dataclasses.replace(plain, hook="layerwise", options=WHOLE)
    (expected, _), (found, _) = train(plain, 0, 6)[0], train(hooked, 0, 6)[0]
    assert found.iteration == 6
    torch.testing.assert_close(found.parameters, expected.parameters, rtol=1e-4, atol=1e-5)


def test_torchs_wrapper_sends_in_half_precision() -> None:
    plain, halved = Training(), Training("layerwise", WHOLE, halved=True)
    (expected, _), (found, _) = train(plain, 0, 6)[0], train(halved, 0, 6)[0]
    assert not torch.equal(found.parameters, expected.parameters)
    torch.testing.assert_close(found.parameters, expected.parameters, rtol=0, atol=2e-3)


def test_a_state_that_remembers_buckets_is_its_hooks_own() -> None:
    stored = tuple(kept for _, kept in train(Training("layerwise", OPTIONS), 0, 4, 3))
    sentence = (
        "ValueError: the PowerSGD state remembers buckets of powerSGD_hook, expected a new state for"
        " batched_powerSGD_hook"
    )
    assert results("real", 1, 2, hook_scripts.mistake, Training("batched", OPTIONS), 2, stored) == [sentence] * 2


def test_two_models_in_one_process_do_not_disturb_each_other() -> None:
    first, second = Training("batched", OPTIONS), Training("layerwise", OPTIONS, kind="choosing", ddp={})
    second = dataclasses.replace(second, ddp={"find_unused_parameters": True})
    together = results("real", 1, 2, hook_scripts.train_two, first, second, 6)
    for mine, training in zip(together[0], (first, second), strict=True):
        assert torch.equal(mine, train(training, 0, 6)[0][0].parameters)


def test_an_error_of_the_reduction_is_raised_by_the_backward_pass() -> None:
    training = Training("batched", {**OPTIONS, "matrix_approximation_rank": 27})
    sentence = (
        "ValueError: bucket 2: matrix_approximation_rank = 27: expected 26 or less, the side of the square that holds"
        " 630 elements"
    )
    assert results("real", 1, 2, hook_scripts.mistake, training, 5) == [sentence] * 2


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (
            "wider",
            "ValueError: parameter 0 of the model is (31, 20) torch.float32, expected (30, 20) torch.float32 as in the"
            " model that the PowerSGD state was stored with",
        ),
        (
            "fewer",
            "ValueError: the model has 10 parameters with gradients, expected 12 as in the model that the PowerSGD"
            " state was stored with",
        ),
    ],
)
def test_model_that_differs_from_the_stored_one_is_refused(kind: str, sentence: str) -> None:
    stored = tuple(kept for _, kept in train(Training("layerwise", OPTIONS), 0, 4, 3))
    changed = Training("layerwise", OPTIONS, kind=kind)
    assert results("real", 1, 2, hook_scripts.mistake, changed, 2, stored) == [sentence] * 2


def test_the_state_has_torchs_options_and_attributes() -> None:
    theirs, ours = inspect.signature(TorchState).parameters, inspect.signature(PowerSGDState).parameters
    assert list(ours) == [*theirs, "survive_zero_matrices"]
    assert all(ours[name].default == theirs[name].default for name in list(theirs)[1:])
    state = PowerSGDState(None, 3, 7, 1.5, False, True, 1e-6, 5, 9, True)
    known = TorchState(None, 3, 7, 1.5, False, True, 1e-6, 5, 9, True)
    for name in TorchState.__slots__:
        if name != "rng":
            assert getattr(state, name) == getattr(known, name), name
    assert state.rng.randint(1 << 30) == known.rng.randint(1 << 30)


def test_a_state_is_stored_without_its_process_group(caplog: pytest.LogCaptureFixture) -> None:
    state = PowerSGDState(dist.ProcessGroup(0, 1), 3)  # type: ignore[call-arg]
    with caplog.at_level(logging.WARNING, logger="real.ddp.hooks"):
        again = pickle.loads(pickle.dumps(state))
        pickle.dumps(PowerSGDState())
    assert [record.getMessage() for record in caplog.records] == [
        "A PowerSGDState is stored without its process group; set process_group again when loaded."
    ]
    assert (again.process_group, again.matrix_approximation_rank) == (None, 3)


class Given:
    """A bucket that never gets further than the hook's own checks."""

    def __init__(self, buffer: Tensor) -> None:
        self._buffer = buffer

    def index(self) -> int:
        return 3

    def buffer(self) -> Tensor:
        return self._buffer

    def parameters(self) -> list[Tensor]:
        return [self._buffer]


@pytest.mark.parametrize("hook", HOOKS.values())
def test_unsupported_gradients_are_refused_with_a_sentence(hook: Any) -> None:
    for state, buffer, sentence in (
        (
            TorchState(None, 1, 2),
            torch.zeros(2),
            "the hook's state is a torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook.PowerSGDState, expected a"
            " real.ddp.hooks.PowerSGDState",
        ),
        (PowerSGDState(), torch.zeros(2).to_sparse(), "bucket 3 has sparse gradients, expected dense ones"),
        (PowerSGDState(), torch.zeros(2, dtype=torch.complex64), "bucket 3 has complex parameters, expected real ones"),
        (
            PowerSGDState(Group("some", (0, 1))),  # type: ignore[arg-type]
            torch.zeros(2),
            "process_group is a Group, expected a torch.distributed.ProcessGroup or None",
        ),
    ):
        with pytest.raises(TypeError) as caught:
            hook(state, Given(buffer))
        assert str(caught.value) == sentence
