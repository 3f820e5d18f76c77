"""Workloads of the kernel probes: the programs' own functions on inputs of a range of sizes.

Sizes run from inputs that are all launch to inputs that stream through memory: from 64 samples and some ten elements a
row, as in the small scenarios, up to tensors of 16 MiB (`HOST`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from real.calibration.kernels.blocks import ProbedBlock, cross, dot, linear
from scenarios.compression import PowerSGDState, batched_powersgd, layerwise_powersgd
from scenarios.compression.local import compute, copy_cost
from scenarios.config.scenario import Optimizer
from scenarios.modules.ddp_buckets import GradientBucket, flatten
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.sparse.feature_exchange import Arrived, Route, reorder
from scenarios.sparse.input_dist import bucketize_features
from scenarios.sparse.keyed_jagged import KeyedJagged
from scenarios.workloads.collective.splits import checksum, checksum_cost
from scenarios.workloads.dlrm.tables.embedding import Rows
from scenarios.workloads.dlrm.tables.prices import PricedPiece, RowPrices
from scenarios.workloads.powersgd.program import Products, draw_pool, update_cost, update_sgd, weight_gradient

_SGD = Optimizer()
_MEMBERS = 2  # sources of an exchange


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """A set of input sizes.

    Attributes:
        linear: samples, inputs and outputs.
        cross: samples, width and low rank.
        dot: samples, features and their elements.
        other_linear: like `linear`, computed in all `other_dtypes`.
        bags: tables, rows of a table, elements of a row, samples, ids of a sample.
        squares: side of square gradients, number of gradients, and the rank that approximates them.
        checksums: elements.
    """

    linear: tuple[tuple[int, int, int], ...]
    cross: tuple[tuple[int, int, int], ...]
    dot: tuple[tuple[int, int, int], ...]
    other_dtypes: tuple[str, ...]
    other_linear: tuple[tuple[int, int, int], ...]
    bags: tuple[tuple[int, int, int, int, int], ...]
    squares: tuple[tuple[int, int, int], ...]
    checksums: tuple[int, ...]


# Linear layers of small recommenders, then of larger ones. `other_linear` gives the peaks of other dtypes than float32.
HOST = Sizes(
    linear=((64, 13, 64), (64, 64, 32), (64, 432, 64), (256, 256, 256), (512, 512, 512), (1024, 1024, 512)),
    cross=((64, 432, 16), (256, 432, 64)),
    dot=((64, 27, 16), (256, 27, 32)),
    other_dtypes=("float64", "bfloat16", "float16"),
    other_linear=((64, 256, 256), (128, 512, 256)),
    bags=(
        (1, 2000, 16, 64, 3),
        (8, 2000, 16, 64, 6),
        (26, 2000, 16, 64, 8),
        (8, 2000, 16, 256, 10),
        (2, 100_000, 64, 256, 20),
        (4, 100_000, 64, 512, 20),
    ),
    squares=((32, 2, 1), (64, 8, 2), (256, 4, 4), (1024, 1, 4), (1024, 4, 2)),
    checksums=(1 << 10, 1 << 14, 1 << 18, 1 << 22),
)
Play = Callable[[Rank], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class ProbedWorkload:
    """A sequence of kernels, computed one after the other by `play` on a rank."""

    name: str
    play: Play


def workloads(device: torch.device, control_device: torch.device, sizes: Sizes = HOST) -> list[ProbedWorkload]:
    """Return all workloads, equal on every rank; inputs are on `device`, ids and lengths on `control_device`."""
    generator = torch.Generator().manual_seed(0)
    return [
        *_dense(sizes, device, generator),
        *_gradients(sizes, device),
        *_features(sizes, device, control_device, generator),
        *_compression(sizes, device, generator),
    ]


def _draw_normal(*shape: int, device: torch.device, generator: torch.Generator) -> Tensor:
    """Draw normal numbers on the CPU in float32."""
    if device.type == "meta":
        return torch.empty(shape, device=device)
    return torch.randn(*shape, generator=generator).to(device)


def _dense(sizes: Sizes, device: torch.device, generator: torch.Generator) -> Iterator[ProbedWorkload]:
    draw = partial(_draw_normal, device=device, generator=generator)
    for shape in sizes.linear:
        yield _block("linear", linear(*shape), "float32", shape[0], draw)
    for shape in sizes.cross:
        yield _block("cross", cross(*shape), "float32", shape[0], draw)
    for shape in sizes.dot:
        yield _block("dot", dot(*shape), "float32", shape[0], draw)
    for dtype in sizes.other_dtypes:
        for shape in sizes.other_linear:
            yield _block(f"linear {dtype}", linear(*shape), dtype, shape[0], draw)


def _block(name: str, block: ProbedBlock, dtype: str, batch: int, drawn: Callable[..., Tensor]) -> ProbedWorkload:
    """Return a block's forward and backward."""

    def draw(*shape: int) -> Tensor:
        return drawn(*shape).mul_(0.05).to(getattr(torch, dtype))

    state = {key: draw(*each.shape) for key, each in block.module.named_parameters()}
    block.module.load_state_dict(state, assign=True)
    given, gradient = [draw(batch, width) for width in block.widths], draw(batch, block.width_out)

    async def play(rank: Rank) -> None:
        leaves, output = await rank.compute(block.ahead.kernel(dtype), block.forward, *given, label="forward")
        await rank.compute(block.back.kernel(dtype), block.backward, leaves, output, gradient, label="backward")

    return ProbedWorkload(f"{name} {batch} x {sum(block.widths)} x {block.width_out}", play)


def _gradients(sizes: Sizes, device: torch.device) -> Iterator[ProbedWorkload]:
    """Yield a backward pass, a filled bucket and an update as in the program `powersgd`, and checksums."""
    for side, count, _ in sizes.squares:
        yield ProbedWorkload(f"gradients {count} x {side}", _training(side, count, device))
    for elements in sizes.checksums:
        values = torch.ones(elements, device=device)
        yield ProbedWorkload(f"checksum {elements}", partial(_checksum, values))


def _training(side: int, count: int, device: torch.device) -> Play:
    shapes = ((side, side),) * count
    work = Products(shapes, 2.0 * 32 * count * side * side)
    pool = draw_pool(0, 0, work, dtype=torch.float32, device=device)
    parameters, gradients = ([torch.zeros(shape, device=device) for shape in shapes] for _ in range(2))
    buffer = torch.empty(count * side * side, device=device)

    async def play(rank: Rank) -> None:
        made = work.inputs(pool, 0, 0)
        await rank.compute(work.cost(0, pool), weight_gradient, *made, gradients[0].shape, label="backward")
        await compute(rank, copy_cost(buffer, buffer.numel()), flatten, gradients, buffer, label="bucket")
        await rank.compute(update_cost(parameters), update_sgd, parameters, gradients, label="update")

    return play


async def _checksum(values: Tensor, rank: Rank) -> None:
    await rank.compute(checksum_cost(values), checksum, values, label="checksum")


def _features(
    sizes: Sizes, device: torch.device, control_device: torch.device, generator: torch.Generator
) -> Iterator[ProbedWorkload]:
    for tables, rows, dim, batch, ids in sizes.bags:
        pieces = [PricedPiece(table=table, rows=range(rows), columns=range(dim)) for table in range(tables)]
        features = KeyedJagged(
            keys=tuple(f"table {table}" for table in range(tables)),
            values=torch.randint(rows, (tables * batch * ids,), generator=generator).to(control_device),
            lengths=torch.full((tables * batch,), ids, device=control_device),
            stride=batch,
        )
        held = Rows(RowPrices(pieces, torch.float32, optimizer=_SGD), 0, device)
        yield ProbedWorkload(f"embedding {tables} x {batch} x {ids} x {dim}", partial(_embed, held, features, rows))


async def _embed(held: Rows, features: KeyedJagged, rows: int, rank: Rank) -> None:
    """Bucketize and reorder ids as an exchange does, then look up and update their rows."""
    blocks = [-(-rows // _MEMBERS)] * len(features.keys)
    cut, _ = await bucketize_features(rank, features, blocks, _MEMBERS, positions=False, device=None, label="ids")
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
    pooled = await rank.compute(held.prices.look_up_kernel(features), held.look_up, features, label="look_up")
    await rank.compute(held.prices.update_kernel(features), held.update, features, pooled, label="update")


def _compression(sizes: Sizes, device: torch.device, generator: torch.Generator) -> Iterator[ProbedWorkload]:
    for side, count, approximation in sizes.squares:
        values = _draw_normal(count * side * side, device=device, generator=generator)
        for name, reduce in (("batched", batched_powersgd), ("layerwise", layerwise_powersgd)):
            bucket = GradientBucket(0, torch.empty_like(values), ((side, side),) * count, is_last=True)
            state = PowerSGDState(None, approximation, 2)
            yield ProbedWorkload(
                f"{name} {count} x {side}", partial(_reduce, partial(reduce, state=state), bucket, values)
            )


async def _reduce(reduce: Callable[..., Awaitable[Tensor]], bucket: GradientBucket, values: Tensor, rank: Rank) -> None:
    bucket.buffer().copy_(values)
    await reduce(rank, bucket=bucket)
