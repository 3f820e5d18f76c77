"""Locates an operation among measured ones: the name of its surface and its coordinates on it."""

from __future__ import annotations

import math

from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.products import FULL_ALIGNMENT, Product

# Columns that are a surface's coordinates, by the column `operator`; the coordinate of lines comes last.
COORDINATES = {
    "linear": ("columns", "inner", "rows"),
    "prefill": ("heads", "key_heads", "batch", "queries"),
    "encoder": ("heads", "batch", "queries"),
}
# Columns of which a surface has one value.
FIXED = {"linear": ("dtype",), "prefill": ("dtype", "head_size", "window"), "encoder": ("dtype", "head_size")}
# Kernels of both 16-bit types take equally long.
ALIKE = {"float16": "bfloat16"}


# Share of the deviation of a linear layer's kernels that applies to products of other layouts: on 16 gradients of an
# H200 the law's mean error is 2.7 %, with all of the deviation 4.5 %, with half of it 2.3 %.
_OTHER_LAYOUT = 0.5

Place = tuple[str, tuple[float, ...], float]


def signature(operation: object) -> Place | None:
    """Return the surface of `operation`, the logarithms of its coordinates, and the share of a deviation that applies
    to it.

    None if no table measures such operations. A table of linear layers does not cover products of unaligned operands,
    nor a table of a server's attention `scaled_dot_product_attention`: those run other kernels.
    """
    if isinstance(operation, Product):
        return _of_product(operation)
    if isinstance(operation, Attention):
        return _of_attention(operation)
    return None


def _of_product(product: Product) -> Place | None:
    aligned = min(product.left_alignment, product.right_alignment) >= FULL_ALIGNMENT
    if not (aligned and product.batch == 1 and product.rows and product.columns and product.inner):
        return None
    is_linear = product.right_is_transposed and not product.left_is_transposed
    name = surface_name("linear", (ALIKE.get(product.dtype, product.dtype),))
    place = (math.log2(product.columns), math.log2(product.inner), math.log2(product.rows))
    return name, place, 1.0 if is_linear else _OTHER_LAYOUT


def _of_attention(attention: Attention) -> Place | None:
    if not attention.is_serving or attention.is_backward or attention.queries != attention.keys:
        return None
    dtype = ALIKE.get(attention.dtype, attention.dtype)
    of_batch = (math.log2(attention.batch), math.log2(attention.queries))
    if attention.is_causal:
        name = surface_name("prefill", (dtype, attention.head_size, attention.window or 0))
        return name, (math.log2(attention.heads), math.log2(attention.key_heads), *of_batch), 1.0
    if attention.key_heads != attention.heads:
        return None
    return surface_name("encoder", (dtype, attention.head_size)), (math.log2(attention.heads), *of_batch), 1.0


def surface_name(operator: str, fixed: tuple[object, ...]) -> str:
    """Return the name of the surface of `operator` with these values of its columns `FIXED`."""
    return " ".join([operator, *map(str, fixed)])
