"""Memory of a device, allocated and filled once, from which the tensors of all measured operators are cut.

An operator's tensors overlap those of the operator before: on one stream operators run one after the other. Tensors
that an operator changes come from other memory than its inputs, so that numbers which grow with each repetition stay
out of later inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# Tensors of torch's allocator on a GPU begin at multiples of this.
_APART_BYTES = 512
# Number of drawn elements; the rest of a pool repeats them.
_DRAWN = 1 << 20
_SEED = 0
# Integers are drawn below this bound: any number of rows is far below, and sums of two fit into an int64.
_MOST_INTEGER = 1 << 62


@dataclass(frozen=True, slots=True)
class Made:
    """An operator on an arena's tensors, ready to run.

    Attributes:
        run: runs the operator once, below autograd, and nothing else.
        is_tf32: whether products of float32 are rounded to TF32.
        waits: whether the host waits for the device, and so cannot run ahead.
    """

    run: Callable[[], object]
    is_tf32: bool = False
    waits: bool = False


class CannotMakeError(Exception):
    """A described operator that cannot be created here; its text is the reason, for the reader."""


class TooLargeError(CannotMakeError):
    """An operator whose tensors do not fit into the reserved memory."""


class Arena:
    """A pool of `size_bytes` of `device`'s memory for each dtype, and another for tensors that operators change.

    Pools are allocated when a dtype first needs one. Results of an operator may take `result_bytes` of torch's own
    memory, embedding tables `table_bytes`.
    """

    def __init__(self, device: torch.device, size_bytes: int, result_bytes: int, table_bytes: int = 0) -> None:
        self.device = device
        self.size_bytes, self._result_bytes = size_bytes, result_bytes
        self._table_bytes = table_bytes or size_bytes
        self._pools: dict[tuple[torch.dtype, bool], Tensor] = {}
        self._taken: dict[tuple[torch.dtype, bool], int] = {}
        self._counted: Tensor | None = None
        self._host: dict[bool, Tensor] = {}
        self.taken_bytes = 0  # by tensors since `begin`, large results included

    def begin(self) -> None:
        """Free the memory of all tensors."""
        self._taken.clear()
        self.taken_bytes = 0

    def tensor(
        self,
        shape: Sequence[int],
        dtype: torch.dtype,
        strides: Sequence[int] | None = None,
        *,
        offset_bytes: int = 0,
        is_changed: bool = False,
    ) -> Tensor:
        """Cut out a tensor, contiguous unless `strides` are given: elements between neighbours along each dimension.

        `offset_bytes` is its distance from an address divisible by 512; `is_changed`: the operator writes it.

        Raises:
            TooLargeError: the tensor does not fit.
        """
        if strides is None:
            strides = packed_strides(shape)
        reach = 1 + sum((extent - 1) * step for extent, step in zip(shape, strides, strict=True) if extent)
        each, key = dtype.itemsize, (dtype, is_changed)
        begin = self._taken.get(key, 0) + offset_bytes
        end = begin + reach * each
        self._check(end)
        self._taken[key] = -(-end // _APART_BYTES) * _APART_BYTES
        self.taken_bytes += reach * each
        return self._pool(*key).as_strided(tuple(shape), tuple(strides), begin // each)

    def tensors(self, numels: Sequence[int], dtype: torch.dtype, *, is_changed: bool = False) -> list[Tensor]:
        """Cut out one-dimensional tensors, each aligned as by torch's allocator.

        Raises:
            TooLargeError: the tensors do not fit.
        """
        return [self.tensor((each,), dtype, is_changed=is_changed) for each in numels]

    def result(self, elements: int, dtype: torch.dtype) -> None:
        """Check that an operator's result has room.

        Raises:
            TooLargeError: it has no room.
        """
        self.taken_bytes += elements * dtype.itemsize
        if elements * dtype.itemsize > self._result_bytes:
            raise TooLargeError(_too_large(elements * dtype.itemsize, self._result_bytes))

    def tables(self, size_bytes: int) -> None:
        """Check that embedding tables have room.

        Raises:
            TooLargeError: they have no room.
        """
        self.taken_bytes += size_bytes
        if size_bytes > self._table_bytes:
            raise TooLargeError(_too_large(size_bytes, self._table_bytes))

    def host(self, size_bytes: int, *, is_pinned: bool) -> Tensor:
        """Return bytes of the host's memory, page-locked or not; allocated once, as pinning takes long."""
        buffer = self._host.get(is_pinned)
        if buffer is None or buffer.numel() < size_bytes:
            buffer = self._host[is_pinned] = torch.zeros(size_bytes, dtype=torch.uint8, pin_memory=is_pinned)
        return buffer[:size_bytes]

    def ids(self, count: int, rows: int, *, unique: int = 0, dtype: torch.dtype = torch.int64) -> Tensor:
        """Return `count` ids of `rows` rows in no order, drawn uniformly.

        With `unique`, ids come from that many rows, each once before one repeats.

        Raises:
            TooLargeError: the ids do not fit.
        """
        ids = self.tensor((count,), torch.int64, is_changed=True)
        if not unique:
            ids.random_(rows)
        else:
            # Multiples of a coprime number visit all rows before one repeats.
            torch.remainder(self._numbers(count) * _coprime(unique), unique, out=ids)
            if unique < rows:
                ids.mul_(rows // unique)
        return ids if dtype == torch.int64 else ids.to(dtype)

    def _numbers(self, count: int) -> Tensor:
        if self._counted is None or self._counted.numel() < count:
            self._counted = torch.arange(count, device=self.device)
        return self._counted[:count]

    def _check(self, end: int) -> None:
        if end > self.size_bytes:
            raise TooLargeError(_too_large(end, self.size_bytes))

    def _pool(self, dtype: torch.dtype, is_changed: bool) -> Tensor:
        key = dtype, is_changed
        if key not in self._pools:
            self._pools[key] = _fill_tensor(self.size_bytes // dtype.itemsize, dtype, self.device, is_zero=is_changed)
        return self._pools[key]


def packed_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


def near_square(elements: int, count: int) -> tuple[int, ...]:
    """Return `count` extents with the product `elements`, as close to each other as powers of two allow."""
    extents: list[int] = []
    for left in range(count, 1, -1):
        extent = math.gcd(elements, 1 << round(math.log2(max(elements, 2)) / left))
        extents.append(extent)
        elements //= extent
    return (*extents, elements)


def torch_dtype(name: str) -> torch.dtype:
    """Return the tensor's dtype for a dtype of arithmetic: "tf32" multiplies float32 tensors.

    Raises:
        CannotMakeError: torch has no dtype of that name.
    """
    candidate = getattr(torch, "float32" if name == "tf32" else name, None)
    if not isinstance(candidate, torch.dtype):
        raise CannotMakeError(f"dtype '{name}'")
    return candidate


def _fill_tensor(elements: int, dtype: torch.dtype, device: torch.device, *, is_zero: bool) -> Tensor:
    """Return numbers around 0, integers from 0 on, or zeros for changed tensors."""
    if is_zero or dtype == torch.bool or device.type == "meta":
        return torch.zeros(elements, dtype=dtype, device=device)
    # Kernels of zeros draw less power and run faster, so inputs are random.
    pool = torch.empty(elements, dtype=dtype, device=device)
    drawn = min(elements, _DRAWN)
    generator = torch.Generator(device=device).manual_seed(_SEED)
    if dtype.is_floating_point or dtype.is_complex:
        one = torch.randn(drawn, device=device, generator=generator, dtype=_DRAWN_AS.get(dtype, torch.float32))
    else:
        most = min(_MOST_INTEGER, torch.iinfo(dtype).max)
        one = torch.randint(most, (drawn,), device=device, generator=generator)
    pool[:drawn] = one.to(dtype)
    while drawn < elements:  # copies that double
        more = min(drawn, elements - drawn)
        pool[drawn : drawn + more] = pool[:more]
        drawn += more
    return pool


_DRAWN_AS = {torch.float64: torch.float64, torch.complex64: torch.complex64, torch.complex128: torch.complex128}


def _coprime(number: int) -> int:
    """Return a number near the golden section of `number`, without a common divisor with it."""
    candidate = max(1, round(0.618 * number))
    while math.gcd(candidate, number) > 1:
        candidate += 1
    return candidate


def _too_large(needed: int, there: int) -> str:
    return f"too large: {needed / 1e9:.3g} GB of {there / 1e9:.3g} GB set aside"
