"""Probes of the single form and of reductions: the calls, inferred from what came of them, and what ours do."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from tests.vectors.formats.probe import (
    COLLECTIVE,
    MIXED,
    Probe,
    better,
    columns,
    disagree,
    doc_single,
    ramp,
    refuse,
    same,
    zeros,
)
from tests.vectors.formats.probe_calls import (
    all_reduced,
    as_text,
    float8_as_bytes,
    never_called_by_one,
    reduce_scattered,
    single,
    twice_differently_cut,
)


def waves(rank: int) -> Tensor:
    """k + rank + k j."""
    steps = torch.arange(4.0)
    return torch.complex(steps + rank, steps)


def rows_2d(rank: int) -> tuple[Any, ...]:
    """Rank 0 sends 1 and 2 rows, rank 1 sends 0 and 3."""
    receives, sends = ([1, 0], [1, 2]) if rank == 0 else ([2, 3], [0, 3])
    given = torch.arange(6.0).reshape(3, 2) + 10 * rank
    return torch.zeros(sum(receives), 2), given, receives, sends


def rows_1d(rank: int) -> tuple[Any, ...]:
    receives, sends = ([1, 0], [1, 2]) if rank == 0 else ([2, 3], [0, 3])
    return torch.zeros(sum(receives)), ramp(rank, 3), receives, sends


SINGLES: dict[str, Probe] = {
    "single_indivisible_out": refuse(
        single(lambda r: (torch.zeros(4), torch.ones(3))),
        "RuntimeError",
        COLLECTIVE,
        "all_to_all_single: the first dimension 4 of output is not divisible by the group's size 3; give split sizes",
        ranks=3,
    ),
    "single_indivisible_in": refuse(
        single(lambda r: (torch.zeros(4), torch.ones(4))),
        "RuntimeError",
        COLLECTIVE,
        "all_to_all_single: the first dimension 4 of input is not divisible by the group's size 3; give split sizes",
        ranks=3,
    ),
    "single_equal_numel_mismatch": disagree(
        single(lambda r: (torch.zeros(6), torch.ones(4))),
        "all_to_all_single: rank 0 sends 8 bytes to rank 0, which expects 12",
        *["RuntimeError"] * 2,
    ),
    "single_split_sum_mismatch": refuse(
        single(lambda r: (torch.zeros(4), torch.ones(4), [2, 3], [2, 2])),
        "RuntimeError",
        COLLECTIVE,
        "all_to_all_single: output split sizes [2, 3] add up to 5, expected the first dimension 4",
    ),
    "single_split_in_sum_mismatch": refuse(
        single(lambda r: (torch.zeros(4), torch.ones(4), [2, 2], [2, 1])),
        "RuntimeError",
        COLLECTIVE,
        "all_to_all_single: input split sizes [2, 1] add up to 3, expected the first dimension 4",
    ),
    "single_split_len": refuse(
        single(lambda r: (torch.zeros(4), torch.ones(4), [2, 1, 1], [2, 1, 1])),
        "RuntimeError",
        COLLECTIVE,
        "all_to_all_single: input has 3 split sizes, expected the group's size 2",
    ),
    "single_negative_split": refuse(
        single(lambda r: (torch.zeros(4), torch.ones(4), [5, -1], [5, -1])),
        "RuntimeError",
        COLLECTIVE,
        "all_to_all_single: input split sizes [5, -1] must not be negative",
    ),
    "single_tensor_splits": refuse(
        single(lambda r: (torch.zeros(4), torch.ones(4), torch.tensor([2, 2]), torch.tensor([2, 2]))),
        "TypeError",
        "TypeError",
        "all_to_all_single: input split sizes must be a list of ints, got Tensor",
    ),
    "single_noncontig_in": refuse(
        single(lambda r: (torch.zeros(4, 2), columns(r))),
        "ValueError",
        COLLECTIVE,
        "all_to_all_single: input of shape (4, 2) must be contiguous",
    ),
    "single_noncontig_out": refuse(
        single(lambda r: (columns(r), torch.zeros(4, 2))),
        "value",
        COLLECTIVE,
        "all_to_all_single: output of shape (4, 2) must be contiguous",
    ),
    "single_self_mismatch": disagree(
        single(lambda r: (torch.zeros(4), torch.ones(4), ([3, 1], [1, 3])[r], [2, 2])),
        "all_to_all_single: rank 0 sends 8 bytes to rank 0, which expects 12",
        *["RuntimeError"] * 2,
    ),
    "single_remote_recv_larger": disagree(
        single(lambda r: (torch.zeros(5), ramp(0) + 1, ([2, 3], [3, 2])[r], [2, 2])),
        "all_to_all_single: rank 0 sends 8 bytes to rank 1, which expects 12",
        *["value"] * 2,
    ),
    "single_remote_recv_smaller": disagree(
        single(lambda r: (torch.zeros(3), ramp(0) + 1, ([2, 1], [1, 2])[r], [2, 2])),
        "all_to_all_single: rank 0 sends 8 bytes to rank 1, which expects 4",
        "RuntimeError",
        "CRASH",
    ),
    "single_cfloat_int64_out": refuse(
        single(lambda r: (torch.zeros(4, dtype=torch.int64), waves(r))),
        "ValueError",
        "ValueError",
        f"all_to_all_single: {MIXED.format('int64 and complex64')}",
    ),
    "single_complex_in_float_out_flat": refuse(
        single(lambda r: (torch.zeros(8), waves(r))),
        "value",
        "ValueError",
        f"all_to_all_single: {MIXED.format('float32 and complex64')}",
    ),
    "single_out_dtype_differs": refuse(
        single(lambda r: (torch.zeros(4), torch.ones(4, dtype=torch.float64))),
        "ValueError",
        "ValueError",
        f"all_to_all_single: {MIXED.format('float32 and float64')}",
    ),
    "single_list_given": refuse(
        single(lambda r: (zeros(2), torch.ones(2))),
        "TypeError",
        "TypeError",
        "all_to_all_single: output must be a tensor, got list",
    ),
    "single_conj_input": better(
        single(lambda r: (torch.zeros(4, dtype=torch.complex64), waves(r).conj())),
        "RuntimeError",
        [0j, 1 - 1j, 1 + 0j, 2 - 1j],
        [2 - 2j, 3 - 3j, 3 - 2j, 4 - 3j],
    ),
    # Torch's second rank gets what the first one has already overwritten.
    "single_alias_in_place_equal": better(
        single(lambda r: (ramp(r),) * 2), "value", [0.0, 1.0, 10.0, 11.0], [2.0, 3.0, 12.0, 13.0]
    ),
    "int16_single": better(
        single(lambda r: (torch.zeros(4, dtype=torch.int16), ramp(r).to(torch.int16))),
        "RuntimeError",
        [0, 1, 10, 11],
        [2, 3, 12, 13],
    ),
    "single_only_in_splits": same(single(lambda r: (torch.zeros(4), ramp(r), None, [2, 2]))),
    "single_only_out_splits": same(single(lambda r: (torch.zeros(4), ramp(r), [2, 2], None))),
    "single_empty_list_splits": same(single(lambda r: (torch.zeros(4), ramp(r), [], []))),
    "single_2d": same(single(rows_2d)),
    "single_trailing_dims_differ": same(twice_differently_cut),
    "single_zero_all": same(
        single(lambda r: (torch.zeros(0), torch.zeros(0), [0, 0], [0, 0])), part=lambda _, value: value[2]
    ),
    "single_cfloat": same(as_text(single(lambda r: (torch.zeros(4, dtype=torch.complex64), waves(r))))),
    "doc_uneven_single_example": same(single(doc_single), ranks=4),
    "functional_all_to_all_single": same(single(rows_1d)),
    "fp8_via_uint8_view": same(float8_as_bytes),
}

OTHERS: dict[str, Probe] = {
    "reduce_scatter_list": same(reduce_scattered),
    "avg_op": same(all_reduced(lambda r: torch.tensor([1.0 + r]), ReduceOp.AVG)),
    "all_reduce_bf16": same(all_reduced(lambda r: torch.tensor([1.0 + r], dtype=torch.bfloat16))),
    "all_reduce_empty": same(all_reduced(lambda r: torch.zeros(0)), part=lambda _, value: value[1]),
    "one_rank_never_calls": Probe(
        never_called_by_one,
        ("RuntimeError", "value"),
        lambda *_: None,
        # The simulator sees it; beside the launcher, which tells of ranks that do not come, gloo waits for its time.
        ends_with=r"deadlock at \d+ ns: rank 0 waits for all_to_all_single \(call 0 of group world\), which rank 1"
        r" never entered|rank [01]: .* failed: .* Timed out waiting \d+ms .*",
    ),
}
