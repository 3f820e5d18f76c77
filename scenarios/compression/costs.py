"""What the local work of compression costs, as kernels; how long they take is left to the worlds."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from scenarios.compression.orthogonalise import orthogonalise_launches, uses_gram_schmidt
from scenarios.seam.arguments import dtype_name
from scenarios.seam.kernel import Kernel


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


def orthogonalise_cost(like: Tensor, stacks: Sequence[Tensor], epsilon: float, zero_vanished: bool) -> Kernel:
    """Stacks of matrices (..., rows, columns), each orthogonalised by itself.

    Gram-Schmidt reads a column for its norm and to divide it, twice more to project later ones on it, and each of
    these, (columns - 1) / 2 in the mean, four times, writing it three times. Householder's QR has the flops of making R
    and then Q.
    """
    flops = reads = writes = 0.0
    for stack in stacks:
        numel, columns = stack.numel(), stack.shape[-1]
        if not uses_gram_schmidt(columns, stack.dtype):
            flops, reads, writes = flops + 4 * numel * columns, reads + 2 * numel, writes + 2 * numel
        elif columns:
            flops += 2 * numel * columns
            reads += 2 * numel * (columns + (columns - 1) / columns)
            writes += numel * (1 + 1.5 * (columns - 1))
    launches = sum(orthogonalise_launches(stack, epsilon, zero_vanished) for stack in stacks)
    is_qr = any(not uses_gram_schmidt(stack.shape[-1], stack.dtype) for stack in stacks)
    return cost("qr" if is_qr else "elementwise", like, flops=flops, read=reads, written=writes, launches=launches)
