"""Makes the columns of matrices orthonormal, in place."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from scenarios.compression.local import cost
from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.reductions import Qr

_GRAM_SCHMIDT_COLUMNS = 2  # Gram-Schmidt up to this number, as torch 2.13 chooses; QR beyond
_HALF = (torch.float16, torch.bfloat16)  # dtypes for which torch has no QR
_VANISHED = 64  # roundings: a column of which projection leaves less was linearly dependent on earlier columns


def uses_gram_schmidt(columns: int, dtype: torch.dtype) -> bool:
    """Return whether matrices of this kind are orthogonalised by Gram-Schmidt rather than QR."""
    return columns <= _GRAM_SCHMIDT_COLUMNS or dtype in _HALF


def orthogonalise(matrices: Tensor, epsilon: float = 0.0, zero_vanished: bool = False) -> None:
    """Make the columns of matrices (..., rows, columns), columns <= rows, orthonormal, in place.

    `epsilon` is added to the norms that Gram-Schmidt divides by. With `zero_vanished`, a column without a norm becomes
    zero where it would become NaN. QR always gives orthonormal columns; its signs are Householder's.
    """
    assert matrices.shape[-1] <= matrices.shape[-2] or not matrices.numel()
    if not matrices.numel():
        return
    if uses_gram_schmidt(matrices.shape[-1], matrices.dtype):
        _gram_schmidt(matrices, epsilon, zero_vanished)
    else:
        # Copied: Q is a new tensor, while P and Q of all matrices lie in one memory that is reduced at once.
        matrices.copy_(torch.linalg.qr(matrices).Q)


def orthogonalise_launches(matrices: Tensor, epsilon: float, zero_vanished: bool) -> int:
    """Count the launches of `orthogonalise` with these arguments."""
    columns = matrices.shape[-1]
    if not matrices.numel():
        return 0
    if not uses_gram_schmidt(columns, matrices.dtype):
        return 2
    # A norm and a division for each column, with an epsilon an addition; the floors, their comparison and its use.
    by_column = 2 + bool(epsilon) + (2 if zero_vanished else 0)
    return by_column * columns + 4 * (columns - 1) + (2 if zero_vanished else 0)


def orthogonalise_cost(like: Tensor, stacks: Sequence[Tensor], epsilon: float, zero_vanished: bool) -> Kernel:
    """Price the orthogonalisation of stacks of matrices (..., rows, columns).

    Gram-Schmidt reads a column once for its norm and once to divide it, and twice to project later columns on it; each
    projection, (columns - 1) / 2 in the mean, reads four times and writes three times. Householder's QR has the flops
    of R and then of Q.
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
    kind = "qr" if is_qr else "elementwise"
    operations = tuple(map(_qr, stacks)) if all(map(_is_by_qr, stacks)) else ()
    return cost(kind, like, flops=flops, read=reads, written=writes, launches=launches, operations=operations)


def _is_by_qr(stack: Tensor) -> bool:
    return stack.numel() > 0 and not uses_gram_schmidt(stack.shape[-1], stack.dtype)


def _qr(stack: Tensor) -> Qr:
    rows, columns = stack.shape[-2:]
    return Qr(rows=rows, columns=columns, batch=stack.numel() // (rows * columns))


REFILL_LAUNCHES = 4  # of `refill_zero_columns`


def refill_zero_columns(matrices: Tensor, reserve: Tensor) -> None:
    """Replace all-zero columns of (..., rows, columns) by the columns of `reserve`, which has the same shape."""
    matrices.copy_(torch.where(_norms(matrices) == 0, reserve, matrices))


def _gram_schmidt(matrices: Tensor, epsilon: float, zero_vanished: bool) -> None:
    columns = matrices.shape[-1]
    # Norms before any projection: what projection leaves is compared with their rounding errors.
    floors = _norms(matrices) * (_VANISHED * torch.finfo(matrices.dtype).eps) if zero_vanished else None
    for index in range(columns):
        column = matrices[..., index : index + 1]
        norm = _norms(column)
        divisor = norm + epsilon if epsilon else norm
        if floors is not None:
            # Divided by infinity the column becomes 0, without a branch for which the host would wait.
            divisor = divisor.masked_fill(norm <= floors[..., index : index + 1], math.inf)
        column /= divisor
        if index + 1 < columns:
            # Modified Gram-Schmidt: later columns lose this one's part at once, which keeps rounding errors small.
            rest = matrices[..., index + 1 :]
            rest -= column * (column * rest).sum(dim=-2, keepdim=True)


def _norms(matrices: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(matrices, dim=-2, keepdim=True)
    return norms
