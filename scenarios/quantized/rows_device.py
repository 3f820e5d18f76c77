"""Encodes and decodes rows of int8 and fp8 with torch operations, on any device (`rows_host` is faster on CPUs)."""

from __future__ import annotations

import torch
from torch import Tensor

from scenarios.quantized.formats import FP8_EPSILON, INT8_EPSILON, INT8_LARGEST, Minifloat, row_bytes


def load() -> None:
    """Do nothing: no code needs compilation."""


def encode_int8(values: Tensor, row_size: int) -> Tensor:
    """Encode each row of float32 as 8-bit integers with its own scale and bias, like `rows_host.encode_int8`."""
    rows = values.reshape(-1, row_size)
    least, largest = torch.aminmax(rows, dim=1, keepdim=True)
    span, most = largest - least, torch.full_like(least, INT8_LARGEST)  # a tensor: by a number, GPUs multiply
    steps = ((rows - least) * (most / (span + INT8_EPSILON))).round_()
    # A NaN gets code 0, but its row's scale is NaN, so that the whole row decodes to NaN.
    return _pack(steps.nan_to_num_(0.0).to(torch.uint8), span / most, least)


def decode_int8(encoded: Tensor, row_size: int) -> Tensor:
    """Decode rows of 8-bit integers into float32, like `rows_host.decode_int8`."""
    codes, scale, least = _unpack(encoded, row_size)
    return _round_once(codes.double() * scale.double(), least.double()).view(-1)


def encode_fp8(values: Tensor, row_size: int, of: Minifloat) -> Tensor:
    """Encode each row of float32 as scaled 8-bit floats, like `rows_host.encode_fp8`."""
    rows = values.reshape(-1, row_size)
    known = torch.where(rows.isnan(), 0.0, rows.abs())
    most = torch.full_like(rows[:, :1], of.largest)
    scale = most / (known.amax(dim=1, keepdim=True).clamp_(min=FP8_EPSILON) + FP8_EPSILON)
    scaled = rows * scale
    # Comparisons with NaN are false: a NaN becomes the largest number, as in FBGEMM.
    size = torch.where(scaled.abs() < of.largest, scaled.abs(), of.largest)
    # The exponent bits of float32; subnormal numbers share the least exponent.
    exponent = ((size.view(torch.int32) >> 23) - 127).clamp_(min=of.least_exponent)
    steps = torch.ldexp(size.double(), of.mantissa_bits - exponent).round_().to(torch.int32)
    codes = steps + ((exponent - of.least_exponent) << of.mantissa_bits)
    return _pack((codes | scaled.signbit().int() << 7).to(torch.uint8), scale, torch.zeros_like(scale))


def decode_fp8(encoded: Tensor, row_size: int, of: Minifloat) -> Tensor:
    """Decode rows of scaled 8-bit floats into float32, like `rows_host.decode_fp8`."""
    codes, scale, _ = _unpack(encoded, row_size)
    worth = torch.from_numpy(of.values()).to(encoded.device)
    return (worth[codes.int()] / scale).view(-1)


def _pack(codes: Tensor, scale: Tensor, other: Tensor) -> Tensor:
    return torch.cat([codes, torch.cat([scale, other], dim=1).view(torch.uint8)], dim=1).view(-1)


def _unpack(encoded: Tensor, row_size: int) -> tuple[Tensor, Tensor, Tensor]:
    rows = encoded.view(-1, row_bytes(row_size))
    parameters = rows[:, row_size:].contiguous().view(torch.float32)
    return rows[:, :row_size], parameters[:, :1], parameters[:, 1:]


def _round_once(product: Tensor, addend: Tensor) -> Tensor:
    """Return the float32 nearest to the exact sum, as a fused multiply-add gives it; `product` must be exact."""
    total = product + addend
    back = total - product
    lost = (product - (total - back)) + (addend - back)
    # Truncate, and set the last of the 53 bits if the sum was inexact: rounding to float32 then sees no tie where there
    # is none.
    bits = total.view(torch.int64)
    odd = (bits - ((lost > 0) != (total > 0)).long()) | 1
    return torch.where((lost != 0) & total.isfinite(), odd, bits).view(torch.float64).float()
