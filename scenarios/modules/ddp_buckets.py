"""DDP's gradient buckets, and their reduction, which overlaps the backward pass.

Modelled on torch 2.13's DDP with `gradient_as_bucket_view`, from its second step on: buckets follow the order in which
gradients arrive from the start. DDP's first step, one bucket with all gradients, and the pass that rebuilds buckets
after it, are not simulated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor

from scenarios.compression import PowerSGDState, batched_powersgd, divide, layerwise_powersgd, vanilla
from scenarios.compression.batched import square_side
from scenarios.compression.layerwise import lay_out
from scenarios.compression.local import compute, copy_cost
from scenarios.config.scenario import Buckets, Compression, Scenario
from scenarios.seam.backend import Work
from scenarios.seam.errors import ProgramError, ScenarioError
from scenarios.seam.memory import COMPRESSION, GRADIENTS, MemoryPart
from scenarios.seam.rank import Rank
from scenarios.seam.roles import REDUCTION

Shape = tuple[int, ...]


class GradientBucket:
    """A flat buffer with views of it in the shapes of its gradients; a `compression.Bucket`."""

    __slots__ = ("_buffer", "_gradients", "_index", "_is_last")

    def __init__(self, index: int, buffer: Tensor, shapes: Sequence[Shape], *, is_last: bool) -> None:
        self._index, self._buffer, self._is_last = index, buffer, is_last
        self._gradients = unflatten(buffer, shapes)

    def index(self) -> int:
        return self._index

    def buffer(self) -> Tensor:
        return self._buffer

    def gradients(self) -> list[Tensor]:
        return self._gradients

    def is_last(self) -> bool:
        return self._is_last


def unflatten(buffer: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
    """Return consecutive views of a flat buffer, which they fill, in these shapes."""
    pieces = buffer.split_with_sizes([prod(shape) for shape in shapes])
    return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def flatten(gradients: Sequence[Tensor], buffer: Tensor) -> None:
    """Copy gradients, each row-major, consecutively into a flat buffer that they fill."""
    torch.cat([gradient.reshape(-1) for gradient in gradients], out=buffer)


def assign_buckets(
    sizes_bytes: Sequence[int],
    buckets: Buckets,
    *,
    arrival: Sequence[int] | None = None,
    dtypes: Sequence[torch.dtype] | None = None,
) -> tuple[tuple[int, ...], ...]:
    """Return the indices of the gradients in each of DDP's buckets, as from its second step on.

    Buckets are in the order of arrival. A bucket has one dtype and closes when its size reaches the cap, with the
    gradient that exceeds it; the first bucket of each dtype has its own cap. Unfilled buckets come last, that of the
    latest dtype first.

    Args:
        sizes_bytes: by gradient.
        buckets: the caps.
        arrival: gradients in the order of arrival; by default the reverse of the parameters' order.
        dtypes: by gradient; by default all are equal.
    """
    assigned: list[tuple[int, ...]] = []
    filling: dict[torch.dtype | None, list[int]] = {}
    filled_bytes, has_first = Counter[torch.dtype | None](), set[torch.dtype | None]()
    for index in reversed(range(len(sizes_bytes))) if arrival is None else arrival:
        dtype = dtypes[index] if dtypes else None
        filling.setdefault(dtype, []).append(index)
        filled_bytes[dtype] += sizes_bytes[index]
        if filled_bytes[dtype] >= (buckets.cap_bytes if dtype in has_first else buckets.first_bytes):
            assigned.append(tuple(filling[dtype]))
            has_first.add(dtype)
            filling[dtype], filled_bytes[dtype] = [], 0
    # DDP keeps unfilled buckets in an unordered_map by dtype, whose few keys libstdc++ visits in reverse order.
    return (*assigned, *(tuple(members) for members in reversed(filling.values()) if members))


def assign_registered(
    sizes_bytes: Sequence[int], buckets: Buckets, dtypes: Sequence[torch.dtype] | None = None
) -> tuple[tuple[int, ...], ...]:
    """Return the buckets that DDP keeps from its start, as with `find_unused_parameters`.

    Buckets are filled in the parameters' order, and the bucket with the last parameters comes first.
    """
    filled = assign_buckets(sizes_bytes, buckets, arrival=range(len(sizes_bytes)), dtypes=dtypes)
    return tuple(sorted(filled, key=min, reverse=True))


def check_compression(scenario: Scenario, shapes: Sequence[Shape], dtype: torch.dtype) -> None:
    """Check the rank of batched PowerSGD, which is at most the side of a bucket as a square matrix.

    Raises:
        ScenarioError: the rank is larger, in a run with compressed steps.
    """
    compression = scenario.workload.compression
    if compression.kind != "batched_powersgd" or compression.start_powerSGD_iter >= scenario.run.steps:
        return
    sizes = [prod(shape) for shape in shapes]
    assigned = assign_buckets([size * dtype.itemsize for size in sizes], scenario.workload.buckets)
    side = min(square_side(sum(sizes[index] for index in members)) for members in assigned)
    if compression.matrix_approximation_rank > side:
        raise ScenarioError(
            f"{scenario.path}: compression.matrix_approximation_rank = {compression.matrix_approximation_rank}:"
            f" expected at most {side}, the side of the smallest gradient bucket as a square matrix"
        )


class GradientReducer:
    """A reducer that averages each step's gradients over all ranks during the backward pass.

    `side` is a separate stream (`rank.stream("gradients")`, which all ranks create), on which the buckets are copied
    and reduced in sequence, in the order of their indices, as soon as they and earlier ones are full.
    """

    def __init__(
        self,
        side: Rank,
        shapes: Sequence[Shape],
        *,
        dtype: torch.dtype | Sequence[torch.dtype] = torch.float32,
        buckets: Buckets = Buckets(),  # noqa: B008 (frozen)
        compression: Compression = Compression(),  # noqa: B008 (frozen)
        assigned: Sequence[Sequence[int]] | None = None,
        label: str = "gradients",
        grouped: bool = False,
        is_copied: bool = False,
    ) -> None:
        """Allocate the buckets and start the first step.

        Args:
            side: the stream of reductions.
            shapes: of all parameters.
            dtype: that of all parameters, or of each.
            buckets: the caps of bucket sizes.
            compression: the compression of buckets.
            assigned: the members of each bucket, if not those of `assign_buckets`.
            label: first part of labels.
            grouped: whether all buckets are reduced in one call, that of `reduce_together`; not with compression.
            is_copied: whether gradients are already in their buckets and divided, so that neither is computed.
        """
        self._grouped, self._is_copied = grouped, is_copied
        self.state = None if compression.kind == "none" else PowerSGDState.from_options(compression)
        self._kind: Literal["none", "batched_powersgd", "layerwise_powersgd"] = compression.kind
        self._side, self._shapes, self._label = side, tuple(map(tuple, shapes)), label
        self._dtypes = [dtype] * len(self._shapes) if isinstance(dtype, torch.dtype) else list(dtype)
        if assigned is None:
            sizes = [prod(shape) * dtype.itemsize for shape, dtype in zip(self._shapes, self._dtypes, strict=True)]
            assigned = assign_buckets(sizes, buckets, dtypes=self._dtypes)
        self._members = [tuple(members) for members in assigned]
        self._buckets = [self._allocate(index) for index in range(len(self._members))]
        self._bucket_of = {member: index for index, members in enumerate(self._members) for member in members}
        self._start_step()

    @property
    def is_under_way(self) -> bool:
        """Whether gradients were added since the last `take` or `finish`."""
        return bool(self._given)

    def add(self, parameter_index: int, gradient: Tensor, *, after: Iterable[Work[Any]] = ()) -> None:
        """Add a gradient, in any order; it exists once the works in `after` end, and must keep its values until
        `finish`.

        Raises:
            ProgramError: the parameter does not exist, has another shape or dtype, or got a gradient in this step.
        """
        self._check(parameter_index, gradient)
        self._given[parameter_index] = gradient
        bucket = self._bucket_of[parameter_index]
        self._missing[bucket] -= 1
        self._after[bucket] += after
        # Buckets are reduced in the order of their indices: a full bucket waits for those before it, as in DDP.
        while len(self._works) < len(self._buckets) and not self._missing[len(self._works)]:
            self._works.append(self._side.spawn(self._reduce(len(self._works))))

    def reduce_together(self, also: Sequence[Tensor]) -> None:
        """Reduce all buckets, and sum the tensors in `also`, in one call per dtype; all gradients must be there."""
        self._works.append(self._side.spawn(self._reduce_all([*(each.buffer() for each in self._buckets), *also])))

    async def finish(self) -> list[Tensor]:
        """Return the averaged gradients by parameter: views of the buckets, valid until the next step adds gradients.

        Raises:
            ProgramError: a parameter's gradient was not added in this step.
        """
        for work in self.take():
            await work
        views = dict[int, Tensor]()
        for members, bucket in zip(self._members, self._buckets, strict=True):
            views.update(zip(members, bucket.gradients(), strict=True))
        return [views[index] for index in range(len(self._shapes))]

    def take(self) -> list[Work[Any]]:
        """Return the buckets' reductions, instead of `finish`, for a caller that awaits them or lets a stream wait.

        Raises:
            ProgramError: as for `finish`.
        """
        absent = [index for index in range(len(self._shapes)) if index not in self._given]
        if absent:
            raise ProgramError(f"rank {self._side.rank}: no gradient was added for parameters {absent}")
        works = self._works
        self._start_step()
        return works

    def _start_step(self) -> None:
        self._given: dict[int, Tensor] = {}
        self._missing = [len(members) for members in self._members]
        self._works: list[Work[Any]] = []
        self._after: list[list[Work[Any]]] = [[] for _ in self._members]

    def _allocate(self, index: int) -> GradientBucket:
        shapes = [self._shapes[member] for member in self._members[index]]
        dtype = self._dtypes[self._members[index][0]]
        buffer = torch.empty(sum(map(prod, shapes)), dtype=dtype, device=self._side.device)
        return GradientBucket(index, buffer, shapes, is_last=index == len(self._members) - 1)

    def _check(self, index: int, gradient: Tensor) -> None:
        rank = self._side.rank
        if not 0 <= index < len(self._shapes):
            raise ProgramError(f"rank {rank}: parameter {index} is not one of the {len(self._shapes)} parameters")
        if index in self._given:
            raise ProgramError(f"rank {rank}: the gradient of parameter {index} was added twice in one step")
        if tuple(gradient.shape) != self._shapes[index] or gradient.dtype != self._dtypes[index]:
            raise ProgramError(
                f"rank {rank}: the gradient of parameter {index} is {tuple(gradient.shape)} {gradient.dtype},"
                f" expected {self._shapes[index]} {self._dtypes[index]}"
            )

    def _reduce(self, index: int) -> Coroutine[Any, Any, Tensor]:
        # Read the gradients now: the coroutine may run after the next step has begun to add its own.
        gradients = [self._given[member] for member in self._members[index]]
        return self._copy_and_reduce(self._buckets[index], gradients, self._after[index])

    async def _copy_and_reduce(
        self, bucket: GradientBucket, gradients: list[Tensor], after: Iterable[Work[Any]]
    ) -> Tensor:
        for work in after:
            await work
        if not self._is_copied:
            kernel = copy_cost(bucket.buffer(), bucket.buffer().numel())
            await compute(
                self._side, kernel, flatten, gradients, bucket.buffer(), label=f"{self._label}.bucket", role=REDUCTION
            )
        if self._grouped:
            return await divide(self._side, bucket, label=f"{self._label}.mean")
        if self.state is None and self._is_copied:
            return await self._side.all_reduce(bucket.buffer(), label=f"{self._label}.mean", role=REDUCTION)
        if self.state is None:
            return await vanilla(self._side, bucket, label=f"{self._label}.mean")
        reduce = batched_powersgd if self._kind == "batched_powersgd" else layerwise_powersgd
        return await reduce(self._side, self.state, bucket)

    async def _reduce_all(self, tensors: Sequence[Tensor]) -> None:
        label = f"{self._label}.grouped"
        by_dtype = [
            [each for each in tensors if each.dtype == dtype] for dtype in dict.fromkeys(t.dtype for t in tensors)
        ]
        works = [self._side.all_reduce_coalesced(each, label=label, role=REDUCTION) for each in by_dtype]
        for work in works:
            await work


def reduction_parts(
    shapes: Sequence[Shape],
    dtype: torch.dtype | Sequence[torch.dtype],
    buckets: Buckets,
    compression: Compression,
    *,
    assigned: Sequence[Sequence[int]] | None = None,
) -> list[MemoryPart]:
    """Return the parts of a `GradientReducer`'s memory on a rank's device, without parts of size 0.

    P and Q count without warm start too, although they then exist only while a bucket is reduced.
    """
    dtypes = [dtype] * len(shapes) if isinstance(dtype, torch.dtype) else list(dtype)
    sizes = [prod(shape) * each.itemsize for shape, each in zip(shapes, dtypes, strict=True)]
    of_factors = of_error = 0
    if compression.kind != "none":
        for members in assign_buckets(sizes, buckets, dtypes=dtypes) if assigned is None else assigned:
            factors, error = _compression_numels([tuple(shapes[member]) for member in members], compression)
            of_factors += factors * dtypes[members[0]].itemsize
            of_error += error * dtypes[members[0]].itemsize * compression.use_error_feedback
    parts = (
        MemoryPart("gradient buckets", sum(sizes), kind=GRADIENTS),
        MemoryPart("compression factors", of_factors, kind=COMPRESSION),
        MemoryPart("compression error", of_error, kind=COMPRESSION),
    )
    return [part for part in parts if part.size_bytes]


def _compression_numels(shapes: Sequence[Shape], compression: Compression) -> tuple[int, int]:
    """Return the elements of P and Q together, and of the error, of one bucket."""
    rank, numel = compression.matrix_approximation_rank, sum(map(prod, shapes))
    if compression.kind == "batched_powersgd":
        side = square_side(numel)
        return 2 * side * rank, side * side
    layout = lay_out(tuple(shapes), rank, compression.min_compression_rate)
    return sum(shape.p_numel + shape.q_numel for shape in layout.shapes), numel
