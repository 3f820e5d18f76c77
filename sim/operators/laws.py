"""Times any operator by the law of its family."""

from __future__ import annotations

from collections.abc import Callable

from scenarios.config.gpu import Gpu
from scenarios.seam.operations import (
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
from scenarios.seam.operations.operation import Operation
from sim.operators import attention as attention_law
from sim.operators import bags as bags_law
from sim.operators import convolution as convolution_law
from sim.operators import moves as moves_law
from sim.operators import normalisations as norm_law
from sim.operators import optimizers as optimizers_law
from sim.operators import pointwise as pointwise_law
from sim.operators import products as products_law
from sim.operators import reductions as reductions_law
from sim.operators import rows as rows_law
from sim.operators import sorting as sorting_law
from sim.operators.chip import chip_of

_LAWS: dict[type[Operation], Callable[..., float]] = {
    products.Product: products_law.seconds,
    products.Recurrence: products_law.recurrence_seconds,
    attention.Attention: attention_law.seconds,
    convolution.Convolution: convolution_law.seconds,
    pointwise.Pointwise: pointwise_law.seconds,
    reductions.Reduction: reductions_law.seconds,
    reductions.Qr: reductions_law.qr_seconds,
    reductions.Pool: reductions_law.pool_seconds,
    normalisations.Softmax: norm_law.softmax_seconds,
    normalisations.RowNorm: norm_law.row_norm_seconds,
    normalisations.BatchNorm: norm_law.batch_norm_seconds,
    normalisations.NllLoss: norm_law.nll_loss_seconds,
    rows.Gather: rows_law.gather_seconds,
    rows.Index: rows_law.index_seconds,
    rows.IndexPut: rows_law.index_put_seconds,
    rows.EmbeddingBackward: rows_law.embedding_backward_seconds,
    rows.ScatterAdd: rows_law.scatter_add_seconds,
    moves.Cat: moves_law.cat_seconds,
    moves.HostCopy: moves_law.host_copy_seconds,
    moves.OneRankCollective: moves_law.one_rank_seconds,
    optimizers.Foreach: optimizers_law.seconds,
    sorting.Sort: sorting_law.sort_seconds,
    sorting.Scan: sorting_law.scan_seconds,
    sorting.PermuteSparse: sorting_law.permute_seconds,
    sorting.BucketizeSparse: sorting_law.bucketize_seconds,
    sorting.PermutePooled: sorting_law.pooled_seconds,
    bags.BagsForward: bags_law.forward_seconds,
    bags.BagsBackward: bags_law.backward_seconds,
}


# Operators whose laws find operands in L2 unless `is_cold`; other laws read everything from memory.
_WARM = (products.Product, attention.Attention, convolution.Convolution)


def seconds(operation: Operation, gpu: Gpu, *, is_cold: bool = False) -> float:
    """Return the time of an operator's kernels on an idle GPU, without the host; `is_cold`: all caches are empty."""
    law, chip = _LAWS[type(operation)], chip_of(gpu)
    return law(operation, chip, is_cold=True) if is_cold and isinstance(operation, _WARM) else law(operation, chip)
