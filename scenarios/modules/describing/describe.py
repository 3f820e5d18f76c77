"""Describes a call of a torch operator for the laws of operators."""

from __future__ import annotations

from collections.abc import Callable

from scenarios.modules.describing import pointwise, products, recurrent, reductions, rows
from scenarios.modules.describing.call import Operations, OperatorCall
from scenarios.seam.operations.operation import Operation

_BY_NAMES: dict[Callable[[OperatorCall], Operations], str] = {
    products.product: "mm addmm addmm_ bmm baddbmm mv dot vdot _int_mm _scaled_mm",
    products.convolution: "convolution _convolution cudnn_convolution convolution_overrideable",
    products.convolution_backward: "convolution_backward",
    recurrent.forward: "_cudnn_rnn",
    recurrent.backward: "_cudnn_rnn_backward",
    recurrent.cell: "_thnn_fused_lstm_cell _thnn_fused_lstm_cell_backward_impl _thnn_fused_gru_cell"
    " _thnn_fused_gru_cell_backward",
    pointwise.insertion: "select_backward slice_backward diagonal_backward constant_pad_nd",
    pointwise.loss: "mse_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits",
    pointwise.cat: "cat stack",
    pointwise.copies: "split_with_sizes_copy",
    pointwise.chunk_cat: "chunk_cat _chunk_cat",
    pointwise.all_gather_copy_in: "all_gather_copy_in",
    reductions.reduction: "sum mean amax amin max min argmax argmin prod norm linalg_vector_norm var var_mean std any"
    " all logsumexp aminmax",
    reductions.softmax: "_softmax _safe_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data",
    reductions.row_norm: "native_layer_norm native_layer_norm_backward _fused_rms_norm _fused_rms_norm_backward",
    reductions.batch_norm: "native_batch_norm native_batch_norm_backward _native_batch_norm_legit"
    " _native_batch_norm_legit_functional cudnn_batch_norm cudnn_batch_norm_backward",
    reductions.nll_loss: "nll_loss_forward nll_loss_backward",
    reductions.sort: "sort argsort",
    reductions.scan: "cumsum cumprod",
    reductions.qr: "linalg_qr",
    reductions.pool: "max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d avg_pool2d_backward"
    " _adaptive_avg_pool2d _adaptive_avg_pool2d_backward",
    rows.embedding: "embedding index_select _embedding_bag _embedding_bag_forward_only",
    rows.embedding_backward: "embedding_dense_backward",
    rows.index: "index _unsafe_index gather take",
    rows.index_put: "index_put index_put_ _index_put_impl_ _unsafe_index_put",
    rows.scatter: "index_add index_add_ scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_"
    " index_copy index_copy_",
    rows.masked_select: "masked_select",
    rows.permute_sparse: "permute_2D_sparse_data permute_1D_sparse_data",
    rows.bucketize_sparse: "block_bucketize_sparse_features",
    rows.cumsum: "asynchronous_complete_cumsum asynchronous_inclusive_cumsum asynchronous_exclusive_cumsum",
    rows.permute_pooled: "permute_pooled_embs permute_pooled_embs_auto_grad",
}
_DESCRIBED = {name: describe for describe, names in _BY_NAMES.items() for name in names.split()}
# Copies by torch's elementwise kernels.
_COPIES = frozenset(
    {
        *("copy_", "_to_copy", "clone", "flip", "roll", "repeat", "tril", "triu", "view_copy", "as_strided_copy"),
        *("where", "masked_fill", "masked_fill_", "upsample_nearest2d"),
    }
)


def describe(call: OperatorCall, *, is_pointwise: bool) -> tuple[Operation, ...]:
    """Return the operators with a law that a call runs; none, if it has no law.

    `is_pointwise`: the operator works element by element.
    """
    name = call.name
    describer = _DESCRIBED.get(name)
    if describer is None:
        if name.startswith("_scaled_dot_product_"):
            describer = products.attention
        elif name.startswith(("_foreach_", "_fused_")):
            describer = pointwise.foreach
        elif is_pointwise or name in _COPIES:
            describer = pointwise.pointwise
        else:
            return ()
    if any(not each.numel() for each in call.results[:1]):
        return ()
    described = describer(call)
    return described if isinstance(described, tuple) else (described,)
