"""Counts of values that are not known, such as how many tokens a router sends to each expert."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_aten = torch.ops.aten
SENTENCE = "how many of unknown values (such as a router's experts) are in each bin is taken to be even"
_BLOCKS = "fbgemm::block_bucketize_sparse_features"


def even_bags(
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    made: Sequence[Tensor],
    known: Callable[[Tensor], Tensor | None],
) -> tuple[Tensor, ...] | None:
    """Return what fbgemm makes of bags whose ids it gives to the ranks that have their rows: of `known` lengths each
    rank gets as many ids of a bag as the others, ranks in turn one more; the ids stay unknown.

    None: the operator is another one, or the lengths are not known.
    """
    if func._schema.name != _BLOCKS or not made:
        return None
    given = dict(zip((each.name for each in func._schema.arguments), args, strict=False)) | kwargs
    lengths, ranks = known(given["lengths"]), given["my_size"]
    if lengths is None:
        return None
    turns = (torch.arange(ranks).view(-1, 1) - torch.arange(lengths.numel())) % ranks
    counts = lengths // ranks + (turns < lengths % ranks)
    return counts.view(-1).to(lengths.dtype), *made[1:]


def even_counts(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Return what `histc` or `bincount` with a least length gives of values that are spread evenly over the bins, the
    first of which have one more where the number of values is not divisible; None: the operator is another one.
    """
    given, *rest = args if args else (None,)
    if func is _aten.histc.default:
        bins, dtype = rest[0] if rest else kwargs.get("bins", 100), given.dtype
    elif func is _aten.bincount.default and not (rest and rest[0] is not None) and kwargs.get("weights") is None:
        bins, dtype = rest[1] if len(rest) > 1 else kwargs.get("minlength", 0), torch.int64
    else:
        return None
    if not bins:
        return None
    each, more = divmod(given.numel(), bins)
    counts = torch.full((bins,), each, dtype=dtype, device="cpu")
    counts[:more] += 1
    return counts
