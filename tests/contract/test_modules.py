"""Modules of a user's own train alike in every world: the same losses and parameters, calls, order and bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from scenarios.config.scenario import Buckets, Compression
from scenarios.modules.module import Module
from scenarios.seam.rank import Rank
from tests.contract.scripts import Script
from tests.contract.worlds import WORLDS, results, scenario
from tests.lanes import examples
from tests.scenarios.modules.layers import WIDTH, Layers, Shape, shapes
from tests.small import scenario as small

pytestmark = pytest.mark.real
BUCKETS = Buckets(first_bytes=4_000, cap_bytes=20_000)


class Ranker(nn.Module):
    """A transformer over a user's history, dropout and all."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.1)
        self.items, self.layers = nn.Embedding(50, 16), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.score = nn.Linear(16, 1)

    def forward(self, history: Tensor, label: Tensor) -> Tensor:
        hidden = self.layers(self.items(history)).mean(1)
        return functional.binary_cross_entropy_with_logits(self.score(hidden).squeeze(1), label)


async def train(rank: Rank, make: Callable[[], nn.Module], draw: Callable[[torch.Generator], Any], options: Any) -> Any:
    """Three steps; each loss, and all parameters at the end."""
    own = dict(options)
    gpu = own.pop("compression", Compression())
    model = Module(make, small(buckets=BUCKETS, compression=gpu), **own).on(rank)
    losses = []
    for step in range(3):
        generator = torch.Generator().manual_seed(100 * step + rank.rank)
        with rank.step(step):
            loss = await model(*draw(generator))
            await model.backward(loss)
            await model.update()
        losses.append(float(loss))
    return losses, [parameter.detach().clone() for parameter in model.parameters]


def draw_history(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randint(0, 50, (4, 6), generator=generator), torch.rand(4, generator=generator)


def draw_rows(generator: torch.Generator) -> tuple[Tensor]:
    return (torch.randn(3, WIDTH, generator=generator),)


class Makes:
    """Makes `Layers` of a shape; travels to other processes."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def __call__(self) -> nn.Module:
        return Layers(self.shape)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-4, momentum=0.9)


def agree(ranks: int, *given: Any) -> None:
    """Both worlds return the same of every rank, and every rank's streams do the same in the same order."""
    returned, calls = [], []
    for play in WORLDS.values():
        script = Script(train, given)
        recording = play(script, scenario(ranks, 1))
        returned.append([script.returned[rank] for rank in range(ranks)])
        spans = sorted(recording.spans, key=lambda span: (span.rank, span.stream, span.sequence))
        calls.append([(one.rank, one.stream, one.step, one.kind, one.label, one.bytes_in, one.flops) for one in spans])
    torch.testing.assert_close(returned[0], returned[1], rtol=0, atol=0)
    assert calls[0] == calls[1]
    losses, parameters = zip(*returned[0], strict=True)
    assert all(torch.equal(*pair) for own in parameters[1:] for pair in zip(parameters[0], own, strict=True))
    assert len({tuple(own) for own in losses}) == ranks, "each rank has its own batch"


def test_a_transformer_with_dropout() -> None:
    agree(3, Ranker, draw_history, {"optimizer": adam})


@pytest.mark.parametrize("kind", ["batched_powersgd", "layerwise_powersgd"])
def test_compressed_gradients(kind: Any) -> None:
    compression = Compression(kind=kind, start_powerSGD_iter=2, matrix_approximation_rank=2)
    agree(2, Ranker, draw_history, {"optimizer": adam, "compression": compression})


@examples(8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shape=shapes(unused=False), ranks=st.integers(2, 4))
def test_random_modules(shape: Shape, ranks: int) -> None:
    agree(ranks, Makes(shape), draw_rows, {"optimizer": adam})


@examples(5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shape=shapes(unused=True), ranks=st.integers(2, 3), finds=st.booleans())
def test_random_modules_with_unused_parameters(shape: Shape, ranks: int, finds: bool) -> None:
    option = "find_unused_parameters" if finds else "static_graph"
    agree(ranks, Makes(shape), draw_rows, {"optimizer": adam, option: True})


class Normalized(nn.Module):
    """Has running means, which differ between ranks until rank 0's are those of all."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).square().mean()


async def running_means(rank: Rank) -> list[Tensor]:
    """The buffers before and after each rank's own batch."""
    model: Any = Module(Normalized, small()).on(rank)
    seen: list[Tensor] = []
    for step in range(2):
        with rank.step(step):
            loss = await model(*draw_rows(torch.Generator().manual_seed(rank.rank)))
            seen.append(model.module.layers[1].running_mean.clone())
            await model.backward(loss)
            await model.update()
    return seen


@pytest.mark.parametrize("world", WORLDS)
def test_buffers_are_those_of_rank_0_as_in_ddp(world: str) -> None:
    mine = results(world, 1, 2, running_means)
    torch.testing.assert_close(mine, results("real", 1, 2, running_means_of_ddp))


async def running_means_of_ddp(rank: Rank) -> list[Tensor]:
    """The same in DistributedDataParallel, over the processes' own group."""
    torch.manual_seed(small().run.seed)
    module, seen = nn.parallel.DistributedDataParallel(Normalized()), []
    for _ in range(2):
        loss = module(*draw_rows(torch.Generator().manual_seed(rank.rank)))
        seen.append(module.module.layers[1].running_mean.clone())
        loss.backward()
    return seen


async def train_in_ddp(rank: Rank, make: Callable[[], nn.Module], options: dict[str, Any]) -> Any:
    """What `train` does, in torch's own DistributedDataParallel."""
    torch.manual_seed(small().run.seed)
    module = nn.parallel.DistributedDataParallel(make(), **options)
    optimizer, losses = sgd(module.parameters()), []
    for step in range(3):
        loss = module(*draw_rows(torch.Generator().manual_seed(100 * step + rank.rank)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses, [parameter.detach().clone() for parameter in module.parameters()]


@examples(4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shape=shapes(unused=False), ranks=st.integers(2, 3))
def test_random_modules_train_as_in_ddp(shape: Shape, ranks: int) -> None:
    """But for the order in which gradients are added, so without half precision and the signs that Adam takes."""
    make = Makes(replace(shape, halves=(False,) * len(shape.halves)))
    ours = results("real", 1, ranks, train, make, draw_rows, {"optimizer": sgd})
    torch.testing.assert_close(ours, results("real", 1, ranks, train_in_ddp, make, {}), rtol=1e-4, atol=1e-5)


class Joins(nn.Module):
    """A tower over dense features, which meets pooled embeddings only at its end; dropout on both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 6))
        self.top = nn.Sequential(nn.Linear(12, 16), nn.Dropout(0.3), nn.Linear(16, 1))

    def forward(self, dense: Tensor, pooled: Tensor, spare: Tensor) -> Tensor:
        assert pooled.shape == (4, 6)
        return self.top(torch.cat([self.bottom(dense), pooled], 1)).square().mean()


async def waits(rank: Rank) -> Any:
    """Pooled embeddings are on their way while the bottom computes; their gradients leave before its backward."""
    model, side = Module(Joins, small(), optimizer=adam).on(rank), rank.stream("embeddings")
    returned: list[Any] = []
    for step in range(2):
        generator = torch.Generator().manual_seed(10 * step + rank.rank)
        rows, sent = torch.randn(4, 6, generator=generator), []
        with rank.step(step):
            pooled, spare = (
                model.later(side.all_to_all_single(torch.empty_like(rows), rows), 4, 6, requires_grad=grad)
                for grad in (True, False)
            )

            def send(gradient: Tensor, sent: list[Any] = sent) -> None:
                sent.append(side.all_to_all_single(torch.empty_like(gradient), gradient, label="back"))

            loss = await model(torch.randn(4, 8, generator=generator), pooled, spare)
            await model.backward(loss, ready={pooled: send})
            returned += [float(loss), await sent[0]]
            await model.update()
    return returned


def test_a_pass_waits_for_late_arguments_where_it_uses_them() -> None:
    returned, calls = [], []
    for play in WORLDS.values():
        script = Script(waits, ())
        recording = play(script, scenario(2, 1))
        returned.append([script.returned[rank] for rank in range(2)])
        spans = sorted(recording.spans, key=lambda span: (span.rank, span.stream, span.sequence))
        calls.append([(one.rank, one.stream, one.step, one.kind, one.label, one.flops) for one in spans])
    torch.testing.assert_close(returned[0], returned[1], rtol=0, atol=0)
    assert calls[0] == calls[1]
    labels = [label for rank, stream, step, _, label, _ in calls[0] if (rank, stream, step) == (0, "main", 1)]
    passes = [label for label in labels if "ward" in label]
    assert passes == ["Joins.forward.0", "Joins.forward.1", "Joins.backward.0", "Joins.backward.1"]
