"""What the local work of compression costs, as kernels; how long they take is left to the worlds."""

from __future__ import annotations

from torch import Tensor

from scenarios.arguments import dtype_name
from scenarios.compression.orthogonalise import uses_gram_schmidt
from scenarios.rank import Kernel


def cost(kind: str, like: Tensor, *, flops: float, read: float, written: float, launches: int = 1) -> Kernel:
    """A kernel that reads and writes so many elements of the dtype of `like`."""
    size = like.element_size()
    return Kernel(
        kind=kind,
        flops=flops,
        bytes_read=read * size,
        bytes_written=written * size,
        dtype=dtype_name(like),
        launches=launches,
    )


def copy_cost(like: Tensor, numel: float, launches: int = 1) -> Kernel:
    """Elements moved from one place to another."""
    return cost("permute", like, flops=0, read=numel, written=numel, launches=launches)


def orthogonalise_cost(like: Tensor, numel: int, columns: int, launched: int = 1) -> Kernel:
    """Matrices of `columns` columns, `numel` elements in all, in `launched` stacks.

    Gram-Schmidt reads a column for its norm and to divide it, and each later column to project on it and to subtract:
    2 + 2 (columns - 1) / 2 reads of an element in the mean. Householder's QR has the flops of making R and then Q.
    """
    if uses_gram_schmidt(columns, like.dtype):
        launches = launched * (2 * columns + 3 * (columns - 1))
        reads, writes = numel * (columns + 1), numel * (columns + 1) / 2
        return cost("qr", like, flops=2 * numel * columns, read=reads, written=writes, launches=launches)
    return cost("qr", like, flops=4 * numel * columns, read=2 * numel, written=2 * numel, launches=3 * launched)
