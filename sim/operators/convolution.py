"""Times convolutions on an idle GPU: implicit matrix products, and the passes that change the layout.

cuDNN computes a convolution as a product whose left operand is gathered from the input. Rows, columns and inner size
are those of Chetlur et al., cuDNN, arXiv:1410.0759, section 3; tiles and waves are those of `products`.
"""

from __future__ import annotations

import math

from scenarios.seam.kernel import ELEMENT_BYTES
from scenarios.seam.operations.convolution import Convolution
from scenarios.seam.operations.products import Product
from sim.operators.chip import Chip, hit_rate, overlap
from sim.operators.products import busy_seconds, is_on_tensor_cores, start_seconds

# Channels are padded to this many bytes.
_CHANNEL_BYTES = 16
# Cost of gathering for kernels larger than 1: time over that of the product. Fitted on two rows of an H200.
_GATHER = 1.3
# Share of the memory's rate: of products, and of kernels with one channel per group, which read each element again for
# each position of the kernel, from L1 and L2. The latter is assumed.
_MEMORY_SHARE, _DEPTHWISE_SHARE = 0.82, 0.35
# A change of layout reads and writes a tensor; its share of the memory's rate is assumed.
_LAYOUT_SHARE, _LAYOUT_S = 0.7, 2e-6
_OVERLAP = 4.0


def seconds(convolution: Convolution, chip: Chip, *, is_cold: bool = False) -> float:
    """Return the time of `convolution` on `chip` in seconds, without the host; `is_cold`: all caches are empty."""
    if not convolution.inputs * convolution.outputs:
        return 0.0
    size = ELEMENT_BYTES.get(convolution.dtype, 4)
    moved = size * (convolution.inputs + convolution.outputs + convolution.weights)
    if convolution.in_channels == convolution.groups > 1:
        memory_s = _moved_s(moved, chip, _DEPTHWISE_SHARE, is_cold)
        return start_seconds(_product(convolution), chip, is_cold=is_cold) + memory_s
    product = _product(convolution)
    busy_s = busy_seconds(product, chip) * (_GATHER if math.prod(convolution.kernel) > 1 else 1.0)
    memory_s = _moved_s(moved, chip, _MEMORY_SHARE, is_cold)
    takes_s = start_seconds(product, chip, is_cold=is_cold)
    takes_s += overlap(busy_s, memory_s, _OVERLAP)
    if not convolution.is_channels_last and is_on_tensor_cores(product, chip):
        takes_s += 2 * _LAYOUT_S + _moved_s(2 * moved, chip, _LAYOUT_SHARE, is_cold)
    return takes_s


def _moved_s(moved: int, chip: Chip, share: float, is_cold: bool) -> float:
    in_l2 = 0.0 if is_cold else hit_rate(moved / chip.l2_bytes)
    return moved * ((1 - in_l2) / (chip.memory_bytes_per_s * share) + in_l2 / chip.l2_bytes_per_s)


def _product(convolution: Convolution) -> Product:
    """Return the convolution's implicit matrix product, with a batch for groups."""
    positions, taps = convolution.batch * math.prod(convolution.out_size), math.prod(convolution.kernel)
    inputs, outputs = _channels(convolution.in_channels, convolution), _channels(convolution.out_channels, convolution)
    rows, columns, inner = positions, outputs, inputs * taps
    if convolution.makes == "weight_gradient":
        rows, columns, inner = outputs, inputs * taps, positions
    elif convolution.makes == "input_gradient":
        # In a strided convolution each input position meets only a share of the kernel's taps.
        rows = convolution.batch * math.prod(convolution.size)
        columns, inner = inputs, math.ceil(outputs * taps * positions / rows)
    return Product(
        batch=convolution.groups,
        rows=rows,
        columns=columns,
        inner=max(1, inner),
        dtype=convolution.dtype,
        right_is_transposed=True,
    )


def _channels(channels: int, convolution: Convolution) -> int:
    """Return a group's channels, padded as kernels load them."""
    step = max(1, _CHANNEL_BYTES // ELEMENT_BYTES.get(convolution.dtype, 4))
    return math.ceil(channels / convolution.groups / step) * step
