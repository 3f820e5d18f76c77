"""Recurrent layers and cells as GPUs run them: nn.LSTM, nn.GRU and nn.RNN as one call of cuDNN each, and what follows
the products of nn.LSTMCell and nn.GRUCell as one kernel.

On other devices torch runs them as many operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey

from scenarios.modules.describing.recurrent import CELLS

_aten = torch.ops.aten
# torch's layers by the number of their mode (aten/native/cudnn/RNN.cpp), and that of the one with states of cells.
_NAMES, _LSTM = ("rnn_relu", "rnn_tanh", "lstm", "gru"), 2
# States' worth of numbers that a cell keeps at each step for its backward pass: its gates, and what they make.
_KEPT = {"rnn": 1, "gru": 5, "lstm": 6}


def _layer(mode: int, input: Tensor, *given: Any, is_packed: bool) -> tuple[Tensor, ...]:
    """Return output and last states of torch's layer of a mode, by one call of `_cudnn_rnn`."""
    sizes, given = (given[0].tolist(), given[1:]) if is_packed else ([], given)
    states, weights, has_biases, layers, dropout, is_training, is_bidirectional, *is_batch_first = given
    state, cells = states if mode == _LSTM else (states, None)
    hidden = (state if cells is None else cells).shape[-1]
    projected = state.shape[-1] if state.shape[-1] != hidden else 0
    of_layer = 2 + 2 * has_biases + bool(projected)
    extents = mode, hidden, projected, layers, is_packed or is_batch_first[0], dropout, is_training, is_bidirectional
    found: tuple[Tensor, ...] = _aten._cudnn_rnn(input, weights, of_layer, None, state, cells, *extents, sizes, None)
    return found[: 3 if mode == _LSTM else 2]


def _shapes(input: Tensor, _weights: Any, _of_layer: int, _buffer: Any, state: Tensor, *given: Any) -> Any:
    """Return results of `_cudnn_rnn` without values; the fourth is what the backward pass needs."""
    cells, mode, hidden, _, layers, _, _, is_training, is_bidirectional, *_ = given
    directions = 1 + is_bidirectional
    kept = input[..., 0].numel() * hidden * layers * directions * _KEPT[CELLS[mode]] * input.element_size()
    output = input.new_empty(*input.shape[:-1], directions * state.shape[-1])
    last = torch.empty_like(state), state.new_empty(0) if cells is None else torch.empty_like(cells)
    return output, *last, input.new_empty(kept if is_training else 0, dtype=torch.uint8), input.new_empty(0)


def _gradient_shapes(input: Tensor, weights: Any, _of_layer: int, _buffer: Any, *given: Any) -> Any:
    """Return results of `_cudnn_rnn_backward` without values; None for those that its mask leaves out."""
    (state, cells), mask = given[:2], given[-1]
    made = [
        torch.empty_like(each) if is_made and each is not None else None
        for each, is_made in zip((input, state, cells), mask, strict=False)
    ]
    return *made, [torch.empty_like(each) for each in weights] if mask[-1] else []


def _compute(input: Tensor, weights: Sequence[Tensor], of_layer: int, _buffer: Any, *given: Any) -> Any:
    """Return results of `_cudnn_rnn` on the CPU, without dropout."""
    state, cells, mode, _, projected, layers, is_batch_first, _, is_training, is_bidirectional, sizes, _ = given
    states = state if cells is None else [state, cells]
    extents = of_layer - bool(projected) == 4, layers, 0.0, is_training, is_bidirectional
    run = getattr(torch, _NAMES[mode])
    if sizes:
        output, *last = run(input, torch.tensor(sizes), states, weights, *extents)
    else:
        output, *last = run(input, states, weights, *extents, is_batch_first)
    *_, last_cells, reserve, buffer = _shapes(input, weights, of_layer, None, *given)
    return output, last[0], last_cells if cells is None else last[1], reserve, buffer


def _compute_gradients(input: Tensor, weights: Sequence[Tensor], of_layer: int, _buffer: Any, *given: Any) -> Any:
    """Return results of `_cudnn_rnn_backward` on the CPU, by the forward pass once more."""
    (state, cells, _), gradients, extents, mask = given[:3], given[3:6], given[6:-2], given[-1]
    leaves = [None if each is None else each.detach().requires_grad_() for each in (input, state, cells, *weights)]
    own, first, first_cells, *own_weights = leaves
    # This runs below autograd, whose key is excluded there.
    with torch._C._SetExcludeDispatchKeyGuard(DispatchKey.AutogradFunctionality, False), torch.enable_grad():
        made = _compute(own, own_weights, of_layer, None, first, first_cells, *extents)  # type: ignore[arg-type]
        known = [(one, by) for one, by in zip(made, gradients, strict=False) if by is not None]
        wanted = [each for each in leaves if each is not None]
        found = iter(torch.autograd.grad([one for one, _ in known], wanted, [by for _, by in known]))
    made_of = [None if each is None else next(found) for each in leaves]
    by_mask = (each if is_made else None for each, is_made in zip(made_of[:3], mask, strict=False))
    return *by_mask, made_of[3:] if mask[-1] else []


def _lstm_cell(input: Tensor, state: Sequence[Tensor], of_input: Tensor, of_state: Tensor, *biases: Any) -> Any:
    gates = input.matmul(of_input.t()), state[0].matmul(of_state.t())
    return _aten._thnn_fused_lstm_cell(*gates, state[1], *biases)[:2]


def _gru_cell(input: Tensor, state: Tensor, of_input: Tensor, of_state: Tensor, *biases: Any) -> Any:
    gates = input.matmul(of_input.t()), state.matmul(of_state.t())
    return _aten._thnn_fused_gru_cell(*gates, state, *biases)[0]


def _lstm_shapes(gates: Tensor, _state_gates: Any, cells: Tensor, *_: Any) -> Any:
    """Return results of `_thnn_fused_lstm_cell` without values; torch's own function requires biases."""
    return gates.new_empty(cells.shape), torch.empty_like(cells), torch.empty_like(gates)


def _gru_shapes(_input_gates: Any, _state_gates: Any, state: Tensor, *_: Any) -> Any:
    """Return results of `_thnn_fused_gru_cell` without values: the state, and what the backward pass needs."""
    return torch.empty_like(state), state.new_empty(state.shape[0], 5 * state.shape[1])


def _gru_gradient_shapes(gradient: Tensor, kept: Tensor, has_bias: bool) -> Any:
    gates = [kept.new_empty(gradient.shape[0], 3 * gradient.shape[1]) for _ in range(2)]
    biases = [kept.new_empty(3 * gradient.shape[1]) if has_bias else None for _ in range(2)]
    return *gates, torch.empty_like(gradient), *biases


def _compute_lstm_cell(input_gates: Tensor, state_gates: Tensor, cells: Tensor, *biases: Any) -> Any:
    """Return results of `_thnn_fused_lstm_cell` on the CPU; the third has the gates, which the backward pass needs."""
    gates = sum((each for each in biases if each is not None), input_gates + state_gates)
    admit, forget, made, shown = gates.chunk(4, 1)
    admit, forget, made, shown = admit.sigmoid(), forget.sigmoid(), made.tanh(), shown.sigmoid()
    last = forget * cells + admit * made
    return shown * last.tanh(), last, torch.cat([admit, forget, made, shown], 1)


def _compute_lstm_gradients(
    gradient: Tensor | None, of_last: Tensor | None, cells: Tensor, last: Tensor, kept: Tensor, has_bias: bool
) -> Any:
    """Return results of `_thnn_fused_lstm_cell_backward_impl` on the CPU."""
    admit, forget, made, shown = kept.chunk(4, 1)
    given, of_cells = (torch.zeros_like(cells) if each is None else each for each in (gradient, of_last))
    of_cells = of_cells + given * shown * (1 - last.tanh() ** 2)
    gates = torch.cat(
        [
            of_cells * made * admit * (1 - admit),
            of_cells * cells * forget * (1 - forget),
            of_cells * admit * (1 - made**2),
            given * last.tanh() * shown * (1 - shown),
        ],
        1,
    )
    return gates, of_cells * forget, gates.sum(0) if has_bias else None


def _compute_gru_cell(input_gates: Tensor, state_gates: Tensor, state: Tensor, *biases: Any) -> Any:
    """Return results of `_thnn_fused_gru_cell` on the CPU."""
    of_input, of_state = (
        gates if bias is None else gates + bias
        for gates, bias in zip((input_gates, state_gates), biases or (None, None), strict=True)
    )
    (reset, update, new), (own_reset, own_update, own_new) = of_input.chunk(3, 1), of_state.chunk(3, 1)
    reset, update = (reset + own_reset).sigmoid(), (update + own_update).sigmoid()
    new = (new + reset * own_new).tanh()
    return new + update * (state - new), torch.cat([reset, update, new, state, own_new], 1)


def _compute_gru_gradients(gradient: Tensor, kept: Tensor, has_bias: bool) -> Any:
    """Return results of `_thnn_fused_gru_cell_backward` on the CPU."""
    reset, update, new, state, own_new = kept.chunk(5, 1)
    of_new = gradient * (1 - update) * (1 - new**2)
    of_reset = of_new * own_new * reset * (1 - reset)
    of_update = gradient * (state - new) * update * (1 - update)
    gates = [torch.cat([of_reset, of_update, each], 1) for each in (of_new, of_new * reset)]
    return *gates, gradient * update, *(each.sum(0) if has_bias else None for each in gates)


# Functions of GPUs in place of torch's composite operators, results without values, and results of values.
LAYERS: dict[Any, Callable[..., Any]] = {
    getattr(getattr(_aten, name), overload): partial(_layer, mode, is_packed=overload == "data")
    for mode, name in enumerate(_NAMES)
    for overload in ("input", "data")
} | {_aten.lstm_cell.default: _lstm_cell, _aten.gru_cell.default: _gru_cell}
SHAPES: dict[str, Callable[..., Any]] = {
    "_cudnn_rnn": _shapes,
    "_cudnn_rnn_backward": _gradient_shapes,
    "_thnn_fused_lstm_cell": _lstm_shapes,
    "_thnn_fused_gru_cell": _gru_shapes,
    "_thnn_fused_gru_cell_backward": _gru_gradient_shapes,
}
ON_CPU: dict[str, Callable[..., Any]] = {
    "_cudnn_rnn": _compute,
    "_cudnn_rnn_backward": _compute_gradients,
    "_thnn_fused_lstm_cell": _compute_lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": _compute_lstm_gradients,
    "_thnn_fused_gru_cell": _compute_gru_cell,
    "_thnn_fused_gru_cell_backward": _compute_gru_gradients,
}
