"""What a module on a rank does in the simulator: what overlaps, what it says, what it refuses."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scenarios.config.scenario import Buckets
from scenarios.modules.module import Module
from scenarios.modules.replica import Replica
from scenarios.seam.errors import Note, ProgramError
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording, Span
from tests.scenarios.modules.training import play, trains
from tests.small import scenario

SMALL = Buckets(first_bytes=40_000, cap_bytes=100_000)


class Tower(nn.Module):
    """Equal layers, then a loss."""

    def __init__(self, layers: int = 6, width: int = 128) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).square().mean()


def of(recording: Recording, label: str) -> list[Span]:
    return [span for span in recording.spans if span.rank == 0 and span.step == 1 and span.label.startswith(label)]


@pytest.mark.parametrize("payload", ["sizes", "values"])
def test_buckets_are_reduced_while_the_backward_pass_goes_on(payload: str) -> None:
    model = Module(Tower, scenario(buckets=SMALL), optimizer=torch.optim.Adam)
    recording = play(trains(model, 256, 128), payload)
    passes, reductions = of(recording, "Tower.backward"), of(recording, "Tower.gradients.mean")
    reductions = [span for span in reductions if span.kind == "all_reduce"]
    assert len(passes) == len(reductions) == 4
    assert [later.start_ns for later in passes[1:]] == [earlier.end_ns for earlier in passes[:-1]]
    for ready, reduction in zip(passes, reductions, strict=True):
        assert ready.end_ns <= reduction.start_ns
    assert reductions[0].start_ns < passes[1].end_ns
    assert of(recording, "Tower.update")[0].start_ns >= reductions[-1].end_ns


def test_replicas_leave_no_thread_and_no_copy_behind() -> None:
    """A last bucket that is full at the end of the pass is its last stop: the thread of the pass ends all the same."""
    threads = threading.active_count()
    play(trains(Module(Tower, scenario(buckets=SMALL), optimizer=torch.optim.Adam), 256, 128), "values")
    gc.collect()
    assert threading.active_count() == threads
    assert not any(type(each) is Replica for each in gc.get_objects())


def test_gradients_that_are_added_up_are_reduced_once() -> None:
    model = Module(Tower, scenario(buckets=SMALL), optimizer=torch.optim.Adam)

    async def body(rank: Rank) -> None:
        own = model.on(rank)
        for step in range(2):
            with rank.step(step):
                for micro in range(3):
                    loss = await own(torch.ones(16, 128, device=rank.device))
                    await own.backward(loss, sync=micro == 2)
                await own.update()

    recording = play(body, "values")
    assert len([span for span in of(recording, "Tower.gradients") if span.kind == "all_reduce"]) == 4
    without, adding = of(recording, "Tower.backward")[:2]
    assert adding.bytes_read > without.bytes_read


def test_an_arguments_gradient_is_sent_on_while_the_pass_goes_on() -> None:
    class Late(nn.Module):
        """What is embedded joins at the end, so that its gradient is there first."""

        def __init__(self) -> None:
            super().__init__()
            self.bottom, self.top = Tower(4).layers, nn.Linear(128, 1)

        def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
            return self.top(self.bottom(dense) + pooled).mean()

    model = Module(Late, scenario(), name="late", reduce=False)
    seen: list[tuple[int, ...]] = []

    async def body(rank: Rank) -> None:
        own = model.on(rank)
        with rank.step(1):
            dense, pooled = (torch.ones(64, 128, device=rank.device) for _ in range(2))
            pooled.requires_grad_()
            loss = await own(dense, pooled)
            sent = []

            def send(gradient: Tensor) -> None:
                seen.append(tuple(gradient.shape))
                sent.append(
                    rank.stream("embeddings").all_to_all_single(torch.empty_like(gradient), gradient, label="back")
                )

            await own.backward(loss, ready={pooled: send})
            await sent[0]
            assert pooled.grad is not None

    recording = play(body)
    first, rest = of(recording, "late.backward")
    (back,) = of(recording, "back")
    assert seen == [(64, 128)] * 4
    assert first.end_ns <= back.start_ns < rest.end_ns


def test_operators_that_are_not_known_are_noted_once() -> None:
    model = Module(
        lambda: lambda x: torch.special.bessel_j0(torch.cummax(x, 0).values), scenario(), name="odd", reduce=False
    )

    async def body(rank: Rank) -> None:
        own = model.on(rank)
        for _ in range(2):
            await own(torch.ones(8, device=rank.device))

    with pytest.warns(
        Note, match=r"^module odd: not known, and so priced by what they read and write: cummax$"
    ) as noted:
        play(body)
    assert len(noted) == 1


class Chooses(nn.Module):
    """Does what its input says."""

    def forward(self, x: Tensor) -> Tensor:
        return x[x > 0].sum()


class Unused(Tower):
    """Has a layer that it does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(3, 3)


@pytest.mark.parametrize(
    ("make", "options", "sentence"),
    [
        (Chooses, {}, r"module Chooses: index \(test_replica.py:\d+\): expected operators whose results' sizes"),
        (
            Unused,
            {},
            r"rank 0: module Unused: no gradient for spare.weight, spare.bias: expected find_unused_parameters",
        ),
        (
            lambda: Tower().to("cpu"),
            {},
            r"making the module \(test_replica.py:\d+\): .*; expected a module that is not moved",
        ),
    ],
)
def test_untraceable_modules_raise_one_sentence(make: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ProgramError, match=sentence):
        play(trains(Module(make, scenario(), **options), 256, 128))


def test_a_pass_is_differentiated_once() -> None:
    async def twice(rank: Rank) -> None:
        own = Module(Tower, scenario(), reduce=False).on(rank)
        loss = await own(torch.ones(4, 128, device=rank.device))
        await own.backward(loss)
        await own.backward(loss)

    with pytest.raises(ProgramError, match="rank 0: module Tower: backward: expected outputs of one call"):
        play(twice)


def test_an_argument_computed_under_autograd_raises_one_sentence() -> None:
    async def body(rank: Rank) -> None:
        own = Module(Tower, scenario(), reduce=False).on(rank)
        await own(torch.ones(4, 128, device=rank.device, requires_grad=True) * 2)

    with pytest.raises(ProgramError, match=r"an argument of shape \(4, 128\) was computed under autograd"):
        play(body)
