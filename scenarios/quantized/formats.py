"""Layout of a row of 8-bit elements, and the values of FBGEMM's 8-bit minifloats; without torch.

Formats are those of fbgemm-gpu 1.8.0, which TorchRec 1.8.0 exchanges (`fbgemm_gpu/quantize_comm.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Two float32 follow a row's elements: for int8 its scale and its least element, for fp8 its scale and a zero.
ROW_PARAMETERS, ROW_PARAMETER_BYTES = 2, 4
# The elements that share a scale in int8: QuantizationContext's default, which no option of TorchRec changes.
INT8_ROW_SIZE = 32
# Keep the scale of rows of zeros finite, as in FloatToFused8BitRowwiseQuantized and FloatToFP8RowwiseQuantized.
INT8_EPSILON, FP8_EPSILON = 1e-8, 1e-20
INT8_LARGEST = 255.0


def row_bytes(row_size: int) -> int:
    """Return the bytes of an encoded row: a byte for each of `row_size` elements (a multiple of 4), scale and bias."""
    return row_size + ROW_PARAMETERS * ROW_PARAMETER_BYTES


@dataclass(frozen=True, slots=True)
class Minifloat:
    """A format of a sign, an exponent and a mantissa in 8 bits, with subnormal numbers, without infinities and NaN.

    A row's largest element is scaled to `largest`, which leaves greater exponents unused.
    """

    exponent_bits: int
    exponent_bias: int
    largest: float

    @property
    def mantissa_bits(self) -> int:
        """The number of mantissa bits."""
        return 7 - self.exponent_bits

    @property
    def least_exponent(self) -> int:
        """The exponent of the smallest normal number, and of all subnormal numbers."""
        return 1 - self.exponent_bias

    def values(self) -> npt.NDArray[np.float32]:
        """Return the value of each of the 256 codes, float32 [256]."""
        codes = np.arange(256)
        exponent = (codes & 0x7F) >> self.mantissa_bits
        mantissa = codes & ((1 << self.mantissa_bits) - 1)
        whole = mantissa + np.where(exponent > 0, 1 << self.mantissa_bits, 0)
        steps = np.maximum(exponent, 1) - self.exponent_bias - self.mantissa_bits
        signs = np.where(codes & 0x80, -1.0, 1.0)
        return np.asarray(signs * np.ldexp(whole.astype(np.float64), steps), np.float32)


# Formats of FloatToFP8RowwiseQuantized: forward, and with a wider range backward.
FORWARD_FP8 = Minifloat(exponent_bits=4, exponent_bias=15, largest=0.9375)
BACKWARD_FP8 = Minifloat(exponent_bits=5, exponent_bias=31, largest=0.875)
