"""Counts of values that are not known, such as how many tokens a router sends to each expert."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_aten = torch.ops.aten
SENTENCE = "how many of unknown values (such as a router's experts) are in each bin is taken to be even"


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
