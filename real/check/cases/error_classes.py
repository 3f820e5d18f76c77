"""Creates tensors of arbitrary bits or whole numbers from a dtype and a key, and turns tensors into bytes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

# Bytes of one part (half a complex number), and the part's infinity where the dtype has one.
PARTS = {
    "bool": (1, 0),
    "int8": (1, 0),
    "uint8": (1, 0),
    "int16": (2, 0),
    "uint16": (2, 0),
    "int32": (4, 0),
    "uint32": (4, 0),
    "int64": (8, 0),
    "uint64": (8, 0),
    "float8_e4m3fn": (1, 0),
    "float8_e5m2": (1, 0x7C),
    "float16": (2, 0x7C00),
    "bfloat16": (2, 0x7F80),
    "float32": (4, 0x7F80_0000),
    "float64": (8, 0x7FF0_0000_0000_0000),
    "complex32": (2, 0x7C00),
    "complex64": (4, 0x7F80_0000),
    "complex128": (8, 0x7FF0_0000_0000_0000),
}
DTYPES = tuple(PARTS)


class Bits(NamedTuple):
    """The content of a tensor, comparable across processes and devices."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)} {values_of(self).tolist()} = {self.data.hex()}"


def torch_dtype(name: str) -> torch.dtype:
    """Return torch.float32 for "float32"."""
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def arbitrary(dtype: str, numel: int, *key: object) -> Tensor:
    """Return [numel] of arbitrary bits: half of them zeros of either sign, subnormals, infinities or NaNs with a
    payload.
    """
    draw = random.Random(repr(key))
    kind = torch_dtype(dtype)
    width, infinity = PARTS[dtype]
    parts = [_part(draw, 8 * width, infinity) for _ in range(numel * kind.itemsize // width)]
    # A bool with another byte than 0 or 1 has no defined behaviour in torch.
    parts = [part & 1 for part in parts] if dtype == "bool" else parts
    return from_bytes(bytearray().join(part.to_bytes(width, "little") for part in parts), dtype)


def whole(dtype: str, values: Sequence[int], *key: object, numel: int) -> Tensor:
    """Return [numel] whole numbers out of `values`, in both parts of a complex number."""
    draw = random.Random(repr(key))
    kind = torch_dtype(dtype)
    if not kind.is_complex:
        return torch.tensor(draw.choices(values, k=numel), dtype=torch.int64).to(kind)
    parts = torch.tensor(draw.choices(values, k=2 * numel), dtype=torch.float64).view(torch.complex128)
    return parts.to(kind)


def bits_of(tensor: Tensor) -> Bits:
    """Return the dtype, shape and bytes of a tensor on any device."""
    # A lazy conjugate has the bytes of its base until it is resolved.
    held = tensor.detach().cpu().resolve_conj().contiguous()
    flat = held.as_strided((held.numel(),), (1,)).view(torch.uint8)
    return Bits(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), bytes(flat.tolist()))


def values_of(bits: Bits) -> Tensor:
    """Return the tensor of these bits, flat."""
    return from_bytes(bytearray(bits.data), bits.dtype)


def from_bytes(data: bytearray, dtype: str) -> Tensor:
    """Return a flat tensor of these bytes."""
    flat = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    return flat.view(torch_dtype(dtype))


def _part(draw: random.Random, width: int, infinity: int) -> int:
    sign = 1 << width - 1
    # Half of the parts are these, which random bits hardly ever hit and which copies must not change.
    special = (0, sign, 1, sign | 1, sign | (sign - 1), infinity, sign | infinity, infinity | draw.randrange(1, 1 << 8))
    return draw.choice(special) % (1 << width) if draw.random() < 0.5 else draw.getrandbits(width)
