"""CUDA's rules of autocast for tensors of the CPU, on which modules are traced for GPUs.

Both devices' lists are torch's own (2.13, aten/src/ATen/autocast_mode): which operators take the lower dtype, which
float32, which the widest of their arguments'. Where the CPU's differ from CUDA's, operators are registered anew for the
CPU while this context is entered: with CUDA's rule, or none where CUDA has none. Those that are for the CPU alone stay.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch.utils._pytree import tree_leaves, tree_map_only

_LOWER = (
    "addmv addr chain_matmul einsum linalg_multi_dot mv prelu"
    " convolution _convolution gru_cell lstm_cell rnn_relu_cell rnn_tanh_cell"
)
_WIDE = (
    "acos asin cosh erfinv exp expm1 log log10 log1p log2 reciprocal rsqrt sinh tan pow.Scalar pow.Tensor_Scalar"
    " pow.Tensor_Tensor softplus layer_norm native_layer_norm group_norm rms_norm cosine_similarity dist pdist renorm"
    " logsumexp nuclear_norm nuclear_norm.dim frobenius_norm.dim upsample_nearest1d upsample_nearest2d"
    " upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d"
)
# These take float32 sums of lower ones without a copy of them, unless they are told otherwise.
_SUMS = (
    "softmax.int log_softmax.int sum sum.dim_IntList prod prod.dim_int cumsum cumprod linalg_vector_norm"
    " linalg_matrix_norm"
)
_WIDEST = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put scatter_add tensordot"
_OF_CPU = frozenset({"aten::mkldnn_rnn_layer", "aten::_native_multi_head_attention", "aten::_addmm_activation"})
_HALVES = (torch.float16, torch.bfloat16)

Call = Callable[..., Any]
Cast = Callable[[Any, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]


@contextmanager
def cuda_autocast() -> Iterator[None]:
    """Inside, autocast for the CPU follows CUDA's rules. One at a time in a process."""
    library = torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that rules are written over
            for name, kernel in _kernels().items():
                library.impl(name, kernel, "AutocastCPU")
        yield
    finally:
        library._destroy()


@cache
def _kernels() -> dict[str, Call]:
    """What each operator that has another rule on CUDA is to do, by its name in aten."""
    found: dict[str, Call] = dict.fromkeys(_without_rule(), torch.library.fallthrough_kernel)
    for names, cast in ((_LOWER, _lower), (_WIDE, _wide), (_SUMS, _summed), (_WIDEST, _widest)):
        found.update((name, _casting(_operator(name), cast)) for name in names.split())
    return found


def _without_rule() -> list[str]:
    """Operators for which the CPU has a rule and CUDA has none."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return [
        name.removeprefix("aten::")
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::")
        and name not in _OF_CPU
        and has(name, "AutocastCPU")
        and not has(name, "AutocastCUDA")
    ]


def _operator(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _casting(operator: Any, cast: Cast) -> Call:
    """The operator, below autocast, of arguments that were cast."""
    autocast = torch._C.DispatchKeySet(DispatchKey.AutocastCPU)

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(autocast):
            given, named = cast(operator, args, kwargs)
            return operator(*given, **named)

    return call


def _lower(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return _to(torch.get_autocast_dtype("cpu"), args, kwargs)


def _wide(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return _to(torch.float32, args, kwargs)


def _widest(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    dtypes = {leaf.dtype for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
    return _to(torch.float32 if torch.float32 in dtypes else torch.get_autocast_dtype("cpu"), args, kwargs)


def _summed(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    names = [each.name for each in operator._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    if args[0].dtype not in _HALVES or given.get("dtype") is not None:
        return args, kwargs
    place = names.index("dtype")
    if len(args) > place:
        return (*args[:place], torch.float32, *args[place + 1 :]), kwargs
    return args, {**kwargs, "dtype": torch.float32}


def _to(dtype: torch.dtype, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """All tensors of floating point in this dtype, but those of float64."""
    casts: tuple[tuple[Any, ...], dict[str, Any]] = tree_map_only(
        Tensor, lambda each: each.to(dtype) if each.dtype in (*_HALVES, torch.float32) else each, (args, kwargs)
    )
    return casts
