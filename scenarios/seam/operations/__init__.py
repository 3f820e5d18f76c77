"""Operators as pure data: shapes, dtypes and strides, which a kernel carries for the laws of `sim/operators`.

All are imported together, so that `Operation.kinds` has each.
"""

from scenarios.seam.operations import (  # noqa: F401
    attention,
    bags,
    convolution,
    moves,
    normalisations,
    optimizers,
    pointwise,
    products,
    reductions,
    rows,
    sorting,
)
