"""Trainings of a real DistributedDataParallel model, as functions that a pool's processes play; none is a test."""

from __future__ import annotations

import contextlib
import itertools
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_wrapper
from torch.nn.parallel import DistributedDataParallel

from real.ddp.hooks import PowerSGDState, batched_powerSGD_hook, powerSGD_hook
from scenarios.seam.rank import Rank

HOOKS: Mapping[str, Callable[..., Any]] = {"batched": batched_powerSGD_hook, "layerwise": powerSGD_hook}
SMALL_BUCKETS = {"bucket_cap_mb": 0.004}
MOMENTUM, LEARNING_RATE = 0.9, 0.02


@dataclass(frozen=True)
class Training:
    """What is trained; `kind` is a function of this module that makes a model. No `hook` is plain DDP."""

    hook: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    ddp: Mapping[str, Any] = field(default_factory=lambda: SMALL_BUCKETS)
    kind: str = "layers"
    dtype: torch.dtype = torch.float32
    accumulated: int = 0  # backward passes of a step that are not reduced
    halved: bool = False  # torch's own wrapper, which sends buckets in float16


@dataclass
class Outcome:
    """What a rank has after some steps: everything as plain data."""

    parameters: Tensor
    stored: bytes
    buckets: list[Any]
    iteration: int
    reduced: list[tuple[int, list[tuple[int, ...]], bool, Tensor, Tensor]]  # index, shapes, last, before, after


def layers() -> nn.Module:
    """Twelve parameters, from 1 to 900 elements."""
    sizes = (20, 30, 30, 25, 30, 24, 1)
    linear = [nn.Linear(inputs, outputs) for inputs, outputs in itertools.pairwise(sizes)]
    return nn.Sequential(*[part for layer in linear for part in (layer, nn.Tanh())][:-1])


def wider() -> nn.Module:
    """As `layers`, but the first layer is another."""
    model = layers()
    assert isinstance(model, nn.Sequential)
    model[0] = nn.Sequential(nn.Linear(20, 31), nn.Linear(31, 30))
    return model


def fewer() -> nn.Module:
    """As `layers`, with its first layer frozen."""
    model = layers()
    assert isinstance(model, nn.Sequential)
    model[-1].requires_grad_(False)
    return model


class Mixed(nn.Module):
    """Two dtypes, a transposed parameter and a convolution in channels-last order."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow, self.wide = nn.Linear(20, 18), nn.Linear(18, 16, dtype=torch.float64)
        self.transposed = nn.Parameter(torch.randn(12, 16).t())
        self.convolution = nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, samples: Tensor) -> Tensor:
        hidden = self.wide(self.narrow(samples).double()).float() @ self.transposed
        result: Tensor = self.convolution(hidden.view(-1, 3, 2, 2)).flatten(1) * self.scale
        return result


class Choosing(nn.Module):
    """Every other step leaves a layer out; all ranks choose alike."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(20, 30), nn.Linear(30, 30), nn.Linear(30, 1)
        self.steps = 0

    def forward(self, samples: Tensor) -> Tensor:
        self.steps += 1
        hidden = self.first(samples).tanh()
        result: Tensor = self.third(self.second(hidden) if self.steps % 2 else hidden)
        return result


def mixed() -> nn.Module:
    return Mixed()


def choosing() -> nn.Module:
    return Choosing()


class Trainer:
    """A model, its momentum and its state on one rank, begun or resumed."""

    def __init__(self, training: Training, stored: bytes = b"") -> None:
        torch.manual_seed(3)
        self.training = training
        self.model: nn.Module = globals()[training.kind]().to(memory_format=torch.preserve_format)
        if training.dtype != torch.float32:
            self.model = self.model.to(training.dtype)
        self.parameters = [each for each in self.model.parameters() if each.requires_grad]
        self.momenta = [torch.zeros_like(each) for each in self.parameters]
        self.state = PowerSGDState(**training.options)
        if stored:
            self._load(stored)
        self.ddp = DistributedDataParallel(self.model, **training.ddp)
        self.seen: list[tuple[Any, Tensor]] = []
        self.reduced: list[Any] = []
        if training.hook:
            self.ddp.register_comm_hook(self.state, self._hook)

    def step(self, index: int, rank: int) -> None:
        for inner in range(self.training.accumulated + 1):
            samples = torch.Generator().manual_seed(1000 * index + 100 * inner + rank)
            with self._not_reduced(inner < self.training.accumulated):
                inputs = torch.randn(8, 20, generator=samples).to(self.training.dtype)
                self.ddp(inputs).pow(2).mean().backward()
        for bucket, before in self.seen:
            shapes = [tuple(gradient.shape) for gradient in bucket.gradients()]
            self.reduced.append((bucket.index(), shapes, bucket.is_last(), before, bucket.buffer().clone()))
        self.seen.clear()
        self._update()

    def outcome(self) -> Outcome:
        values = torch.cat([each.detach().reshape(-1).double() for each in self.parameters])
        stored = pickle.dumps((self.model.state_dict(), self.momenta, self.state))
        return Outcome(values, stored, list(self.state.layout.buckets), self.state.iter, self.reduced)

    def _hook(self, state: Any, bucket):  # type: ignore[no-untyped-def]  # DDP wants no other annotation
        self.seen.append((bucket, bucket.buffer().clone()))
        hook = HOOKS[self.training.hook]
        return (fp16_compress_wrapper(hook) if self.training.halved else hook)(state, bucket)

    def _load(self, stored: bytes) -> None:
        weights, self.momenta, self.state = pickle.loads(stored)
        self.model.load_state_dict(weights, strict=False)

    @contextlib.contextmanager
    def _not_reduced(self, accumulates: bool) -> Iterator[None]:
        with self.ddp.no_sync() if accumulates else contextlib.nullcontext():
            yield

    def _update(self) -> None:
        with torch.no_grad():
            for parameter, momentum in zip(self.parameters, self.momenta, strict=True):
                momentum.mul_(MOMENTUM).add_(parameter.grad if parameter.grad is not None else 0)
                parameter.sub_(momentum, alpha=LEARNING_RATE)
                parameter.grad = None


async def train(
    rank: Rank, training: Training, begin: int, end: int, store_at: int = -1, stored: tuple[bytes, ...] = ()
) -> tuple[Outcome, bytes]:
    """What a rank has after steps `begin` to `end`, and what it had stored at `store_at`."""
    trainer = Trainer(training, stored[rank.rank] if stored else b"")
    kept = b""
    for index in range(begin, end):
        if index == store_at:
            kept = trainer.outcome().stored
        trainer.step(index, rank.rank)
    return trainer.outcome(), kept


async def train_two(rank: Rank, first: Training, second: Training, end: int) -> tuple[Tensor, Tensor]:
    """Two models in one process, by turns."""
    trainers = Trainer(first), Trainer(second)
    for index in range(end):
        for trainer in trainers:
            trainer.step(index, rank.rank)
    return trainers[0].outcome().parameters, trainers[1].outcome().parameters


async def mistake(rank: Rank, training: Training, end: int, stored: tuple[bytes, ...] = ()) -> str:
    """The error that a backward pass raises."""
    return await mistake_of(rank, (training,) * rank.world_size, end, stored)


async def mistake_of(rank: Rank, trainings: tuple[Training, ...], end: int, stored: tuple[bytes, ...] = ()) -> str:
    """The error that a backward pass raises where each rank trains in its own way."""
    trainer = Trainer(trainings[rank.rank], stored[rank.rank] if stored else b"")
    try:
        for index in range(end):
            trainer.step(index, rank.rank)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was refused"
