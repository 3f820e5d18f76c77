"""Creates any operator from its description."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from real.calibration.operators.making import elementwise, fbgemm, indexed, products, rows
from real.calibration.operators.making.arena import Arena, CannotMakeError, Made
from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.bags import BagsBackward, BagsForward
from scenarios.seam.operations.convolution import Convolution
from scenarios.seam.operations.moves import Cat, HostCopy, OneRankCollective
from scenarios.seam.operations.normalisations import BatchNorm, NllLoss, RowNorm, Softmax
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.optimizers import Foreach
from scenarios.seam.operations.pointwise import Pointwise
from scenarios.seam.operations.products import Product, Recurrence
from scenarios.seam.operations.reductions import Pool, Qr, Reduction
from scenarios.seam.operations.rows import EmbeddingBackward, Gather, Index, IndexPut, ScatterAdd
from scenarios.seam.operations.sorting import BucketizeSparse, PermutePooled, PermuteSparse, Scan, Sort


def make(operation: Operation, arena: Arena) -> Made:
    """Return a call that runs exactly the described operator, on tensors of the arena.

    Properties that a description leaves open are chosen: the looked-up rows, extents of which only the product is
    known, the padding of a convolution. Tensors of the arena's earlier operators are overwritten.

    Raises:
        CannotMakeError: the operator cannot be created here, with the reason; `TooLargeError`, a subclass, if it has
            no room.
        RuntimeError: torch refuses a call that prepares it, such as the forward pass of a backward pass.
    """
    arena.begin()
    return _MAKERS[type(operation)](operation, arena)


def _one_rank(one: OneRankCollective, arena: Arena) -> Made:
    raise CannotMakeError("collectives of one rank need a process group")


def _steps(one: Recurrence, arena: Arena) -> Made:
    raise CannotMakeError("the steps of a recurrent layer do not run without the products of its inputs")


_MAKERS: dict[type, Callable[[Any, Arena], Made]] = {
    Product: products.product,
    Recurrence: _steps,
    Attention: products.attention,
    Convolution: products.convolution,
    Pointwise: elementwise.pointwise,
    Foreach: elementwise.foreach,
    Reduction: rows.reduction,
    Qr: rows.qr,
    Pool: rows.pool,
    Softmax: rows.softmax,
    RowNorm: rows.row_norm,
    BatchNorm: rows.batch_norm,
    NllLoss: rows.nll_loss,
    Sort: rows.sort,
    Scan: rows.scan,
    Gather: indexed.gather,
    Index: indexed.index,
    IndexPut: indexed.index_put,
    EmbeddingBackward: indexed.embedding_backward,
    ScatterAdd: indexed.scatter_add,
    Cat: indexed.cat,
    HostCopy: indexed.host_copy,
    OneRankCollective: _one_rank,
    PermuteSparse: fbgemm.permute_sparse,
    BucketizeSparse: fbgemm.bucketize_sparse,
    PermutePooled: fbgemm.permute_pooled,
    BagsForward: fbgemm.look_up,
    BagsBackward: fbgemm.update,
}
