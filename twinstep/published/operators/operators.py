"""Describe single operators by kind and sizes: rows with the columns `kind`, `desc` and `us`.

Times are between two CUDA events, with caches flushed before. The last words of `desc` are dtypes, and "causal".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.convolution import Convolution
from scenarios.seam.operations.moves import HostCopy, OneRankCollective
from scenarios.seam.operations.normalisations import NllLoss, RowNorm, Softmax
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.pointwise import Operand, Pointwise, contiguous
from scenarios.seam.operations.products import (
    Product,
    linear,
    linear_input_gradient,
    linear_weight_gradient,
)
from scenarios.seam.operations.reductions import Qr, Reduction
from scenarios.seam.operations.rows import Index, IndexPut
from scenarios.seam.operations.sorting import Scan, Sort
from sim.operators.measuring import EVENTS_S, GAP_S, NOTHING_S
from twinstep.published.operators.described import (
    Described,
    NotDescribedError,
    dtype_of,
    element_bytes,
    is_dtype,
    sizes,
    whole,
)

ELEMENTWISE = "elementwise"
_BACKWARD = "_backward"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Description:
    """A parsed `desc`: its `sizes`, then its `dtypes`; `kind` lacks a dtype at its end."""

    kind: str
    sizes: list[str]
    dtypes: list[str]
    is_causal: bool

    @property
    def dtype(self) -> str:
        return self.dtypes[0] if self.dtypes else "float32"


_Made = tuple[str, tuple[Operation, ...]]


def describe(cells: Mapping[str, str]) -> Described:
    """Describe a row with `kind` and `desc`.

    Raises:
        NotDescribedError: no law covers its kind, or its sizes are not those of its kind.
    """
    words = _words(cells["kind"], cells["desc"])
    make = _KINDS.get(words.kind)
    if make is None:
        raise NotDescribedError(f"kind '{cells['kind']}': no law of such rows")
    family, operations = make(words)
    beside_s = EVENTS_S + GAP_S * (len(operations) - 1)
    if all(isinstance(each, OneRankCollective) and each.in_place for each in operations):
        beside_s = NOTHING_S
    return Described(family=family, operations=operations, beside_s=beside_s, is_cold=True)


def _words(kind: str, desc: str) -> _Description:
    split = desc.split()
    is_causal = "causal" in split
    split = [word for word in split if word not in ("causal", "full")]
    name, _, end = kind.rpartition("_")
    dtypes = [dtype_of(end)] if name and is_dtype(end) else []
    return _Description(
        kind=name if dtypes else kind,
        sizes=[word for word in split if not is_dtype(word)],
        dtypes=[dtype_of(word) for word in split if is_dtype(word)] + dtypes,
        is_causal=is_causal,
    )


def _product(build: Callable[..., Product], words: _Description) -> _Made:
    rows, inner, columns = sizes(words.sizes, "batch in out")
    product = build(rows, inner, columns, words.dtype, element_bytes=element_bytes(words.dtype))
    return f"{words.kind} {words.dtype}", (product,)


def _interaction(words: _Description) -> _Made:
    batch, features, dim = sizes(words.sizes, "batch features dim")
    product = Product(
        batch=batch, rows=features, columns=features, inner=dim, dtype=words.dtype, right_is_transposed=True
    )
    return f"bmm {words.dtype}", (product,)


def _attention(words: _Description) -> _Made:
    batch, heads, length, head = sizes(words.sizes, "batch heads length head_dim")
    attention = Attention(
        batch=batch,
        heads=heads,
        key_heads=heads,
        queries=length,
        keys=length,
        head_size=head,
        dtype=words.dtype,
        is_causal=words.is_causal,
        is_backward=words.kind.endswith(_BACKWARD),
    )
    return f"{words.kind} {words.dtype}", (attention,)


def _convolution(makes: str, words: _Description) -> _Made:
    batch, channels, size, out, kernel, stride = sizes(words.sizes, "batch channels size out kernel stride")
    convolution = Convolution(
        batch=batch,
        in_channels=channels,
        out_channels=out,
        size=(size, size),
        out_size=(-(-size // stride),) * 2,
        kernel=(kernel, kernel),
        stride=(stride, stride),
        dtype=words.dtypes[0] if words.dtypes else "bfloat16",
        is_channels_last=True,
        makes=makes,  # type: ignore[arg-type]
    )
    return words.kind, (convolution,)


def _elements(words: _Description) -> int:
    if not words.sizes:
        raise NotDescribedError("desc has no number: expected the number of elements")
    return math.prod(whole(word, "desc") for word in words.sizes)


def _pointwise(name: str, inputs: int, words: _Description) -> _Made:
    return ELEMENTWISE, (contiguous(name, _elements(words), words.dtype, inputs=inputs),)


def _cast(words: _Description) -> _Made:
    source, target, *_ = *words.dtypes, "float32", "bfloat16"
    if len(words.dtypes) == 1:
        source, target = "float32", words.dtypes[0]
    elements = _elements(words)
    operands = [(Operand(dtype=dtype, elements=elements),) for dtype in (source, target)]
    return ELEMENTWISE, (Pointwise(name="_to_copy", elements=elements, inputs=operands[0], outputs=operands[1]),)


def _sum(words: _Description) -> _Made:
    (elements,) = sizes(words.sizes, "elements")  # with several sizes the row would have to state which are summed
    return words.kind, (Reduction(name=words.kind, dtype=words.dtype, outer=1, reduced=elements, inner=1),)


def _rows(words: _Description) -> tuple[int, int]:
    """Return the number of rows, and of their elements, the last size."""
    if len(words.sizes) < 2:
        raise NotDescribedError(f"desc '{' '.join(words.sizes)}': expected rows and their elements")
    *outer, dim = (whole(word, "desc") for word in words.sizes)
    return math.prod(outer), dim


def _norm(words: _Description) -> _Made:
    rows, dim = _rows(words)
    is_backward = words.kind.endswith(_BACKWARD)
    weights = 1 if words.kind.startswith("rms") else 2
    return words.kind, (RowNorm(rows=rows, dim=dim, dtype=words.dtype, backward=is_backward, weights=weights),)


def _softmax(words: _Description) -> _Made:
    rows, dim = _rows(words)
    is_backward, is_log = words.kind.endswith(_BACKWARD), words.kind.startswith("log")
    return words.kind, (Softmax(rows=rows, dim=dim, dtype=words.dtype, is_log=is_log, backward=is_backward),)


def _cross_entropy(words: _Description) -> _Made:
    rows, classes = sizes(words.sizes, "rows classes")
    is_backward = words.kind.endswith(_BACKWARD)
    softmax = Softmax(rows=rows, dim=classes, dtype=words.dtype, is_log=True, backward=is_backward)
    loss = NllLoss(rows=rows, classes=classes, dtype=words.dtype, backward=is_backward)
    return words.kind, (softmax, loss)


def _triangle(words: _Description) -> _Made:
    """Describe z[:, i, j] of [samples, features, features] below its diagonal; the third number is not needed."""
    samples, features, *_ = sizes(words.sizes, "batch features dim")
    pairs = features * (features - 1) // 2
    source = samples * features**2
    if words.kind.endswith(_BACKWARD):
        put = IndexPut(
            slices=samples,
            count=pairs,
            inner=1,
            dtype=words.dtype,
            target_elements=source,
            is_contiguous=False,
        )
        return "index backward", (put,)
    return "index", (Index(elements=samples * pairs, dtype=words.dtype, indices=2, source_elements=source),)


def _qr(words: _Description) -> _Made:
    rows, columns = sizes(words.sizes, "rows columns")
    return "qr", (Qr(rows=rows, columns=columns),)


def _host_copy(words: _Description) -> _Made:
    (size_bytes,) = sizes(words.sizes, "bytes")
    return "host copy", (
        HostCopy(size_bytes=size_bytes, to_gpu=words.kind.startswith("h2d"), pinned="pageable" not in words.kind),
    )


def _one_rank(in_place: bool, words: _Description) -> _Made:
    (size_bytes,) = sizes(words.sizes, "bytes")
    return "collective of one rank", (OneRankCollective(size_bytes=size_bytes, in_place=in_place),)


def _order(words: _Description) -> _Made:
    (elements,) = sizes(words.sizes, "elements")
    if words.kind == "cumsum":
        return "scan", (Scan(elements=elements),)
    return "sort", (Sort(elements=elements),)


_TWO_INPUTS = ("add", "add_", "sub", "mul", "mul_", "div", "pow", "maximum", "minimum", "lerp_")
_ONE_INPUT = (
    *("relu", "relu_", "gelu", "tanh", "sigmoid", "silu", "exp", "log", "sqrt", "rsqrt", "neg", "abs", "clamp"),
    *("clamp_min", "copy_"),
)
_GRADIENTS = ("relu_backward", "threshold_backward", "gelu_backward", "silu_backward", "tanh_backward")
_FILLS = ("fill_", "zero_", "zeros", "ones")

_KINDS: dict[str, Callable[[_Description], _Made]] = {
    "linear": partial(_product, linear),
    "grad_input": partial(_product, linear_input_gradient),
    "grad_weight": partial(_product, linear_weight_gradient),
    "bmm_interaction": _interaction,
    **dict.fromkeys(("sdpa", "sdpa_backward"), _attention),
    "conv2d": partial(_convolution, "output"),
    "conv2d_grad_input": partial(_convolution, "input_gradient"),
    "conv2d_grad_weight": partial(_convolution, "weight_gradient"),
    **{name: partial(_pointwise, name, 2) for name in (*_TWO_INPUTS, *_GRADIENTS)},
    **{name: partial(_pointwise, name, 1) for name in _ONE_INPUT},
    **{name: partial(_pointwise, "fill_", 0) for name in _FILLS},
    "copy": partial(_pointwise, "copy_", 1),
    "cast": _cast,
    **dict.fromkeys(("sum", "mean", "amax", "max"), _sum),
    **dict.fromkeys(("layer_norm", "rms_norm", "layer_norm_backward", "rms_norm_backward"), _norm),
    **dict.fromkeys(("softmax", "log_softmax", "softmax_backward", "log_softmax_backward"), _softmax),
    **dict.fromkeys(("cross_entropy", "cross_entropy_backward"), _cross_entropy),
    **dict.fromkeys(("triu_index", "triu_index_backward"), _triangle),
    "qr": _qr,
    **dict.fromkeys(("h2d", "d2h", "h2d_pageable", "d2h_pageable"), _host_copy),
    **dict.fromkeys(("nccl_all_reduce_1rank", "nccl_broadcast_1rank"), partial(_one_rank, True)),
    **{f"nccl_{name}_1rank": partial(_one_rank, False) for name in ("all_to_all", "all_gather", "reduce_scatter")},
    **dict.fromkeys(("sort", "argsort", "cumsum"), _order),
}
