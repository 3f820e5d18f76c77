"""What a probe is: a call, what torch 2.13 did of it, and what ours do; and tensors that many probes give.

A probe is `same` where torch's value is ours too, `better` where torch raises or gives garbage and ours works,
`refuse` or `disagree` where ours is one sentence on every rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tests.vectors.formats.probe_calls import Body

COLLECTIVE = "CollectiveError"


@dataclass(frozen=True)
class Refusal:
    """An error as a rank sees it."""

    kind: str
    sentence: str


@dataclass(frozen=True)
class Probe:
    """`theirs`: what was recorded on each rank, an error's type or "value". `expected`: ours, of rank and recording.

    `ends_with`: a pattern of the one sentence of a run that no rank comes back from.
    """

    body: Body
    theirs: tuple[str, ...]
    expected: Callable[[int, dict[str, Any]], Any]
    ends_with: str = ""


def same(body: Body, ranks: int = 2, part: Callable[[int, Any], Any] = lambda _, value: value) -> Probe:
    """Torch's value; only `part` of it where it also says what was returned, which here is the output."""
    return Probe(body, ("value",) * ranks, lambda rank, recorded: part(rank, recorded["value"]))


def better(body: Body, theirs: str, *ours: Any) -> Probe:
    """A value on each rank."""
    return Probe(body, (theirs,) * len(ours), lambda rank, _: ours[rank])


def refuse(body: Body, theirs: str, kind: str, sentence: str, ranks: int = 2) -> Probe:
    """A mistake in the arguments of every rank: each one's sentence names itself."""
    told = (theirs,) * ranks
    return Probe(body, told, lambda rank, _: Refusal(kind, f"rank {rank}: {sentence}"))


def disagree(body: Body, sentence: str, *theirs: str) -> Probe:
    """Arguments that do not fit together: the same sentence on every rank."""
    return Probe(body, theirs, lambda *_: Refusal(COLLECTIVE, f"group world: {sentence}"))


MIXED = "all tensors must have one dtype, got {}"


def ramp(rank: int, count: int = 4) -> Tensor:
    """0, 1, 2, ... and 10 times the rank."""
    return torch.arange(float(count)) + 10 * rank


def zeros(*sizes: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [torch.zeros(size, dtype=dtype) for size in sizes]


def ones(*sizes: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [torch.ones(size, dtype=dtype) for size in sizes]


def columns(rank: int) -> Tensor:
    """Not contiguous."""
    return (torch.arange(8.0).reshape(2, 4) + 100 * rank).t()


# The documented uneven example.
DOC_SPLITS = [[2, 2, 1, 1], [3, 2, 2, 2], [2, 1, 1, 1], [2, 2, 2, 1]]
DOC_OUTPUTS = [
    [[0, 1], [10, 11, 12], [20, 21], [30, 31]],
    [[2, 3], [13, 14], [22], [32, 33]],
    [[4], [15, 16], [23], [34, 35]],
    [[5], [17, 18], [24], [36]],
]


def doc_input(rank: int) -> Tensor:
    return torch.arange(sum(DOC_SPLITS[rank])) + 10 * rank


def doc_single(rank: int) -> tuple[Any, ...]:
    receives = [row[rank] for row in DOC_SPLITS]
    return torch.zeros(sum(receives), dtype=torch.int64), doc_input(rank), receives, DOC_SPLITS[rank]
