"""What the kernel probes compute: the programs' own functions on inputs of a range of sizes; playing them is `kernels`.

Sizes run from those that are all launch to those that stream through memory: 64 samples and some ten elements a row, as
the small scenarios have, up to tensors of 16 MiB.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from scenarios.compression import PowerSGDState, batched_powersgd, layerwise_powersgd
from scenarios.compression.costs import copy_cost
from scenarios.compression.local import compute
from scenarios.programs.all_to_all import checksum, checksum_cost
from scenarios.programs.buckets import GradientBucket, flatten
from scenarios.programs.dense import Block, Cross, Dot, Linear
from scenarios.programs.embedding import Piece, Rows
from scenarios.programs.powersgd import BackwardWork, draw_pool, update_cost, update_sgd, weight_gradient
from scenarios.rank import Group, Rank
from scenarios.scenario import Gradients, Optimizer
from scenarios.sparse.feature_exchange import Arrived, Route, reorder
from scenarios.sparse.input_dist import bucketize_features
from scenarios.sparse.keyed_jagged import KeyedJagged

_SGD = Optimizer()
# Samples, inputs and outputs of linear layers: of small recommenders, then of larger ones.
_LINEAR = ((64, 13, 64), (64, 64, 32), (64, 432, 64), (256, 256, 256), (512, 512, 512), (1024, 1024, 512))
_CROSS = ((64, 432, 16), (256, 432, 64))
_DOT = ((64, 27, 16), (256, 27, 32))
# Peaks of dtypes other than float32 come from this one.
_OTHER_DTYPES = ("float64", "bfloat16", "float16")
_OTHER_LINEAR = ((64, 256, 256), (128, 512, 256))
# Tables, their rows, elements of a row, samples, ids of a sample.
_BAGS = (
    (1, 2000, 16, 64, 3),
    (8, 2000, 16, 64, 6),
    (26, 2000, 16, 64, 8),
    (8, 2000, 16, 256, 10),
    (2, 100_000, 64, 256, 20),
    (4, 100_000, 64, 512, 20),
)
# Sides of square gradients, how many of them, and the rank that approximates them.
_SQUARES = ((32, 2, 1), (64, 8, 2), (256, 4, 4), (1024, 1, 4), (1024, 4, 2))
_MEMBERS = 2  # buckets, or sources, of an exchange


@dataclass(frozen=True, slots=True)
class Workload:
    """Some kernels, computed one after the other by `play` on the rank that it is given."""

    name: str
    play: Callable[[Rank], Awaitable[object]]


def workloads(device: torch.device, control_device: torch.device) -> list[Workload]:
    """All of them, the same on every rank: inputs on a rank's `device`, but ids and lengths where they can be read."""
    generator = torch.Generator().manual_seed(0)
    return [
        *_dense(device, generator),
        *_gradients(device, generator),
        *_features(device, control_device, generator),
        *_compression(device, generator),
    ]


def _dense(device: torch.device, generator: torch.Generator) -> Iterator[Workload]:
    for batch, inputs, outputs in _LINEAR:
        yield _block(Linear("linear", inputs, outputs, "float32", relu=True), batch, 1, device, generator)
    for batch, width, low_rank in _CROSS:
        yield _block(Cross("cross", width, low_rank, "float32"), batch, 2, device, generator)
    for batch, features, dim in _DOT:
        yield _block(Dot("dot", features, dim, "float32"), batch, 1, device, generator)
    for dtype in _OTHER_DTYPES:
        for batch, inputs, outputs in _OTHER_LINEAR:
            yield _block(Linear(f"linear {dtype}", inputs, outputs, dtype, relu=True), batch, 1, device, generator)


def _block(block: Block, batch: int, inputs: int, device: torch.device, generator: torch.Generator) -> Workload:
    """A block's forward and backward."""
    dtype: torch.dtype = getattr(torch, block.dtype)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).mul_(0.05).to(device, dtype)

    block.parameters = [draw(*shape).requires_grad_() for shape in block.shapes]
    given = [draw(batch, block.width_in() // inputs) for _ in range(inputs)]
    gradient = draw(batch, block.width_out())

    async def play(rank: Rank) -> None:
        _, tape = await rank.compute(block.forward_kernel(batch), block.forward, *given, label="forward")
        await rank.compute(block.backward_kernel(batch), block.backward, tape, gradient, label="backward")

    shape = f"{batch} x {block.width_in()} x {block.width_out()}"
    return Workload(f"{block.name} {shape}", play)


def _gradients(device: torch.device, generator: torch.Generator) -> Iterator[Workload]:
    """A backward pass and an update as the program `powersgd` has them, and a bucket filled."""
    for side, count, _ in _SQUARES:
        shapes = ((side, side),) * count
        work = BackwardWork(Gradients(shapes=shapes, backward_flops=2.0 * 32 * count * side * side))
        pool = draw_pool(0, 0, work, torch.float32, device)
        parameters, gradients = ([torch.zeros(shape, device=device) for shape in shapes] for _ in range(2))
        buffer = torch.empty(count * side * side, device=device)
        yield Workload(f"gradients {count} x {side}", partial(_train, work, pool, parameters, gradients, buffer))
    for elements in (1 << 10, 1 << 14, 1 << 18, 1 << 22):
        values = torch.ones(elements, device=device)
        yield Workload(f"checksum {elements}", partial(_checksum, values))


async def _train(
    work: BackwardWork, pool: Tensor, parameters: list[Tensor], gradients: list[Tensor], buffer: Tensor, rank: Rank
) -> None:
    made = work.inputs(pool, 0, 0)
    await rank.compute(work.cost(0, pool), weight_gradient, *made, gradients[0].shape, label="backward")
    await compute(rank, copy_cost(buffer, buffer.numel()), flatten, gradients, buffer, label="bucket")
    await rank.compute(update_cost(parameters), update_sgd, parameters, gradients, label="update")


async def _checksum(values: Tensor, rank: Rank) -> None:
    await rank.compute(checksum_cost(values), checksum, values, label="checksum")


def _features(device: torch.device, control_device: torch.device, generator: torch.Generator) -> Iterator[Workload]:
    for tables, rows, dim, batch, ids in _BAGS:
        pieces = [Piece(table=table, rows=range(rows), columns=range(dim)) for table in range(tables)]
        features = KeyedJagged(
            keys=tuple(f"table {table}" for table in range(tables)),
            values=torch.randint(rows, (tables * batch * ids,), generator=generator).to(control_device),
            lengths=torch.full((tables * batch,), ids, device=control_device),
            stride=batch,
        )
        held = Rows(pieces, 0, device, torch.float32, optimizer=_SGD)
        yield Workload(f"embedding {tables} x {batch} x {ids} x {dim}", partial(_embed, held, features, rows))


async def _embed(held: Rows, features: KeyedJagged, rows: int, rank: Rank) -> None:
    """Bucketized and reordered as on the way through an exchange; then looked up and updated."""
    blocks = [-(-rows // _MEMBERS)] * len(features.keys)
    cut = await bucketize_features(rank, features, blocks, _MEMBERS, False, device=None, label="ids")
    assert features.stride is not None
    group = Group("exchange", tuple(range(_MEMBERS)))
    keys = len(features.keys)
    route = Route(
        group=group,
        keys_per_rank=(keys,) * _MEMBERS,
        keys=features.keys,
        source_order=tuple(range(_MEMBERS)),
        label="ids",
    )
    arrived = Arrived(values=cut.values, lengths=cut.lengths, weights=None, batches=(features.stride,) * _MEMBERS)
    await reorder(rank, arrived, route)
    features = features.to_payload(rank.device)
    pooled = await rank.compute(held.look_up_kernel(features), held.look_up, features, label="look_up")
    await rank.compute(held.update_kernel(features), held.update, features, pooled, label="update")


def _compression(device: torch.device, generator: torch.Generator) -> Iterator[Workload]:
    for side, count, approximation in _SQUARES:
        values = torch.randn(count * side * side, generator=generator).to(device)
        for name, reduce in (("batched", batched_powersgd), ("layerwise", layerwise_powersgd)):
            bucket = GradientBucket(0, torch.empty_like(values), ((side, side),) * count, is_last=True)
            state = PowerSGDState(None, approximation, 2)
            yield Workload(f"{name} {count} x {side}", partial(_reduce, reduce, state, bucket, values))


async def _reduce(
    reduce: Callable[[Rank, PowerSGDState, GradientBucket], Awaitable[Tensor]],
    state: PowerSGDState,
    bucket: GradientBucket,
    values: Tensor,
    rank: Rank,
) -> None:
    bucket.buffer().copy_(values)
    await reduce(rank, state, bucket)
