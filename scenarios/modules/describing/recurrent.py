"""Describes cuDNN's recurrent layers (products of all inputs, and steps one after the other), and torch's cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

from scenarios.modules.describing.call import Operations, OperatorCall
from scenarios.seam.arguments import dtype_name
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.pointwise import contiguous, stream_call
from scenarios.seam.operations.products import (
    GATES,
    Product,
    Recurrence,
    linear,
    linear_input_gradient,
    linear_weight_gradient,
)
from scenarios.seam.operations.reductions import Reduction

# By torch's number of a mode (aten/native/cudnn/RNN.cpp).
CELLS = ("rnn", "rnn", "lstm", "gru")


class _Layer(NamedTuple):
    """A layer in one direction: the sizes of its products, over all steps."""

    layer: int
    direction: int
    rows: int
    inputs: int
    gates: int
    steps: Recurrence


def forward(call: OperatorCall) -> Operations:
    """Return what `_cudnn_rnn` runs; layers and directions do not overlap."""
    found: list[Operation] = []
    for each in _layers(call, is_backward=False):
        found += _dropouts(call, each, "native_dropout")
        found += [_linear(call, linear, each.rows, each.inputs, each.gates), each.steps]
        if call["proj_size"]:
            found.append(_linear(call, linear, each.rows, each.steps.hidden, each.steps.state))
    return tuple(found)


def backward(call: OperatorCall) -> Operations:
    """Return what `_cudnn_rnn_backward` runs for the gradients in its output mask."""
    found: list[Operation] = []
    of_input, _, _, of_weights = call["output_mask"]
    for each in reversed([*_layers(call, is_backward=True)]):
        found.append(each.steps)
        if each.layer or of_input:
            found.append(_linear(call, linear_input_gradient, each.rows, each.inputs, each.gates))
        inners = (each.inputs, each.steps.state) if of_weights else ()
        found += (_linear(call, linear_weight_gradient, each.rows, inner, each.gates) for inner in inners)
        found += _dropouts(call, each, "native_dropout_backward")
    return tuple(found)


def cell(call: OperatorCall) -> Operations:
    """Return the kernel of a cell's gates, and the sums of its biases' gradients."""
    read, written = (sum(each.numel() for each in some) for some in (call.read, call.results))
    dtype = dtype_name(call.results[0])
    found: list[Operation] = [stream_call(call.name, dtype, read=read, written=written)]
    if call.get("has_bias"):
        rows, columns = call.results[0].shape
        total = Reduction(name="sum", dtype=dtype, outer=1, reduced=rows, inner=columns)
        found += [total] * (2 if "gru" in call.name else 1)
    return tuple(found)


def _layers(call: OperatorCall, *, is_backward: bool) -> Iterator[_Layer]:
    given, hidden = call["input"], int(call["hidden_size"])
    state, directions = int(call["proj_size"]) or hidden, 1 + bool(call["bidirectional"])
    kind, sizes = CELLS[call["mode"]], call["batch_sizes"]
    steps, rows = (len(sizes), given.shape[0]) if sizes else (_steps(call), given.shape[0] * given.shape[1])
    recurrence = Recurrence(
        cell=kind,  # type: ignore[arg-type]
        steps=steps,
        batch=round(rows / steps),
        hidden=hidden,
        state=state,
        dtype=call.dtype,
        is_packed=bool(sizes),
        is_backward=is_backward,
    )
    for layer, direction in product(range(call["num_layers"]), range(directions)):
        inputs = directions * state if layer else given.shape[-1]
        yield _Layer(layer, direction, rows, inputs, GATES[kind] * hidden, recurrence)


def _steps(call: OperatorCall) -> int:
    return int(call["input"].shape[1 if call["batch_first"] else 0])


def _linear(call: OperatorCall, make: Callable[..., Product], rows: int, inner: int, columns: int) -> Product:
    return make(rows, inner, columns, call.dtype, element_bytes=call["input"].element_size())


def _dropouts(call: OperatorCall, layer: _Layer, name: str) -> Iterator[Operation]:
    """Yield the dropout of a layer's input, which both directions share."""
    if layer.layer and not layer.direction and call["train"] and call["dropout"]:
        yield contiguous(name, layer.rows * layer.inputs, dtype_name(call["input"]))
