"""Describe operators that others have measured on GPUs which the row names.

Rows have one of two forms: columns `op`, `dtype`, `shape` and `value_us` (products, attention, recurrent layers,
fbgemm's embeddings), with warm caches in graphs or trains of kernels; and `op`, `B`, `M`, `N`, `K`, `H` and `ms`,
NeuSight's float32 operators of torch 2.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.normalisations import RowNorm, Softmax
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.pointwise import Pointwise, contiguous
from scenarios.seam.operations.products import GATES, Product, Recurrence, linear
from sim.operators.measuring import NEUSIGHT_S
from twinstep.published.operators import embeddings
from twinstep.published.operators.described import Described, NotDescribedError, dtype_of, element_bytes, whole
from twinstep.published.operators.operators import ELEMENTWISE

# Operators of two tensors, of a tensor and a number (suffix "u"), and of one tensor.
_TWO_INPUTS = ("add", "sub", "mul", "div", "pow")
_WITH_NUMBER = {f"{name}u": name for name in _TWO_INPUTS}
_ONE_INPUT = (*_WITH_NUMBER, "relu", "gelu", "tanh", "sigmoid", "silu", "exp", "sqrt")


def describe(cells: Mapping[str, str]) -> Described:
    """Describe a row with `op`, `dtype` and `shape`.

    Raises:
        NotDescribedError: no law covers its operator, or the row lacks sizes.
    """
    op = cells["op"].lower()
    if "tbe" in op or "embedding" in op:
        return embeddings.describe_named(cells)
    if "attention" in op:
        return _attention(op, cells)
    if op.startswith("linear") or "gemm" in op:
        return _linear(cells)
    if op.startswith(tuple(GATES)):
        return _recurrent(op, cells)
    if op in _TWO_INPUTS or op in _ONE_INPUT:
        (elements,) = _read_numbers(_shape(cells["shape"]), "n", cells["shape"])
        call = _elementwise(op, elements, dtype_of(cells["dtype"]))
        return Described(family=ELEMENTWISE, operations=(call,), beside_s=0.0)
    raise NotDescribedError(f"op '{cells['op']}': no law of such rows")


def _elementwise(op: str, elements: int, dtype: str) -> Pointwise:
    if op in _TWO_INPUTS:
        return contiguous(op, elements, dtype, inputs=2)
    return contiguous(_WITH_NUMBER.get(op, op), elements, dtype)


def _shape(text: str) -> dict[str, int]:
    """Return the numbers after the names in a shape such as "B16 S128 heads4 dim256"."""
    return {name.lower(): int(count) for name, count in re.findall(r"([A-Za-z_]+) ?=? ?(\d+)", text)}


def _read_numbers(shape: Mapping[str, int], names: str, text: str) -> list[int]:
    if missing := [name for name in names.split() if not shape.get(name)]:
        raise NotDescribedError(
            f"shape '{text}': no {' and no '.join(missing)}; expected {names}, each before its number"
        )
    return [shape[name] for name in names.split()]


def _linear(cells: Mapping[str, str]) -> Described:
    rows, columns, inner = _read_numbers(_shape(cells["shape"]), "m n k", cells["shape"])
    dtype = dtype_of(cells["dtype"])
    product = linear(rows, inner, columns, dtype, element_bytes=element_bytes(dtype))
    return Described(family=f"linear {dtype}", operations=(product,), beside_s=0.0)


def _recurrent(op: str, cells: Mapping[str, str]) -> Described:
    """Describe layers of "lstm", "gru" or "rnn" without their inputs' products, which take 0.3 % of such rows."""
    steps, batch, hidden, layers = _read_numbers(_shape(cells["shape"]), "t b h l", cells["shape"])
    cell = next(each for each in GATES if op.startswith(each))
    layer = Recurrence(
        cell=cell,  # type: ignore[arg-type]
        steps=steps,
        batch=batch,
        hidden=hidden,
        state=hidden,
        dtype=dtype_of(cells["dtype"]),
        is_packed="small" not in op,  # packed sequences have the standard kernels
        is_backward="backward" in op,
    )
    family = op.removeprefix(cell).replace(" backward", "").strip(", ")
    direction = " backward" if layer.is_backward else ""
    return Described(family=f"recurrent{direction}, {family}", operations=(layer,) * layers, beside_s=0.0)


def _attention(op: str, cells: Mapping[str, str]) -> Described:
    shape, dtype = _shape(cells["shape"]), dtype_of(cells["dtype"])
    batch, length, heads, head = _read_numbers(shape, "b s heads dim", cells["shape"])
    is_backward, is_hstu = "backward" in op, "hstu" in op
    attention = Attention(
        batch=batch,
        heads=heads,
        key_heads=shape.get("kv", heads),
        queries=length,
        keys=length,
        head_size=head,
        dtype=dtype,
        is_causal="causal" in op,
        window=shape.get("window") or None,
        is_backward=is_backward,
        is_serving=not is_backward and ("prefill" in op or "encoder" in op),
    )
    family = next((name for name in ("prefill", "encoder") if name in op), "attention")
    family = "HSTU attention" if is_hstu else family
    return Described(
        family=f"{family} backward" if is_backward else family,
        operations=(attention,),
        beside_s=0.0,
    )


def describe_float32(cells: Mapping[str, str]) -> Described:
    """Describe a row with `op`, `B`, `M`, `N`, `K` and `H`.

    Raises:
        NotDescribedError: no law covers its operator, or a size is missing.
    """
    op = cells["op"].lower()
    family, operation = _float32(op, cells)
    return Described(family=family, operations=(operation,), beside_s=NEUSIGHT_S)


def _float32(op: str, cells: Mapping[str, str]) -> tuple[str, Operation]:
    if op in ("linear", "bmm"):
        batch, rows, columns, inner = (whole(cells[name], name) for name in "BMNK")
        if op == "linear":
            return "linear float32", linear(batch * rows, inner, columns, "float32", element_bytes=4)
        return "bmm float32", Product(batch=batch, rows=rows, columns=columns, inner=inner, dtype="float32")
    rows, dim = whole(cells["B"], "B"), whole(cells["H"], "H")
    if op == "softmax":
        return op, Softmax(rows=rows, dim=dim, dtype="float32", is_staged=False)
    if op in ("ln", "layer_norm"):
        return "layer_norm", RowNorm(rows=rows, dim=dim, dtype="float32")
    if op in _TWO_INPUTS or op in _ONE_INPUT:
        return ELEMENTWISE, _elementwise(op, rows * dim, "float32")
    raise NotDescribedError(f"op '{cells['op']}': no law of such rows")
