"""How elements of 8 bits are encoded: the layout of a row, and what FBGEMM's minifloats of 8 bits are worth; no torch.

Formats are those of fbgemm-gpu 1.8.0, which TorchRec 1.8.0 exchanges (`fbgemm_gpu/quantize_comm.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Behind the elements of a row stand two float32: of int8 its scale and its least element, of fp8 its scale and a zero.
ROW_PARAMETERS, ROW_PARAMETER_BYTES = 2, 4
# The elements that share a scale in int8: QuantizationContext's default, which no option of TorchRec's changes.
INT8_ROW_SIZE = 32
# Keep the scale of rows of zeros finite: of FloatToFused8BitRowwiseQuantized and of FloatToFP8RowwiseQuantized.
INT8_EPSILON, FP8_EPSILON = 1e-8, 1e-20
INT8_LARGEST = 255.0


def row_bytes(row_size: int) -> int:
    """Bytes of an encoded row of so many elements, a multiple of 4."""
    return row_size + ROW_PARAMETERS * ROW_PARAMETER_BYTES


@dataclass(frozen=True, slots=True)
class Minifloat:
    """A sign, an exponent and a mantissa in 8 bits, with subnormal numbers, without infinities and NaN.

    `largest` is what a row's largest element is scaled to: it leaves the exponents above to nothing.
    """

    exponent_bits: int
    exponent_bias: int
    largest: float

    @property
    def mantissa_bits(self) -> int:
        """Count the bits that sign and exponent leave."""
        return 7 - self.exponent_bits

    @property
    def least_exponent(self) -> int:
        """The exponent of the smallest normal number, and of all subnormal ones."""
        return 1 - self.exponent_bias

    def values(self) -> npt.NDArray[np.float32]:
        """What each of the 256 codes is worth, float32 [256]."""
        codes = np.arange(256)
        exponent = (codes & 0x7F) >> self.mantissa_bits
        mantissa = codes & ((1 << self.mantissa_bits) - 1)
        whole = mantissa + np.where(exponent > 0, 1 << self.mantissa_bits, 0)
        steps = np.maximum(exponent, 1) - self.exponent_bias - self.mantissa_bits
        signs = np.where(codes & 0x80, -1.0, 1.0)
        return np.asarray(signs * np.ldexp(whole.astype(np.float64), steps), np.float32)


# What FloatToFP8RowwiseQuantized uses forward and, of a wider range, backward.
FORWARD_FP8 = Minifloat(exponent_bits=4, exponent_bias=15, largest=0.9375)
BACKWARD_FP8 = Minifloat(exponent_bits=5, exponent_bias=31, largest=0.875)
