"""Encodes and decodes rows of int8 and fp8 on CPU tensors, compiled by numba (`rows_device` runs on accelerators).

A compiled function makes one pass over the elements, as FBGEMM's kernels do; torch's operators make many. Results equal
`rows_device`'s to the bit. A first call compiles for some seconds and stores the code on disk for later processes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import njit
from torch import Tensor

from scenarios.compiled import compiler
from scenarios.quantized.formats import (
    FP8_EPSILON,
    INT8_EPSILON,
    INT8_LARGEST,
    INT8_ROW_SIZE,
    ROW_PARAMETERS,
    Minifloat,
    row_bytes,
)

Array = npt.NDArray[Any]
_compiled = compiler(__file__)
_inlined = njit(inline="always", error_model="numpy")
_LARGEST, _EPSILON, _FP8_EPSILON = np.float32(INT8_LARGEST), np.float32(INT8_EPSILON), np.float32(FP8_EPSILON)


@cache
def load() -> None:
    """Compile all functions, or load them from disk, before any step."""
    decode_int8(encode_int8(torch.zeros(INT8_ROW_SIZE), INT8_ROW_SIZE), INT8_ROW_SIZE)
    of = Minifloat(4, 15, 0.9375)
    decode_fp8(encode_fp8(torch.zeros(4), 4, of), 4, of)


def encode_int8(values: Tensor, row_size: int) -> Tensor:
    """Encode flat float32 as flat uint8: each row in 255 steps between its least and its largest element."""
    rows, encoded, parameters = _rows(values, row_size)
    int8_ranges(rows, parameters)
    int8_encode(rows, parameters, encoded)
    return torch.from_numpy(encoded.reshape(-1))


def decode_int8(encoded: Tensor, row_size: int) -> Tensor:
    """Decode flat uint8 to flat float32: each row's least element plus steps of its scale."""
    rows, parameters = _encoded_rows(encoded, row_size)
    values = np.empty((len(rows), row_size), np.float32)
    int8_decode(rows, parameters, values)
    return torch.from_numpy(values.reshape(-1))


def encode_fp8(values: Tensor, row_size: int, of: Minifloat) -> Tensor:
    """Encode flat float32 as flat uint8: each row scaled so that its largest magnitude is `of.largest`."""
    rows, encoded, parameters = _rows(values, row_size)
    fp8_scales(rows, np.float32(of.largest), parameters)
    fp8_encode(rows, parameters, of.mantissa_bits, of.least_exponent, np.float32(of.largest), encoded)
    return torch.from_numpy(encoded.reshape(-1))


def decode_fp8(encoded: Tensor, row_size: int, of: Minifloat) -> Tensor:
    """Decode flat uint8 of fp8 to flat float32."""
    rows, parameters = _encoded_rows(encoded, row_size)
    values = np.empty((len(rows), row_size), np.float32)
    fp8_decode(rows, parameters, of.values(), values)
    return torch.from_numpy(values.reshape(-1))


def _rows(values: Tensor, row_size: int) -> tuple[Array, Array, Array]:
    """Return rows of elements, memory for the encoded rows, and that memory as float32."""
    rows = values.contiguous().numpy().reshape(-1, row_size)
    encoded = np.empty((len(rows), row_bytes(row_size)), np.uint8)
    return rows, encoded, encoded.view(np.float32)


def _encoded_rows(encoded: Tensor, row_size: int) -> tuple[Array, Array]:
    """Return encoded rows, and the same memory as float32."""
    rows = encoded.contiguous().numpy().reshape(-1, row_bytes(row_size))
    return rows, rows.view(np.float32)


@_compiled
def int8_ranges(rows: Array, parameters: Array) -> None:
    """Write each row's range, in the place of its scale, and its least element."""
    place = parameters.shape[1] - ROW_PARAMETERS
    for row in range(rows.shape[0]):
        least = largest = rows[row, 0]
        for element in rows[row]:
            # A NaN stays in the range, so that the whole row decodes to NaN.
            if element < least or np.isnan(element):
                least = element
            if element > largest or np.isnan(element):
                largest = element
        parameters[row, place] = largest - least
        parameters[row, place + 1] = least


@_compiled
def int8_encode(rows: Array, parameters: Array, encoded: Array) -> None:
    """Encode each element as steps above its row's least, and replace the row's range by its scale."""
    place = parameters.shape[1] - ROW_PARAMETERS
    for row in range(rows.shape[0]):
        least = parameters[row, place + 1]
        steps = _LARGEST / (parameters[row, place] + _EPSILON)
        parameters[row, place] /= _LARGEST
        for column in range(rows.shape[1]):
            step = np.rint((rows[row, column] - least) * steps)
            encoded[row, column] = np.uint8(0) if np.isnan(step) else np.uint8(step)


@_compiled
def int8_decode(encoded: Array, parameters: Array, values: Array) -> None:
    """Decode each element as its row's least plus steps of its scale, rounded once."""
    place = parameters.shape[1] - ROW_PARAMETERS
    for row in range(values.shape[0]):
        scale, least = np.float64(parameters[row, place]), np.float64(parameters[row, place + 1])
        for column in range(values.shape[1]):
            values[row, column] = _round_once(encoded[row, column] * scale, least)


@_inlined
def _round_once(product: float, addend: float) -> np.float32:
    """Return the float32 nearest to the exact sum, as a fused multiply-add gives it; `product` must be exact."""
    total = product + addend
    back = total - product
    lost = (product - (total - back)) + (addend - back)
    if lost != 0.0 and np.isfinite(total):
        # Truncate, and set the last of the 53 bits as the sum was inexact: rounding to float32 then sees no tie where
        # there is none.
        bits = np.float64(total).view(np.int64)
        if (lost > 0.0) != (total > 0.0):
            bits -= 1
        total = np.int64(bits | 1).view(np.float64)
    return np.float32(total)


@_compiled
def fp8_scales(rows: Array, most: Any, parameters: Array) -> None:
    """Write the scale that brings each row's largest magnitude to `most`, and a zero."""
    place = parameters.shape[1] - ROW_PARAMETERS
    for row in range(rows.shape[0]):
        largest = _FP8_EPSILON
        for element in rows[row]:
            largest = max(largest, abs(element))
        parameters[row, place] = most / (_FP8_EPSILON + largest)
        parameters[row, place + 1] = np.float32(0.0)


@_compiled
def fp8_encode(rows: Array, parameters: Array, mantissa_bits: int, least: int, most: Any, encoded: Array) -> None:
    """Encode each scaled element as the nearest number with `mantissa_bits`, ties to even.

    Codes count the numbers up from zero: `least` is the smallest exponent, shared by subnormal numbers.
    """
    place = parameters.shape[1] - ROW_PARAMETERS
    for row in range(rows.shape[0]):
        scale = parameters[row, place]
        for column in range(rows.shape[1]):
            bits = np.float32(rows[row, column] * scale).view(np.uint32)
            size = np.uint32(bits & np.uint32(0x7FFFFFFF)).view(np.float32)
            if not size < most:  # also true for NaN, which becomes the largest number as in FBGEMM
                size = most
            above: Any = max(np.int64(np.float32(size).view(np.uint32) >> np.uint32(23)) - 127 - least, 0)
            code = np.int64(np.rint(np.ldexp(np.float64(size), mantissa_bits - least - above)))
            code += above << mantissa_bits
            encoded[row, column] = np.uint8(code | np.int64(bits >> np.uint32(24)) & 0x80)


@_compiled
def fp8_decode(encoded: Array, parameters: Array, worth: Array, values: Array) -> None:
    """Decode each code to its value, divided by its row's scale."""
    place = parameters.shape[1] - ROW_PARAMETERS
    for row in range(values.shape[0]):
        scale = parameters[row, place]
        for column in range(values.shape[1]):
            values[row, column] = worth[encoded[row, column]] / scale
