"""Operators that a GPU runs as one call (attention, dropout, SyncBatchNorm, recurrent layers), as selective checkpoints
see them, and the layout of convolutions' results.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

import torch
from torch import Tensor
from torch._meta_registrations import meta_grouped_mm
from torch.utils import checkpoint
from torch.utils._pytree import tree_map_only

from scenarios.do_nothing import do_nothing
from scenarios.workloads.script.gpu import recurrent
from scenarios.workloads.script.gpu.known_values import wraps

_aten = torch.ops.aten
# The dtypes that FlashAttention supports (torch/aten, sdp_utils.cpp, `can_use_flash_attention`).
_OF_FLASH = (torch.float16, torch.bfloat16)
# The attention operator that runs in place of a GPU's, as it can compute values on CPUs.
_STANDS = _aten._scaled_dot_product_flash_attention_for_cpu.default
_FLASH = _aten._scaled_dot_product_flash_attention.default
_EFFICIENT = _aten._scaled_dot_product_efficient_attention.default


@contextmanager
def kernels_of_gpus() -> Iterator[None]:
    """Make meta tensors run the operators that a GPU would, within this context."""
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch warns that its own kernels are overridden
        for operator, run in FUSED.items():
            library.impl(operator.name().removeprefix("aten::"), run, "AutogradMeta")
        for name, shape in _OF_SHAPES.items():
            library.impl(name, shape, "Meta")
        for name, compute in recurrent.ON_CPU.items():
            library.impl(name, compute, "CPU")
    try:
        yield
    finally:
        library._destroy()


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Run attention as one kernel, as a GPU does for heads of equal dims; dropout is omitted from computed values."""
    dims = {each.shape[-1] for each in (query, key, value)}
    if len(dims) > 1 or query.dim() != 4:
        # The fused kernels need four dims and heads of one size; torch computes the rest by plain operators.
        math = _aten._scaled_dot_product_attention_math.default
        found: Tensor = math(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)[0]
        return found
    if enable_gqa and query.shape[1] != key.shape[1]:
        key, value = (each.repeat_interleave(query.shape[1] // each.shape[1], 1) for each in (key, value))
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(attn_mask.logical_not(), -inf)
    made: Tensor
    if wraps(query) and attn_mask is None and query.dtype in _OF_FLASH:  # DTensor supports both of a GPU's kernels
        made = _FLASH(query, key, value, dropout_p, is_causal, scale=scale)[0]
    elif wraps(query) or (attn_mask is not None and attn_mask.requires_grad):  # a learned bias: only this one has it
        made = _EFFICIENT(query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale)[0]
    else:
        made = _STANDS(query, key, value, 0.0, is_causal, attn_mask=attn_mask, scale=scale)[0]
    return made


def _drop(input: Tensor, p: float, train: bool) -> Tensor:
    if not train or p == 0 or input.numel() == 0:
        return input
    if p == 1 or wraps(input):
        return input * torch.empty_like(input).bernoulli_(1 - p).div_(1 - p or 1.0)
    made: Tensor = torch.native_dropout(input, p, train)[0]
    return made


def _ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, *more: Any) -> Tensor:
    """Run the loss with lengths as numbers of the host, as a GPU does."""
    lengths = (each.cpu().tolist() for each in (input_lengths, target_lengths))
    found: Tensor = _aten.ctc_loss.IntList(log_probs, targets, *lengths, *more)
    return found


FUSED: dict[Any, Callable[..., Any]] = {
    _aten.scaled_dot_product_attention.default: _attend,
    _aten.dropout.default: _drop,
    _aten.ctc_loss.Tensor: _ctc_loss,
    **recurrent.LAYERS,
}


def _statistics(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return mean and inverse standard deviation by channel."""
    channels, dtype = input.shape[1], torch.float32 if input.dtype != torch.float64 else torch.float64
    return input.new_empty(channels, dtype=dtype), input.new_empty(channels, dtype=dtype)


def _gather_statistics(input: Tensor, mean: Tensor, invstd: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return mean.new_empty(mean.shape[1]), invstd.new_empty(invstd.shape[1])


def _fake_quantized(input: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    """Return the result, and the mask of elements within range."""
    return torch.empty_like(input), torch.empty_like(input, dtype=torch.bool)


def _reduce_gradients(_grad: Tensor, _input: Tensor, mean: Tensor, *_: Any) -> tuple[Tensor, ...]:
    """Return sums of gradients, of gradients times centered inputs, and the gradients of weight and bias."""
    return tuple(torch.empty_like(mean) for _ in range(4))


# Operators that torch does not implement for meta tensors: those that only change their arguments, and result shapes of
# batch norm's.
def _grouped_product(left: Tensor, right: Tensor, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Tensor:
    """Return the result of products by expert; torch's own function takes bfloat16 alone, unlike its kernels."""
    halves = (torch.empty_like(each, dtype=torch.bfloat16) for each in (left, right))
    of_halves: Any = meta_grouped_mm  # its decorator hides its arguments' types
    found: Tensor = of_halves(*halves, offs, bias)
    return torch.empty_like(found, dtype=out_dtype or left.dtype)


_OF_SHAPES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("_fused_sgd_", "_fused_sgd_.tensor_lr", "_fused_adagrad_"), do_nothing),
    **dict.fromkeys(map("fake_quantize_{}_affine_cachemask".format, ("per_tensor", "per_channel")), _fake_quantized),
    **recurrent.SHAPES,
    "_ctc_loss_backward": lambda _, log_probs, *__: torch.empty_like(log_probs),
    "_grouped_mm": _grouped_product,
    "batch_norm_stats": _statistics,
    "batch_norm_gather_stats_with_counts": _gather_statistics,
    "batch_norm_elemt": lambda input, *_, **__: torch.empty_like(input),
    "batch_norm_backward_reduce": _reduce_gradients,
    "batch_norm_backward_elemt": lambda grad, input, *_, **__: torch.empty_like(input),
}


_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
# The index of a convolution's input among its arguments; its weight follows.
_INPUTS = {_aten.convolution.default: 0, _aten.convolution_backward.default: 1}


def as_laid_out(func: Any, args: tuple[Any, ...], result: Any) -> Any:
    """Return `result` of an operator on meta tensors in the layout that a GPU gives it.

    cuDNN returns channels last if a convolution's input or weight has that layout (torch/aten, ConvUtils.h,
    `cudnn_conv_suggest_memory_format`); torch 2.13 does not apply this rule to meta tensors.
    """
    place = _INPUTS.get(func)
    if place is None:
        return result
    given, weight = args[place], args[place + 1]
    format_ = _CHANNELS_LAST.get(given.dim())
    if format_ is None or not any(each.is_contiguous(memory_format=format_) for each in (given, weight)):
        return result
    if all(each.is_contiguous() for each in (given, weight)):  # sizes of 1 make both layouts equal
        return result
    return tree_map_only(Tensor, lambda each: _in(format_, each), result)


def _in(format_: torch.memory_format, tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=format_) if tensor.dim() in _CHANNELS_LAST else tensor


def name_operators_of_gpus() -> None:
    """Make selective checkpoints' policies and lists see a GPU's attention operators, not the one that runs here."""
    usual: Any = checkpoint.create_selective_checkpoint_contexts

    def make(policy: Any, *args: Any, **more: Any) -> Any:
        return usual(_translate_policy(policy) if callable(policy) else _translate_list(policy), *args, **more)

    checkpoint.create_selective_checkpoint_contexts = make  # type: ignore[assignment]


def _translate_policy(policy: Callable[..., Any]) -> Callable[..., Any]:
    def translate(context: Any, operator: Any, *args: Any, **more: Any) -> Any:
        return policy(context, _of_gpu(args, more) if operator is _STANDS else operator, *args, **more)

    return translate


def _of_gpu(args: tuple[Any, ...], more: dict[str, Any]) -> Any:
    """Return the attention operator that a GPU runs: FlashAttention requires 16 bit and no mask."""
    return _FLASH if args[0].dtype in _OF_FLASH and more.get("attn_mask") is None else _EFFICIENT


def _translate_list(operators: list[Any]) -> list[Any]:
    return [*operators, *([_STANDS] if {_FLASH, _EFFICIENT} & {*operators} else [])]
