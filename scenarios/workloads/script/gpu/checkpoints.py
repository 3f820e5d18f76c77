"""Selective checkpoints of a script on a simulated GPU: policies see a GPU's operators."""

# mypy: disable-error-code="assignment, no-untyped-call"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import checkpoint

_aten = torch.ops.aten
# The attention operator that runs in place of a GPU's, as it can compute values on CPUs.
_STANDS = _aten._scaled_dot_product_flash_attention_for_cpu.default
_FLASH = _aten._scaled_dot_product_flash_attention.default
_EFFICIENT = _aten._scaled_dot_product_efficient_attention.default
_OF_FLASH = frozenset({torch.float16, torch.bfloat16})


def name_operators_of_gpus() -> None:
    """Make selective checkpoints' policies and lists see a GPU's attention operators, not the one that runs here."""
    usual = checkpoint.create_selective_checkpoint_contexts

    def make(policy: Any, *args: Any, **more: Any) -> Any:
        return usual(_translate_policy(policy) if callable(policy) else _translate_list(policy), *args, **more)

    checkpoint.create_selective_checkpoint_contexts = make


def _translate_policy(policy: Callable[..., Any]) -> Callable[..., Any]:
    def translate(context: Any, operator: Any, *args: Any, **more: Any) -> Any:
        return policy(context, _of_gpu(args, more) if operator is _STANDS else operator, *args, **more)

    return translate


def _of_gpu(args: tuple[Any, ...], more: dict[str, Any]) -> Any:
    """Return the attention operator that a GPU runs: FlashAttention requires 16 bit and no mask."""
    return _FLASH if args[0].dtype in _OF_FLASH and more.get("attn_mask") is None else _EFFICIENT


def _translate_list(operators: list[Any]) -> list[Any]:
    return [*operators, *([_STANDS] if {_FLASH, _EFFICIENT} & {*operators} else [])]
