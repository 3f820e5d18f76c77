"""Prices one call of a torch operator: its kind, flops, and the bytes that it touches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from scenarios.modules.describing.call import OperatorCall
from scenarios.modules.describing.describe import describe
from scenarios.modules.precision import rounds_to_tf32
from scenarios.seam.arguments import dtype_name
from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.products import Product, Recurrence

# Operators without work besides views: new names, uninitialized memory, and notes for profilers.
_FREE = frozenset(
    {
        *("alias", "detach", "detach_", "lift_fresh", "lift", "_unsafe_view", "unsafe_split", "unsafe_chunk"),
        *("_reshape_alias", "set_", "resize_"),
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
        *("_record_function_enter_new", "_record_function_exit", "_local_scalar_dense", "_assert_async"),
        *("_has_compatible_shallow_copy_type", "is_same_size", "_is_zerotensor", "dim", "numel", "size"),
    }
)
_KINDS = {
    "gemm": "mm addmm addmm_ bmm baddbmm mv addmv dot vdot _scaled_mm _grouped_mm _int_mm addbmm addr ger _trilinear"
    " _cudnn_rnn _cudnn_rnn_backward",
    "convolution": "convolution _convolution convolution_backward convolution_overrideable cudnn_convolution"
    " mkldnn_convolution _slow_conv2d_forward",
    "attention": "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward"
    " _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward"
    " _scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward"
    " _scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward",
    "embedding_lookup": "embedding _embedding_bag _embedding_bag_forward_only",
    "embedding_update": "embedding_dense_backward _embedding_bag_backward _embedding_bag_dense_backward"
    " _embedding_bag_per_sample_weights_backward embedding_renorm_ index_add index_add_ index_put index_put_"
    " _index_put_impl_ _unsafe_index_put scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_"
    " index_reduce index_copy index_copy_",
    "permute": "cat stack copy_ _to_copy clone index _unsafe_index index_select gather select_backward slice_backward"
    " select_scatter slice_scatter as_strided_scatter repeat repeat_interleave flip roll constant_pad_nd tril triu"
    " diagonal_backward unfold_backward pixel_shuffle pixel_unshuffle channel_shuffle split_with_sizes_copy"
    " reflection_pad1d reflection_pad2d replication_pad2d col2im im2col upsample_nearest2d upsample_bilinear2d"
    " take masked_scatter as_strided_copy view_copy narrow_copy _foreach_copy_"
    " all_gather_copy_in chunk_cat _chunk_cat",
    "reduction": "sum mean amax amin max min argmax argmin prod norm linalg_vector_norm var var_mean std std_mean any"
    " all logsumexp cumsum cumprod aminmax _softmax _safe_softmax _log_softmax _softmax_backward_data"
    " _log_softmax_backward_data native_layer_norm native_layer_norm_backward native_group_norm"
    " native_group_norm_backward native_batch_norm native_batch_norm_backward _native_batch_norm_legit"
    " _native_batch_norm_legit_functional cudnn_batch_norm cudnn_batch_norm_backward batch_norm_stats"
    " batch_norm_gather_stats_with_counts batch_norm_elemt batch_norm_backward_reduce batch_norm_backward_elemt"
    " _fused_rms_norm _fused_rms_norm_backward nll_loss_forward nll_loss_backward nll_loss2d_forward"
    " nll_loss2d_backward"
    " max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d avg_pool2d_backward _adaptive_avg_pool2d"
    " _adaptive_avg_pool2d_backward mse_loss mse_loss_backward smooth_l1_loss smooth_l1_loss_backward huber_loss"
    " huber_loss_backward sort topk _cdist_forward _cdist_backward _foreach_norm bincount histc",
    "qr": "linalg_qr",
    "elementwise": "arange bernoulli_ uniform_ normal_ random_ fill_ zero_ zeros ones full zeros_like ones_like "
    " full_like new_zeros new_ones new_full scalar_tensor native_dropout native_dropout_backward rand randn"
    " rand_like randn_like"
    " linspace eye one_hot addcmul_ addcdiv_ lerp_ where masked_fill masked_fill_ _foreach_add_ glu glu_backward"
    " log_sigmoid_forward log_sigmoid_backward rrelu_with_noise _prelu_kernel"
    " _prelu_kernel_backward binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits"
    " _thnn_fused_lstm_cell _thnn_fused_lstm_cell_backward_impl _thnn_fused_gru_cell _thnn_fused_gru_cell_backward"
    " tril_indices triu_indices _amp_foreach_non_finite_check_and_unscale_",
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names.split()}
# Operators that overwrite their argument without reading it.
_OVERWRITE = frozenset({"copy_", "zero_", "fill_", "bernoulli_", "uniform_", "normal_", "random_", "_foreach_copy_"})
# Operators that take only shape and type from their argument, and read no values.
_FILLED = frozenset(
    {
        *("zeros_like", "ones_like", "full_like", "rand_like", "randn_like"),
        *("new_zeros", "new_ones", "new_full", "bernoulli_", "uniform_", "normal_", "random_", "zero_", "fill_"),
    }
)
# Namespaces in which the names of these tables are valid; in other libraries a name may mean anything.
TORCHS = frozenset({"aten", "prims", "prim", "fsdp", "fbgemm", "c10d", "_c10d_functional"})
# Recurrent layers, whose float32 products follow convolutions' setting for TF32.
_OF_CUDNN = "_cudnn_rnn"
_ATTENTION, _BACK = "_scaled_dot_product_", "_backward"


def price(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any, *, on_gpu: bool
) -> tuple[Kernel | None, bool]:
    """Return the work of a call of operator `func`, None if it does none; and whether the operator is known.

    An unknown operator is priced by its bytes. Bytes count distinct elements: a dimension from `expand` counts once,
    and gathers and scatters count only the rows that indices name. Flops are those of `torch.utils.flop_counter`;
    operators that it does not know have none.
    """
    name = _name(func)
    operands, results = touched_tensors(func, args, kwargs, result)
    if not results or name in _FREE or func.is_view or func.namespace == "prim":
        return None, True
    if name.startswith(("_foreach_", "_fused_")) and name not in _KIND_OF:
        kind: str | None = "optimizer"
    else:
        kind = _KIND_OF.get(name)
    is_torchs = func.namespace in TORCHS
    is_known = kind is not None or (is_torchs and _is_pointwise(name))
    read, written = _bytes(name, operands, results)
    operand = _operand(args, results)
    dtype = _arithmetic("convolution" if name.startswith(_OF_CUDNN) else kind, operand, on_gpu=on_gpu)
    operations: tuple[Operation, ...] = ()
    if on_gpu and is_torchs:
        call = OperatorCall(func, args, kwargs, read=operands, results=results, dtype=dtype)
        operations = describe(call, is_pointwise=kind == "elementwise" or (kind is None and is_known))
    kernel = Kernel(
        kind=kind or "elementwise",
        flops=float(_flops(func, args, kwargs, result)) or _flops_of_cudnn(name, operations),
        bytes_read=float(read),
        bytes_written=float(written),
        dtype=dtype,
        operations=operations,
    )
    return kernel, is_known


def touched_tensors(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the tensors that a call of an operator reads, and those that it writes."""
    changed, overwritten = _written_tensors(func, args, kwargs)
    name = _name(func)
    if name == "all_gather_copy_in":  # FSDP2's, which gives the part that it fills, and all that will be gathered
        return tensors_in(args[0]), tensors_in(result)[:1]
    unread = {id(each) for each in (*overwritten, *(changed if name in _OVERWRITE else ()))}
    operands = () if name in _FILLED else tensors_in((args, kwargs))
    return [each for each in operands if id(each) not in unread], [*changed, *overwritten] or tensors_in(result)


def _name(func: Any) -> str:
    name: str = func.overloadpacket.__name__
    return name if func.namespace in TORCHS else f"{func.namespace}::{name}"


@lru_cache
def _is_pointwise(name: str) -> bool:
    """Return whether an operator, or its forward or out-of-place form, works element by element."""
    packets = (getattr(torch.ops.aten, each, None) for each in (name, name.removesuffix(_BACK), name.removesuffix("_")))
    return any(
        torch.Tag.pointwise in getattr(packet, overload).tags
        for packet in packets
        if packet is not None
        for overload in packet.overloads()
    )


@cache
def is_composite(func: Any) -> bool:
    """Return whether torch decomposes an operator into others on all devices, except operators of TorchScript only."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    try:
        return func.namespace == "aten" and has_kernel(func.name(), "CompositeImplicitAutograd")
    except RuntimeError:  # it has no kernel at all
        return False


def size_bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor's distinct elements, without repetition by `expand`."""
    count = 1
    for extent, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= extent if stride or not extent else 1
    return count * tensor.element_size()


def tensors_in(tree: Any) -> list[Tensor]:
    """Return the tensors in nested tuples, lists and dicts of an operator's arguments or results.

    torch's own `tree_leaves` takes several times as long.
    """
    found: list[Tensor] = []
    _collect((tree,), found)
    return found


def _collect(tree: Iterable[Any], found: list[Tensor]) -> None:
    for each in tree:
        if isinstance(each, Tensor):
            found.append(each)
        elif isinstance(each, (tuple, list)):
            _collect(each, found)
        elif isinstance(each, dict):
            _collect(each.values(), found)


def _written_tensors(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the arguments that the operator changes in place, and those that receive its results."""
    changed: list[Tensor] = []
    overwritten: list[Tensor] = []
    for place, name, is_out in _written_arguments(func):
        value = args[place] if place < len(args) else kwargs.get(name)
        _collect((value,), overwritten if is_out else changed)
    return changed, overwritten


@cache
def _written_arguments(func: Any) -> tuple[tuple[int, str, bool], ...]:
    """Return (position, name, whether it is an `out=` argument) of each argument that an operator writes."""
    arguments = enumerate(func._schema.arguments if func._schema.is_mutable else ())
    return tuple(
        (place, each.name, each.is_out)
        for place, each in arguments
        if each.alias_info is not None and each.alias_info.is_write
    )


def _bytes(name: str, operands: list[Tensor], results: list[Tensor]) -> tuple[int, int]:
    """Return the bytes read of arguments, and written of results."""
    written = sum(map(size_bytes, results))
    match name:
        case "index" | "_unsafe_index" | "index_select" | "gather" | "embedding" | "take":
            return written + sum(map(size_bytes, operands[1:])), written
        case "_embedding_bag" | "_embedding_bag_forward_only":
            weight, ids = operands[:2]
            rows = ids.numel() * weight.shape[1] * weight.element_size()
            return rows + sum(map(size_bytes, operands[1:])), size_bytes(results[0])
        case "embedding_dense_backward" | "_embedding_bag_dense_backward":
            return 2 * size_bytes(operands[0]) + size_bytes(operands[1]), written + size_bytes(operands[0])
        case (
            "index_put" | "index_put_" | "_index_put_impl_" | "index_add_" | "scatter_" | "scatter_add_" | "index_copy_"
        ):
            source, sums = operands[-1], "add" in name
            return (1 + sums) * size_bytes(source) + sum(map(size_bytes, operands[1:-1])), size_bytes(source)
    if name in _FILLED:
        return 0, written
    return sum(map(size_bytes, operands)), written


def _flops(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> int:
    packet = func.overloadpacket
    name = packet.__name__
    if name.startswith(_ATTENTION):
        if name.endswith(_BACK):
            gradient, query, key, value = args[:4]
            return int(sdpa_backward_flop_count(gradient.shape, query.shape, key.shape, value.shape))
        return int(sdpa_flop_count(*(each.shape for each in args[:3])))
    count = flop_registry.get(packet)
    return 0 if count is None else int(count(*args, **kwargs, out_val=result))


def _flops_of_cudnn(name: str, operations: Iterable[Operation]) -> float:
    """Return the flops of recurrent layers, which `torch.utils.flop_counter` does not know."""
    products = (each for each in operations if name.startswith(_OF_CUDNN) and isinstance(each, Product | Recurrence))
    return sum(each.flops for each in products)


def _operand(args: Sequence[Any], results: list[Tensor]) -> Tensor:
    """Return the tensor whose dtype is that of the arithmetic."""
    return next((leaf for leaf in tensors_in(list(args)) if leaf.is_floating_point()), results[0])


def _arithmetic(kind: str | None, operand: Tensor, *, on_gpu: bool) -> str:
    """Return the dtype's name, "tf32" where a GPU rounds products of float32 to it."""
    if on_gpu and kind in ("gemm", "convolution") and operand.dtype == torch.float32:
        of_products, of_convolutions = rounds_to_tf32()
        if of_products if kind == "gemm" else of_convolutions:
            return "tf32"
    return dtype_name(operand)
