"""CUDA's autocast rules for tensors that are not on CUDA: CPU tensors, on which modules are traced, and meta tensors.

Both devices' lists are torch's own (2.13, aten/src/ATen/autocast_mode): which operators take the lower dtype, which
float32, which the widest of their arguments'. Where the CPU's rules differ from CUDA's, `cuda_autocast` registers the
operators anew for the CPU: with CUDA's rule, or with none where CUDA has none. Operators that only the CPU has stay.
Meta tensors have no rules in torch, so `autocast_on_meta` registers all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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
# These sum lower dtypes in float32 without a copy, unless their `dtype` argument says otherwise.
_SUMS = (
    "softmax.int log_softmax.int sum sum.dim_IntList prod prod.dim_int cumsum cumprod linalg_vector_norm"
    " linalg_matrix_norm"
)
# Operators whose CPU rule equals CUDA's.
_LOWER_ALIKE = (
    "_convolution.deprecated conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input"
    " conv_transpose3d.input cudnn_convolution cudnn_convolution_transpose linear matmul addmm mm addbmm baddbmm bmm"
    " linalg_vecdot _thnn_fused_lstm_cell _thnn_fused_gru_cell scaled_dot_product_attention"
    " _scaled_dot_product_flash_attention"
)
_WIDE_ALIKE = (
    "poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss"
    " huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss"
    " multi_margin_loss binary_cross_entropy_with_logits cdist norm.Scalar norm.ScalarOpt_dim"
    " linalg_matrix_norm.str_ord _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d"
    " _upsample_nearest_exact2d _upsample_nearest_exact3d"
)
_WIDEST = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put scatter_add tensordot"
_OF_CPU = frozenset({"aten::mkldnn_rnn_layer", "aten::_native_multi_head_attention", "aten::_addmm_activation"})
_HALVES = (torch.float16, torch.bfloat16)

Call = Callable[..., Any]
Given = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A device whose autocast rules are imitated: its dispatch key, type, and a function that casts a tensor."""

    key: DispatchKey
    device_type: str
    cast: Callable[[Tensor, torch.dtype], Tensor]

    def to(self, dtype: torch.dtype, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Given:
        """Cast all floating-point tensors to `dtype`, except float64."""
        casts: Given = tree_map_only(
            Tensor,
            lambda each: self.cast(each, dtype) if each.dtype in (*_HALVES, torch.float32) else each,
            (args, kwargs),
        )
        return casts

    @property
    def lower(self) -> torch.dtype:
        """Lower dtype chosen by autocast's user."""
        return torch.get_autocast_dtype(self.device_type)


Cast = Callable[[_Place, Any, tuple[Any, ...], dict[str, Any]], Given]
_ON_CPU = _Place(key=DispatchKey.AutocastCPU, device_type="cpu", cast=Tensor.to)


@contextmanager
def cuda_autocast() -> Iterator[None]:
    """Apply CUDA's rules to autocast for the CPU while entered; only once at a time in a process."""
    library = torch.library.Library("aten", "IMPL")
    try:
        _register(library, _ON_CPU, _kernels_on_cpu())
        yield
    finally:
        library._destroy()


@contextmanager
def autocast_on_meta(is_of_gpu: Callable[[Tensor], bool]) -> Iterator[None]:
    """Autocast meta tensors for which `is_of_gpu` is true as on "cuda", in threads in `autocast_here`.

    Only once at a time in a process. A parameter is cast once per autocast context, as in torch.
    """
    library, cached = torch.library.Library("aten", "IMPL"), dict[int, tuple[Tensor, Tensor]]()
    clear = torch.clear_autocast_cache

    def clear_both() -> None:
        cached.clear()
        clear()

    def cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
        if tensor.dtype == dtype or not is_of_gpu(tensor):
            return tensor
        # The condition of torch's own cache (autocast_mode.cpp): float32 leaves that require gradients.
        is_kept = tensor.is_leaf and tensor.requires_grad and torch.is_autocast_cache_enabled()
        if not (is_kept and tensor.dtype == torch.float32 and dtype == place.lower):
            return tensor.to(dtype)
        if id(tensor) not in cached:
            # The tensor is kept with its cast, so that its id is not reused.
            cached[id(tensor)] = tensor, tensor.to(dtype)
        return cached[id(tensor)][1]

    place = _Place(key=DispatchKey.AutocastCUDA, device_type="cuda", cast=cast)
    rules: dict[Cast, str] = {
        _lower: f"{_LOWER} {_LOWER_ALIKE} _cudnn_rnn",
        _wide: f"{_WIDE} {_WIDE_ALIKE}",
        _sum: _SUMS,
        _widest: _WIDEST,
    }
    _register(library, place, _rules_of(place, rules))
    # torch calls this name at the end of the outermost autocast context, when parameters may change.
    torch.clear_autocast_cache = clear_both
    try:
        yield
    finally:
        torch.clear_autocast_cache = clear
        library._destroy()


@contextmanager
def autocast_here() -> Iterator[None]:
    """Enable autocast of meta tensors in this thread, within `autocast_on_meta`; meta tensors have no autocast key.

    Outside autocast's own contexts all threads exclude the key.
    """
    torch._C._dispatch_tls_set_dispatch_key_included(DispatchKey.AutocastCUDA, True)
    try:
        yield
    finally:
        torch._C._dispatch_tls_set_dispatch_key_included(DispatchKey.AutocastCUDA, False)


def _register(library: torch.library.Library, place: _Place, kernels: Mapping[str, Call]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of overridden rules
        for name, kernel in kernels.items():
            library.impl(name, kernel, place.key.name)


@cache
def _kernels_on_cpu() -> dict[str, Call]:
    """Return the kernel of each operator whose CUDA rule differs from the CPU's, by its name in aten."""
    rules: dict[Cast, str] = {_lower: _LOWER, _wide: _WIDE, _sum: _SUMS, _widest: _WIDEST}
    return {**dict.fromkeys(_without_rule(), torch.library.fallthrough_kernel), **_rules_of(_ON_CPU, rules)}


def _rules_of(place: _Place, rules: Mapping[Cast, str]) -> dict[str, Call]:
    return {name: _casting(place, _operator(name), rule) for rule, names in rules.items() for name in names.split()}


def _without_rule() -> list[str]:
    """Return the operators with a rule on the CPU and none on CUDA."""
    # Asked of torch, not listed here: the rules change between releases.
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


def _casting(place: _Place, operator: Any, rule: Cast) -> Call:
    """Return a kernel that casts arguments by `rule` and calls the operator below autocast."""
    below = torch._C.DispatchKeySet(place.key)

    def call(*args: Any, **kwargs: Any) -> Any:
        # Without the guard the operator would dispatch to this kernel again.
        with torch._C._ExcludeDispatchKeyGuard(below):
            given, named = rule(place, operator, args, kwargs)
            return operator(*given, **named)

    return call


def _lower(place: _Place, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Given:
    return place.to(place.lower, args, kwargs)


def _wide(place: _Place, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Given:
    return place.to(torch.float32, args, kwargs)


def _widest(place: _Place, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Given:
    dtypes = {leaf.dtype for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
    return place.to(torch.float32 if torch.float32 in dtypes else place.lower, args, kwargs)


def _sum(_: _Place, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Given:
    names = [each.name for each in operator._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    if args[0].dtype not in _HALVES or given.get("dtype") is not None:
        return args, kwargs
    # By position where the caller gave it so: the argument must not come twice.
    place = names.index("dtype")
    if len(args) > place:
        return (*args[:place], torch.float32, *args[place + 1 :]), kwargs
    return args, {**kwargs, "dtype": torch.float32}
