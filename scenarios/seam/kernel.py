"""What a computation costs, in numbers that do not depend on the device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The work of one computation.

    `kind` is the row of the efficiency table ("gemm", "embedding_lookup", "embedding_update", "bucketize", "permute",
    "elementwise", "reduction", "qr", "optimizer"); `dtype` the arithmetic's ("float32", ...).

    `launches` are the operators that do work, as torch dispatches them below autograd on CPU tensors; on a GPU each is
    about one kernel. Views, metadata, memory without values and reading a single number count nothing, a function that
    numba compiled counts one. `bytes_read` and `bytes_written` are what they touch, as if each found nothing in a
    cache; small operands (indices, a number a row) may be left out.
    """

    kind: str
    flops: float = 0.0
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    dtype: str = "float32"
    launches: int = 1
