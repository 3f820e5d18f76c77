"""Operators that normalise rows or channels as pure data: softmax, layer and batch norm, and the NLL loss."""

from __future__ import annotations

from dataclasses import dataclass

from scenarios.seam.operations.operation import DescribedOperator, Words, back


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax(DescribedOperator):
    """A `_softmax` or `_log_softmax` of [rows, dim] over dim, or its backward.

    `is_staged`: rows of less than 48 KB stay in shared memory and a block has up to 1,024 threads, as in current torch;
    in torch 2.0 it had 512 and read each row three times.
    """

    rows: int
    dim: int
    dtype: str
    is_log: bool = False
    backward: bool = False
    is_staged: bool = True

    def words(self) -> Words:
        name = "_log_softmax" if self.is_log else "_softmax"
        return f"{name}_backward_data" if self.backward else name, f"{self.rows}x{self.dim}, {self.dtype}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowNorm(DescribedOperator):
    """A `native_layer_norm` or `_fused_rms_norm` of [rows, dim], or its backward.

    `weights`: parameters whose gradients the backward pass computes too: 2 with a bias, 1 without, 0 for none.
    """

    rows: int
    dim: int
    dtype: str
    backward: bool = False
    weights: int = 2

    def words(self) -> Words:
        return f"row norm{' backward' if self.backward else ''}", f"{self.rows}x{self.dim}, {self.dtype}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNorm(DescribedOperator):
    """A batch norm of `elements` elements in `channels` channels, or its backward; `training` computes statistics."""

    elements: int
    channels: int
    dtype: str
    backward: bool = False
    training: bool = True

    def words(self) -> Words:
        shapes = f"{self.elements} in {self.channels} channels, {self.dtype}"
        return back("native_batch_norm", self.backward), shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class NllLoss(DescribedOperator):
    """An `nll_loss_forward` of [rows, classes], reduced to a number, or its backward: zeros but one element a row."""

    rows: int
    classes: int
    dtype: str
    backward: bool = False

    def words(self) -> Words:
        return f"nll_loss_{'backward' if self.backward else 'forward'}", f"{self.rows}x{self.classes}, {self.dtype}"
