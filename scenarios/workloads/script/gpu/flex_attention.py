"""FlexAttention in compiled code: one kernel per pass, over the blocks that its mask leaves.

Outside torch.compile torch runs its operators, which write all scores, and so does a simulated GPU.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as torchs

from scenarios.seam.kernel import Kernel, attention
from scenarios.seam.operations.attention import Attention
from scenarios.workloads.script.gpu.known_values import Shadows
from scenarios.workloads.script.host.compiled import Call

_aten = torch.ops.aten
_NAMES = ("flex_attention", "flex_attention_backward")
# Masks up to this many pairs of queries and keys are evaluated in full; larger masks at some pairs of each block, its
# corners and points between: _EDGE queries times _EDGE keys.
_MOST_PAIRS, _EDGE = 1 << 24, 4
# Indices into torch's mask tuple: how many blocks of keys each block of queries sees, in part and in full, and how many
# queries and keys a block has.
_PARTLY, _FULLY, _QUERIES, _KEYS = 2, 4, -3, -2
# The first parameters of torch's create_block_mask, in order.
_MASK_OPTIONS = ("mask_mod", "B", "H", "Q_LEN", "KV_LEN", "device", "BLOCK_SIZE", "_compile")


class FlexAttention:
    """FlexAttention as compilers run it, where `is_compiled()`; `launched(kernel, call)` is called for its kernels."""

    def __init__(
        self, shadows: Shadows, launched: Callable[[Kernel, Call], None], is_compiled: Callable[[], bool]
    ) -> None:
        self._shadows, self._launched, self._is_compiled = shadows, launched, is_compiled
        self._create: Any = torchs.create_block_mask
        self._signature = inspect.signature(self._create)

    def install(self) -> None:
        """Replace torch's create_block_mask, and silence the warning about uncompiled code within compiled code."""
        torchs.create_block_mask = self.block_mask
        warn = torchs._warn_once
        torchs._warn_once = lambda *args, **more: None if self._is_compiled() else warn(*args, **more)

    def block_mask(self, *args: Any, **named: Any) -> Any:
        """Create a block mask as torch's `create_block_mask` does; a large one in compiled code by sampling pairs.

        Compiled code never has all pairs in memory. Options after `_compile` vary between releases of torch, and are
        left to torch's own function.
        """
        bound = self._signature.bind(*args, **named)
        has_others = bool(bound.arguments.keys() - set(_MASK_OPTIONS))
        bound.apply_defaults()
        mask_mod, batch, heads, query_length, key_length, device, block_size, is_asked = (
            bound.arguments[name] for name in _MASK_OPTIONS
        )
        is_compiled = (is_asked or self._is_compiled()) and not self._shadows.has_all
        is_small = (batch or 1) * (heads or 1) * query_length * key_length <= _MOST_PAIRS
        if has_others or not is_compiled or is_small:
            return self._create(*args, **named)
        if device is None:
            device = torch.accelerator.current_accelerator() or "cpu"
        queries, keys = sizes = (block_size, block_size) if isinstance(block_size, int) else tuple(block_size)
        pairs = torchs._vmap_for_bhqkv(mask_mod, prefix=())(
            torch.arange(batch or 1, device=device),
            torch.arange(heads or 1, device=device),
            _places(query_length, queries).to(device),
            _places(key_length, keys).to(device),
        )
        blocks = pairs.unflatten(3, (-1, _EDGE)).unflatten(2, (-1, _EDGE))
        is_any, is_all = blocks.any(5).any(3), blocks.all(5).all(3)
        partly = (is_any & ~is_all).to(torch.int8)
        return torchs._create_sparse_block_from_block_mask(
            (partly, is_all.to(torch.int8)), mask_mod, (query_length, key_length), *sizes
        )

    def is_fused(self, func: Any) -> bool:
        """Return whether an operator is FlexAttention's and runs as one kernel."""
        return func.name() in _NAMES and not self._shadows.has_all and self._is_compiled()

    def call(self, func: Any, args: tuple[Any, ...]) -> Any:
        """Launch the operator's kernel, and return its result without values."""
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
        """Return the kernel of full attention, with an operation of as many keys as queries see on average."""
        batch, heads, queries, dim = query.shape
        dtype = str(query.dtype).removeprefix("torch.")
        share, keys = self._computed_share(mask, queries, key.shape[2]), key.shape[2]
        whole, seen = (
            attention(batch, heads, queries=queries, keys=each, dim=dim, dtype=dtype, backward=is_backward)
            for each in (keys, max(1, round(share * keys)))
        )
        [operation] = seen.operations
        assert isinstance(operation, Attention), "that is what an attention is"
        return replace(whole, operations=(replace(operation, key_heads=key.shape[1]),))

    def _computed_share(self, mask: tuple[Any, ...], queries: int, keys: int) -> float:
        """Return the share of query-key pairs in blocks that are computed; 1 if the mask is unknown."""
        with self._shadows.suspend():  # these operators are not the script's
            partly, fully = (None if each is None else self._shadows.of(each) for each in (mask[_PARTLY], mask[_FULLY]))
            if partly is None or (fully is None and mask[_FULLY] is not None):
                return 1.0
            blocks = float(partly.double().mean() + (0.0 if fully is None else fully.double().mean()))
        pairs: int = -(-queries // mask[_QUERIES]) * mask[_QUERIES] * mask[_KEYS]
        return min(1.0, blocks * pairs / (queries * keys))


def _places(length: int, block: int) -> Tensor:
    """Return sample positions of each block: its first, its last, and some in between."""
    starts = torch.arange(0, length, block, device="cpu")[:, None]
    inside = torch.linspace(0, block - 1, _EDGE, device="cpu").round().long()
    return (starts + inside).clamp(max=length - 1).flatten()
