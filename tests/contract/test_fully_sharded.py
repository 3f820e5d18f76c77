"""Fully sharded modules call what torch's own fully_shard calls, train as it does, and do the same in both worlds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

from scenarios.config.scenario import DenseParallel
from scenarios.modules.module import Module
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording
from tests.contract.scripts import Script
from tests.contract.test_modules import Makes, draw_rows, sgd
from tests.contract.worlds import WORLDS, results, scenario
from tests.lanes import examples
from tests.scenarios.modules.layers import WIDTH, shapes
from tests.small import scenario as small

pytestmark = pytest.mark.real
FSDP, HSDP = DenseParallel(kind="fsdp"), DenseParallel(kind="hsdp", shard_group_size=2)
OPS = {"all_gather_single": "all_gather_into_tensor", "reduce_scatter_single": "reduce_scatter_tensor"}
Calls = list[tuple[str, int]]


class Tied(nn.Module):
    """Uses one weight twice, in rows that no number of ranks divides."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, 5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.inner(x)) @ self.inner.weight


class Tower(nn.Module):
    """Units of all kinds: nested, without parameters, with tied weights, with an input that has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.tied = nn.Linear(WIDTH, WIDTH), nn.ReLU(), Tied()
        self.deep = nn.Sequential(nn.Linear(WIDTH, 7), nn.Sequential(nn.ReLU(), nn.Linear(7, 1)))
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return (self.deep(self.tied(self.act(self.first(x)))) * self.scale.sum()).mean()


def tower() -> nn.Module:
    return Tower()


def own_shards(module: nn.Module) -> list[Tensor]:
    return [parameter.to_local().detach().clone() for parameter in module.parameters()]  # type: ignore[attr-defined]


@contextmanager
def watch() -> Iterator[Calls]:
    """The collectives that torch's own code calls inside, with the bytes that each takes."""
    found: Calls = []
    before = {name: getattr(dist, name) for name in (*OPS, "all_reduce")}

    def watching(name: str) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            sent: Tensor = named["input"] if "input" in named else args[name in OPS]
            found.append((OPS.get(name, name), sent.numel() * sent.element_size()))
            return before[name](*args, **named)

        return call

    for name in before:
        setattr(dist, name, watching(name))
    try:
        yield found
    finally:
        for name, function in before.items():
            setattr(dist, name, function)


async def train_in_torch(
    rank: Rank, make: Callable[[], nn.Module], parallel: DenseParallel, units: Sequence[str], micro_batches: int
) -> Any:
    """Losses, shards at the end, and what a step calls, of torch's own fully_shard."""
    torch.manual_seed(small().run.seed)
    size = dist.get_world_size()
    module: Any = make()
    shape, names = ((size,), ("shard",)) if parallel.kind == "fsdp" else ((size // 2, 2), ("replicate", "shard"))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    for name in sorted(units, key=len, reverse=True):
        fully_shard(module.get_submodule(name), mesh=mesh, reshard_after_forward=parallel.reshard_after_forward)
    fully_shard(module, mesh=mesh, reshard_after_forward=parallel.reshard_after_forward)
    optimizer, losses = sgd(module.parameters()), []
    for step in range(2):
        with watch() as calls:
            for micro in range(micro_batches):
                is_last = micro == micro_batches - 1
                module.set_requires_gradient_sync(is_last or parallel.reduce_every_micro_batch)
                loss = module(*draw_rows(torch.Generator().manual_seed(100 * step + 10 * micro + rank.rank)))
                loss.backward()
                losses.append(float(loss.detach()))
        optimizer.step()
        optimizer.zero_grad()
    return losses, own_shards(module), calls


async def train(
    rank: Rank, make: Callable[[], nn.Module], parallel: DenseParallel, units: Sequence[str], micro_batches: int
) -> Any:
    """Losses, and shards at the end, of ours."""
    own = Module(make, small(), name="own", optimizer=sgd, parallel=replace(parallel, units=tuple(units)))
    model, losses = own.on(rank), []
    for step in range(2):
        with rank.step(step):
            for micro in range(micro_batches):
                is_last = micro == micro_batches - 1
                loss = await model(*draw_rows(torch.Generator().manual_seed(100 * step + 10 * micro + rank.rank)))
                await model.backward(loss, sync=is_last or own.reduces_each)
                losses.append(float(loss))
            await model.update()
    return losses, [parameter.detach().clone() for parameter in model.parameters]


def sequence(recording: Recording, stream: str = "own.shards") -> Calls:
    """The collectives of a stream in the last step."""
    spans = [one for one in recording.spans if (one.rank, one.stream, one.step) == (0, stream, 1)]
    spans = [one for one in spans if one.kind != "compute"]
    return [(one.kind, one.bytes_in) for one in sorted(spans, key=lambda one: one.sequence)]


def agree(ranks: int, make: Any, parallel: DenseParallel, units: Sequence[str], micro_batches: int = 1) -> None:
    """Both worlds do the same to the bit, and what torch's own does but for rounding."""
    given = make, parallel, tuple(units), micro_batches
    returned, spans = [], []
    for play in WORLDS.values():
        script = Script(train, given)
        recording = play(script, scenario(ranks, 1))
        returned.append([script.returned[rank] for rank in range(ranks)])
        order = sorted(recording.spans, key=lambda span: (span.rank, span.stream, span.sequence))
        spans.append([(one.rank, one.stream, one.step, one.kind, one.label, one.bytes_in, one.flops) for one in order])
    torch.testing.assert_close(returned[0], returned[1], rtol=0, atol=0)
    assert spans[0] == spans[1]
    torchs = Script(train_in_torch, given)
    WORLDS["real"](torchs, scenario(ranks, 1))
    losses, shards, calls = zip(*(torchs.returned[rank] for rank in range(ranks)), strict=True)
    torch.testing.assert_close(returned[0], list(zip(losses, shards, strict=True)), rtol=1e-4, atol=1e-5)
    assert sequence(recording) == [call for call in calls[0] if call[0] != "all_reduce"]
    assert sequence(recording, "own.replicas") == [call for call in calls[0] if call[0] == "all_reduce"]


CHILDREN = ("first", "act", "tied", "deep")


@pytest.mark.parametrize("reshard", [None, True, False])
def test_collectives_are_those_of_fully_shard(reshard: bool | None) -> None:
    agree(2, tower, replace(FSDP, reshard_after_forward=reshard), CHILDREN)


def test_with_replicas() -> None:
    agree(4, tower, HSDP, CHILDREN)


@pytest.mark.parametrize("reduces", [True, False])
def test_micro_batches(reduces: bool) -> None:
    agree(3, tower, replace(FSDP, reduce_every_micro_batch=reduces), (*CHILDREN, "deep.1"), micro_batches=2)


@examples(3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shape=shapes(unused=True), ranks=st.integers(2, 3), reshard=st.sampled_from([None, True, False]))
def test_random_modules(shape: Any, ranks: int, reshard: bool | None) -> None:
    """Layers in any order, called twice or never, with branches."""
    shape = replace(shape, halves=(False,) * len(shape.halves))
    units = [f"layers.{index}" for index in range(len(shape.inner))]
    agree(ranks, Makes(shape), replace(FSDP, reshard_after_forward=reshard), units)


class Joins(nn.Module):
    """Gets an argument that is late, and itself has a parameter, gathered before it is there."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom, self.top = nn.Linear(8, 6), nn.Linear(12, 1)
        self.scale = nn.Parameter(torch.ones(5, 12))

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        return self.top(torch.cat([self.bottom(dense), pooled], 1) * self.scale.sum(0)).square().mean()


async def joins(rank: Rank, parallel: DenseParallel) -> list[Any]:
    """Losses, and the gradients of what was late."""
    model, side = Module(Joins, small(), optimizer=sgd, parallel=parallel).on(rank), rank.stream("embeddings")
    returned: list[Any] = []
    for step in range(2):
        generator = torch.Generator().manual_seed(10 * step + rank.rank)
        rows, dense = torch.randn(4, 6, generator=generator), torch.randn(4, 8, generator=generator)
        sent: list[Any] = []
        with rank.step(step):
            pooled = model.later(side.all_to_all_single(torch.empty_like(rows), rows), 4, 6, requires_grad=True)

            def send(gradient: Tensor, sent: list[Any] = sent) -> None:
                sent.append(side.all_to_all_single(torch.empty_like(gradient), gradient, label="back"))

            loss = await model(dense, pooled)
            await model.backward(loss, ready={pooled: send})
            returned += [float(loss), await sent[0]]
            await model.update()
    return returned


def test_late_arguments_may_be_arguments_of_a_unit() -> None:
    returned = [results(world, 1, 2, joins, FSDP) for world in WORLDS]
    torch.testing.assert_close(returned[0], returned[1], rtol=0, atol=0)
    torch.testing.assert_close(returned[0], results("sim", 1, 2, joins, DenseParallel()))


class Anew(nn.Module):
    """Computes a layer anew in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(checkpoint(self.first, torch.relu(x * 2).requires_grad_(), use_reentrant=False)).mean()


def anew() -> nn.Module:
    return Anew()


def test_a_unit_that_is_computed_anew() -> None:
    agree(2, anew, FSDP, ("first", "last"))
