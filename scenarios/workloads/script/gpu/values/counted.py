"""Assumed counts of unknown values, such as the number of tokens that a router sends to each expert."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_aten = torch.ops.aten
SENTENCE = "unknown values (such as a router's experts) are counted as if they were spread evenly over all bins"
_BLOCKS = "fbgemm::block_bucketize_sparse_features"


def even_bags(
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    made: Sequence[Tensor],
    known: Callable[[Tensor], Tensor | None],
) -> tuple[Tensor, ...] | None:
    """Return fbgemm's bucketized bags with evenly split lengths; None for other operators or unknown lengths.

    fbgemm sends each id to the rank that has its row. All ranks are assumed to get the same number of ids of a bag, up
    to one more for ranks in turn; the ids stay unknown. `known` returns a tensor's values.
    """
    if func._schema.name != _BLOCKS or not made:
        return None
    given = dict(zip((each.name for each in func._schema.arguments), args, strict=False)) | kwargs
    lengths, ranks = known(given["lengths"]), given["my_size"]
    if lengths is None:
        return None
    # The bag's number shifts who gets one more, else rank 0 would get all remainders.
    turns = (torch.arange(ranks).view(-1, 1) - torch.arange(lengths.numel())) % ranks
    counts = lengths // ranks + (turns < lengths % ranks)
    return counts.view(-1).to(lengths.dtype), *made[1:]


def even_counts(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Return even counts for `histc`, or `bincount` with a minimum length, of unknown values; None for other operators.

    The first bins have one more if the number of values is not divisible.
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
