"""Wraps a call that moves encoded elements: encoding before it, decoding after, each a computation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import torch
from torch import Tensor

from scenarios.quantized.codec import FLOAT_BYTES, Codec
from scenarios.seam.group import Group
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank


async def exchange(
    rank: Rank,
    group: Group,
    flat: Tensor,
    *,
    receives: Sequence[int],
    sends: Sequence[int],
    codec: Codec | None,
    label: str,
    divisor: int = 1,
) -> Tensor:
    """Exchange flat elements all-to-all, encoded if there is a codec.

    Args:
        flat: elements to send, float32.
        receives: elements from each member.
        sends: elements to each member.
        codec: None: send unencoded.
        label: prefix of the spans' labels.
        divisor: divides decoded elements: TorchRec 1.8.0 averages gradients after decoding, so that encoded values are
            as large as possible. Without a codec nothing is divided.

    Raises:
        ValueError: elements for a member are not whole rows of the codec.
    """
    elements = round(group.total(receives))
    if codec is None:
        output = flat.new_empty(elements)
        return await rank.all_to_all_single(output, flat, receives, sends, group, label=f"{label}.all_to_all")
    send_sizes, receive_sizes = (
        _encoded_sizes(group, sends, codec, label),
        _encoded_sizes(group, receives, codec, label),
    )
    encoded = await encode(rank, flat, codec, label=label, size=round(group.total(send_sizes)))
    received = encoded.new_empty(round(group.total(receive_sizes)))
    await rank.all_to_all_single(received, encoded, receive_sizes, send_sizes, group, label=f"{label}.all_to_all")
    return await decode(rank, received, codec, label=label, shape=(elements,), divisor=divisor)


async def encode(rank: Rank, values: Tensor, codec: Codec | None, *, label: str, size: int = 0) -> Tensor:
    """Encode `values`, in the same shape unless in rows; meta tensors become `size` items."""
    if codec is None:
        return values
    if values.dtype is not torch.float32:
        raise ValueError(f"{label}: elements of {values.dtype}, expected torch.float32, which codecs encode")
    if not values.numel():
        return values.new_empty(values.shape, dtype=codec.dtype)
    kernel, label = codec.encode_kernel(values.numel()), f"{label}.encode"
    if codec.row_size > 1 and values.is_meta:
        return await rank.compute(kernel, _as_it_is, values.new_empty(size, dtype=codec.dtype), label=label)
    return await rank.compute(kernel, codec.encode, values, label=label)


async def decode(
    rank: Rank, encoded: Tensor, codec: Codec | None, *, label: str, shape: Sequence[int], divisor: int = 1
) -> Tensor:
    """Decode into new float32 of this shape, divided by `divisor`; return unencoded values as they are."""
    if codec is None:
        return encoded
    elements = prod(shape)
    if not elements:
        return encoded.new_empty(shape, dtype=torch.float32)
    kernel = codec.decode_kernel(elements)
    if divisor > 1:
        kernel = _add_division(kernel, elements)
    return await rank.compute(kernel, _decode, encoded, codec, shape, divisor, label=f"{label}.decode")


def check_adds(codec: Codec | None, label: str) -> None:
    """Raise ValueError unless a reduction can add encoded values; rows with scales of their own cannot be added."""
    if codec is not None and codec.row_size > 1:
        raise ValueError(f"{label}: sums of rows of {codec.row_size} elements in 8 bits, expected fp16 or bf16")


def _encoded_sizes(group: Group, elements: Sequence[int], codec: Codec, label: str) -> list[float]:
    """Return the number of encoded items (elements of the codec's dtype) for each member.

    Counts that are expected values, on a host class, may contain parts of rows.

    Raises:
        ValueError: a counted number of elements is not whole rows.
    """
    for member, count in zip(group.ranks, elements, strict=True):
        if count % codec.row_size and not group.counts:
            raise ValueError(
                f"{label}: {count} elements between this rank and rank {member},"
                f" expected a multiple of {codec.row_size}, which are encoded together"
            )
    return [codec.encoded_size(count) for count in elements]


def _decode(encoded: Tensor, codec: Codec, shape: Sequence[int], divisor: int) -> Tensor:
    if encoded.is_meta:
        return encoded.new_empty(shape, dtype=torch.float32)
    values = codec.decode(encoded).view(tuple(shape))
    return values.div_(divisor) if divisor > 1 else values


def _add_division(kernel: Kernel, elements: int) -> Kernel:
    """Return the kernel with one more operator, which reads and writes all decoded elements."""
    return replace(
        kernel,
        flops=kernel.flops + elements,
        bytes_read=kernel.bytes_read + FLOAT_BYTES * elements,
        bytes_written=kernel.bytes_written + FLOAT_BYTES * elements,
        launches=kernel.launches + 1,
    )


def _as_it_is(encoded: Tensor) -> Tensor:
    return encoded
