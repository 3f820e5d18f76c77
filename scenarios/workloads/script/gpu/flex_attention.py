"""FlexAttention in compiled code: one kernel a pass, of the blocks that its mask leaves.

Outside torch.compile torch runs it by its operators, which write all scores, and so does a simulated GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from scenarios.seam.kernel import Kernel, attention
from scenarios.seam.operations.attention import Attention
from scenarios.workloads.script.gpu.shadows import Shadows
from scenarios.workloads.script.host.compiled import Call

_aten = torch.ops.aten
_NAMES = ("flex_attention", "flex_attention_backward")
# Places in the mask that torch hands on: how many blocks of keys each block of queries sees, in part and in full, and
# how many queries and keys a block has.
_PARTLY, _FULLY, _QUERIES, _KEYS = 2, 4, -3, -2


class FlexAttention:
    """FlexAttention as compilers make it, where `is_compiled()`; `launched(kernel, call)` is told of its kernels."""

    def __init__(
        self, shadows: Shadows, launched: Callable[[Kernel, Call], None], is_compiled: Callable[[], bool]
    ) -> None:
        self._shadows, self._launched, self._is_compiled = shadows, launched, is_compiled

    def is_fused(self, func: Any) -> bool:
        """Return whether an operator is FlexAttention's and runs as one kernel."""
        return func.name() in _NAMES and not self._shadows.has_all and self._is_compiled()

    def call(self, func: Any, args: tuple[Any, ...]) -> Any:
        """Return what the operator gives, without values."""
        query, key, value = args[:3]
        is_backward = func.name() == _NAMES[1]
        mask, made = args[9] if is_backward else args[4], list[Tensor]()
        if is_backward:
            made = [torch.empty_like(each) for each in (query, key, value)]
            others = tuple(None if each is None else torch.empty_like(each) for each in args[12])
            ran = _aten._scaled_dot_product_flash_attention_for_cpu_backward.default
            given: tuple[Any, ...] = (args[5], query, key, value, args[3], args[4], 0.0, False)
            result: Any = (*made, others)
        else:
            rows = query.new_empty(query.shape[:-1], dtype=torch.float32)
            made = [query.new_empty((*query.shape[:-1], value.shape[-1])), rows]
            ran, given = _aten._scaled_dot_product_flash_attention_for_cpu.default, (query, key, value, 0.0, False)
            result = (*made, torch.empty_like(rows))
        kernel = self._kernel(query, key, mask, is_backward=is_backward)
        self._launched(kernel, (ran, given, {}, tuple(made)))
        return result

    def _kernel(self, query: Tensor, key: Tensor, mask: tuple[Any, ...], *, is_backward: bool) -> Kernel:
        """Price an attention of all keys, whose time is that of as many keys as are seen in the mean."""
        batch, heads, queries, dim = query.shape
        dtype = str(query.dtype).removeprefix("torch.")
        share, keys = self._seen(mask, queries, key.shape[2]), key.shape[2]
        whole, seen = (
            attention(batch, heads, queries=queries, keys=each, dim=dim, dtype=dtype, backward=is_backward)
            for each in (keys, max(1, round(share * keys)))
        )
        [operation] = seen.operations
        assert isinstance(operation, Attention), "that is what an attention is"
        return replace(whole, operations=(replace(operation, key_heads=key.shape[1]),))

    def _seen(self, mask: tuple[Any, ...], queries: int, keys: int) -> float:
        """Return the share of pairs of queries and keys in blocks that are computed, 1 where it is not known."""
        with self._shadows.suspended():  # none of the script's own work
            partly, fully = (None if each is None else self._shadows.of(each) for each in (mask[_PARTLY], mask[_FULLY]))
            if partly is None or (fully is None and mask[_FULLY] is not None):
                return 1.0
            blocks = float(partly.double().mean() + (0.0 if fully is None else fully.double().mean()))
        pairs: int = -(-queries // mask[_QUERIES]) * mask[_QUERIES] * mask[_KEYS]
        return min(1.0, blocks * pairs / (queries * keys))
