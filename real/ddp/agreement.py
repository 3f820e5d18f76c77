"""Checks once, before the first reduction, that the PowerSGD states of all ranks fit together.

States that do not fit reduce other amounts, at which gloo hangs or aborts, or with other draws, which gives garbage.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from real.ddp.buckets import Layout
from real.libraries.errors import transport
from real.supervise.rank_status import ranks
from scenarios import compression

Facts = Mapping[str, str]

# Not how often a rank logs.
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


def facts_of(hook: str, state: compression.PowerSGDState, layout: Layout) -> Facts:
    """What must be the same on all ranks, by name; long values as digests."""
    memories = (state.error_dict, state.p_memory_dict, state.q_memory_dict, state.reserve_dict)
    held = [sorted((index, kept.numel()) for index, kept in memory.items()) for memory in memories]
    buckets = _short(repr((layout.forms, layout.buckets, held)).encode()) if layout.forms else "none"
    _, numbers, position, *_ = state.rng.get_state(legacy=True)
    return {
        "the hook": hook,
        **{name: _plain(getattr(state, name)) for name in _OPTIONS},
        "what is remembered of buckets": buckets,
        "the generator of draws": _short(np.append(numbers, position).tobytes()),
    }


def agree(group: dist.ProcessGroup, device: torch.device, facts: Facts) -> None:
    """Compare the facts of every rank of the group: digests first, and the words only if those differ.

    Raises:
        ValueError: they differ; the same sentence on every rank.
        RankLostError: a rank did not come within the group's time-out, or has ended.
    """
    words = json.dumps(facts).encode()
    own = len(words).to_bytes(_LENGTH_BYTES, "little") + hashlib.sha256(words).digest()
    with transport(group.rank(), "powersgd.agree"):
        told = _gather(group, device, own)
        if all(other == own for other in told):
            return
        longest = max(int.from_bytes(each[:_LENGTH_BYTES], "little") for each in told)
        texts = _gather(group, device, words.ljust(longest))
    raise ValueError(difference([json.loads(text) for text in texts], dist.get_process_group_ranks(group)))


def difference(facts: Sequence[Facts], numbers: Sequence[int]) -> str:
    """A sentence that says what differs, and on which ranks; `numbers` are the ranks of `facts`."""
    sentences = []
    for name in facts[0]:
        having: dict[str, list[int]] = {}
        for number, each in zip(numbers, facts, strict=True):
            having.setdefault(each[name], []).append(number)
        if len(having) > 1:
            values = ", ".join(f"{value} on {ranks(those)}" for value, those in having.items())
            sentences.append(f"{name} is {values}")
    return f"the PowerSGD states differ: {'; '.join(sentences)}; expected the same on every rank"


def _gather(group: dist.ProcessGroup, device: torch.device, own: bytes) -> list[bytes]:
    """Every rank's bytes, all of one length, in the group's order."""
    # NCCL alone has no CPU tensors.
    where = torch.device("cpu") if "cpu" in dist.get_backend_config(group) else device
    row = torch.tensor(list(own), dtype=torch.uint8, device=where)
    rows: list[Tensor] = [torch.empty_like(row) for _ in range(group.size())]
    dist.all_gather(rows, row, group=group)
    return [bytes(each.tolist()) for each in rows]


def _plain(value: float) -> str:
    """A number as text; 2 and 2.0 give the same."""
    number = float(value)
    return repr(value if isinstance(value, bool) else int(number) if number.is_integer() else number)


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:8]
