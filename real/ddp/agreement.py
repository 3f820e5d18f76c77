"""Checks once, before the first reduction, that the PowerSGD states of all ranks fit together.

States that do not fit reduce different amounts of data, at which gloo hangs or aborts, or draw different numbers, which
corrupts the gradients.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from real.ddp.buckets import BucketLayout
from real.libraries.errors import transport
from real.supervise.rank_status import ranks
from scenarios import compression

Facts = Mapping[str, str]

# All options but the one that sets how often a rank logs.
_OPTIONS = (
    "matrix_approximation_rank",
    "start_powerSGD_iter",
    "min_compression_rate",
    "use_error_feedback",
    "warm_start",
    "orthogonalization_epsilon",
    "random_seed",
    "batch_tensors_with_same_shape",
    "survive_zero_matrices",
    "iter",
)
_LENGTH_BYTES = 8


def facts_of(hook: str, state: compression.PowerSGDState, layout: BucketLayout) -> Facts:
    """Return everything that must be equal on all ranks, by name; long values as digests."""
    memories = (state.error_dict, state.p_memory_dict, state.q_memory_dict, state.reserve_dict)
    remembered = [sorted((index, kept.numel()) for index, kept in memory.items()) for memory in memories]
    buckets = _short(repr((layout.forms, layout.buckets, remembered)).encode()) if layout.forms else "none"
    _, numbers, position, *_ = state.rng.get_state(legacy=True)
    return {
        "the hook": hook,
        **{name: _plain(getattr(state, name)) for name in _OPTIONS},
        "what is remembered of buckets": buckets,
        "the generator of draws": _short(np.append(numbers, position).tobytes()),
    }


def agree(group: dist.ProcessGroup, device: torch.device, facts: Facts) -> None:
    """Compare the facts of every rank in the group; send their texts only if the digests differ.

    Raises:
        ValueError: the facts differ; the sentence is the same on every rank.
        RankLostError: a rank did not come within the group's time-out, or has ended.
    """
    words = json.dumps(facts).encode()
    own = len(words).to_bytes(_LENGTH_BYTES, "little") + hashlib.sha256(words).digest()
    with transport(group.rank(), "powersgd.agree"):
        gathered = _gather(group, device, own)
        if all(other == own for other in gathered):
            return
        longest = max(int.from_bytes(each[:_LENGTH_BYTES], "little") for each in gathered)
        texts = _gather(group, device, words.ljust(longest))
    raise ValueError(difference([json.loads(text) for text in texts], dist.get_process_group_ranks(group)))


def difference(facts: Sequence[Facts], numbers: Sequence[int]) -> str:
    """Return a sentence that says what differs, and on which ranks; `numbers` are the ranks of `facts`."""
    sentences = []
    for name in facts[0]:
        by_value: dict[str, list[int]] = {}
        for number, each in zip(numbers, facts, strict=True):
            by_value.setdefault(each[name], []).append(number)
        if len(by_value) > 1:
            values = ", ".join(f"{value} on {ranks(numbers_with)}" for value, numbers_with in by_value.items())
            sentences.append(f"{name} is {values}")
    return f"the PowerSGD states differ: {'; '.join(sentences)}; expected the same on every rank"


def _gather(group: dist.ProcessGroup, device: torch.device, own: bytes) -> list[bytes]:
    """Return the bytes of every rank, in the group's order; all ranks must pass the same length."""
    # NCCL has no CPU tensors, so its messages must lie on the GPU.
    where = torch.device("cpu") if "cpu" in dist.get_backend_config(group) else device
    row = torch.tensor(list(own), dtype=torch.uint8, device=where)
    rows: list[Tensor] = [torch.empty_like(row) for _ in range(group.size())]
    dist.all_gather(rows, row, group=group)
    return [bytes(each.tolist()) for each in rows]


# Compare digests first: the texts may have any length, and an all-gather needs equal lengths on all ranks.


def _plain(value: float) -> str:
    """Return a number as text; 2 and 2.0 give the same text."""
    number = float(value)
    return repr(value if isinstance(value, bool) else int(number) if number.is_integer() else number)


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:8]
