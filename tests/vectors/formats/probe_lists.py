"""Probes of the list form: the calls, inferred from what came of them, and what ours do instead."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.vectors.formats.probe import (
    COLLECTIVE,
    DOC_OUTPUTS,
    DOC_SPLITS,
    MIXED,
    Probe,
    better,
    columns,
    disagree,
    doc_input,
    ones,
    ramp,
    refuse,
    same,
    zeros,
)
from tests.vectors.formats.probe_calls import (
    Body,
    as_text,
    async_listed,
    collect_results,
    dtype_listed,
    into_chunks,
    list_form,
    one_sided_group,
    three_ways,
)


def pair(rank: int, step: int = 10) -> list[Tensor]:
    """[1], [2], each `step` more on the next rank."""
    return [torch.tensor([1.0 + step * rank]), torch.tensor([2.0 + step * rank])]


def uneven(splits: list[list[int]]) -> Body:
    """The list form; what rank r sends is 10 r, 10 r + 1, ..."""
    return list_form(
        lambda r: (zeros(*[row[r] for row in splits]), list(ramp(r, sum(splits[r])).split(splits[r]))),
    )


def complex_pair(rank: int) -> list[Tensor]:
    return [torch.tensor([complex(at, at)]) for at in (2 * rank + 1, 2 * rank + 2)]


def differing(kind: torch.dtype) -> Body:
    """The list form, of another dtype on rank 1."""
    dtypes = torch.float32, kind
    return list_form(lambda r: (zeros(2, 2, dtype=dtypes[r]), [item * (r + 1) for item in ones(2, 2, dtype=dtypes[r])]))


VALUES = ["float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"]
VALUES += ["complex32", "complex64", "complex128"]
BYTES = ["int16", "uint16", "uint32", "uint64", "float8_e4m3fn"]  # torch's gloo does not know them

DTYPES = {f"dtype_{name}": same(dtype_listed(getattr(torch, name))) for name in VALUES}
DTYPES |= {
    f"dtype_{name}": better(dtype_listed(getattr(torch, name)), "RuntimeError", *[f"ok torch.{name}"] * 2)
    for name in BYTES
}

LISTS: dict[str, Probe] = DTYPES | {
    "in_list_too_short": refuse(
        list_form(lambda r: (zeros(1, 1), ones(1))),
        "RuntimeError",
        COLLECTIVE,
        "all_to_all: input_tensor_list has 1 tensors, expected the group's size 2",
    ),
    "out_list_too_short": refuse(
        list_form(lambda r: (zeros(1), ones(1, 1))),
        "RuntimeError",
        COLLECTIVE,
        "all_to_all: output_tensor_list has 1 tensors, expected the group's size 2",
    ),
    "lists_too_long": refuse(
        list_form(lambda r: (zeros(1, 1, 1), ones(1, 1, 1))),
        "RuntimeError",
        COLLECTIVE,
        "all_to_all: output_tensor_list has 3 tensors, expected the group's size 2",
    ),
    "tuple_input": refuse(
        list_form(lambda r: (zeros(1, 1), tuple(ones(1, 1)))),
        "TypeError",
        "TypeError",
        "all_to_all: input_tensor_list must be a list of tensors, got tuple",
    ),
    "not_tensor": refuse(
        list_form(lambda r: (zeros(1, 1), [1, 2])),
        "TypeError",
        "TypeError",
        "all_to_all: input_tensor_list[0] must be a tensor, got int",
    ),
    "empty_lists": refuse(
        list_form(lambda r: ([], [])),
        "NotImplementedError",
        COLLECTIVE,
        "all_to_all: output_tensor_list has 0 tensors, expected the group's size 2",
    ),
    "dtype_mismatch_in_out": refuse(
        list_form(lambda r: (zeros(1, 1, dtype=torch.int32), ones(1, 1))),
        "ValueError",
        "ValueError",
        f"all_to_all: {MIXED.format('int32 and float32')}",
    ),
    "dtype_mismatch_inside": refuse(
        list_form(lambda r: (zeros(1, 1), [*ones(1), *ones(1, dtype=torch.float64)])),
        "ValueError",
        "ValueError",
        f"all_to_all: {MIXED.format('float32 and float64')}",
    ),
    "complex_in_float_out": refuse(
        list_form(lambda r: (zeros(1, 1), complex_pair(r))),
        "RuntimeError",
        "ValueError",
        f"all_to_all: {MIXED.format('float32 and complex64')}",
    ),
    "doc_example_cfloat_int64_out": refuse(
        list_form(lambda r: (zeros(1, 1, dtype=torch.int64), complex_pair(r))),
        "ValueError",
        "ValueError",
        f"all_to_all: {MIXED.format('int64 and complex64')}",
    ),
    "dtype_differs_across_ranks": disagree(
        differing(torch.int32),
        "rank 0 calls all_to_all (16 bytes, float32), but rank 1 calls all_to_all (16 bytes, int32)",
        "value",
        "value",
    ),
    "dtype_width_differs_across_ranks": disagree(
        differing(torch.float64),
        "rank 0 calls all_to_all (16 bytes, float32), but rank 1 calls all_to_all (32 bytes, float64)",
        "CRASH",
        "value",
    ),
    "recv_larger_than_sent": disagree(
        list_form(lambda r: (zeros(3, 3), ones(2, 2))),
        "all_to_all: rank 0 sends 8 bytes to rank 0, which expects 12",
        *["RuntimeError"] * 2,
    ),
    "recv_smaller_than_sent": disagree(
        list_form(lambda r: (zeros(1, 1), ones(2, 2))),
        "all_to_all: rank 0 sends 8 bytes to rank 0, which expects 4",
        *["RuntimeError"] * 2,
    ),
    "remote_recv_larger": disagree(
        list_form(lambda r: (zeros(*([2, 3], [3, 2])[r]), ones(2, 2))),
        "all_to_all: rank 0 sends 8 bytes to rank 1, which expects 12",
        *["RuntimeError"] * 2,
    ),
    "remote_recv_smaller": disagree(
        list_form(lambda r: (zeros(*([2, 1], [1, 2])[r]), ones(2, 2))),
        "all_to_all: rank 0 sends 8 bytes to rank 1, which expects 4",
        *["RuntimeError"] * 2,
    ),
    "self_size_mismatch": disagree(
        list_form(lambda r: (zeros(*([3, 2], [2, 3])[r]), ones(2, 2))),
        "all_to_all: rank 0 sends 8 bytes to rank 0, which expects 12",
        *["RuntimeError"] * 2,
    ),
    "noncontig_input": refuse(
        list_form(lambda r: (zeros(4, 4), list(columns(r).chunk(2)))),
        "value",
        COLLECTIVE,
        "all_to_all: input_tensor_list[0] of shape (2, 2) must be contiguous",
    ),
    "noncontig_output": refuse(
        list_form(lambda r: (list(columns(r).chunk(2)), ones(4, 4))),
        "value",
        COLLECTIVE,
        "all_to_all: output_tensor_list[0] of shape (2, 2) must be contiguous",
    ),
    "requires_grad_out": refuse(
        list_form(lambda r: ([item.requires_grad_() for item in zeros(1, 1)], pair(r))),
        "RuntimeError",
        COLLECTIVE,
        "all_to_all: output_tensor_list[0] is a leaf that requires grad; give it detached",
    ),
    "sparse_in": refuse(
        list_form(lambda r: (zeros(1, 1), [item.to_sparse() for item in ones(1, 1)])),
        "NotImplementedError",
        COLLECTIVE,
        "all_to_all: input_tensor_list[0] must be a dense tensor, got a sparse_coo one",
    ),
    "shapes_differ_same_numel": better(
        list_form(lambda r: ([torch.zeros(4), torch.zeros(2, 2)], [ramp(r), ramp(r) + 4])),
        "RuntimeError",
        [[0.0, 1.0, 2.0, 3.0], [[10.0, 11.0], [12.0, 13.0]]],
        [[4.0, 5.0, 6.0, 7.0], [[14.0, 15.0], [16.0, 17.0]]],
    ),
    "some_zero": better(
        uneven([[0, 3, 1], [2, 0, 0], [0, 1, 0]]),
        "RuntimeError",
        [[], [10.0, 11.0], []],
        [[0.0, 1.0, 2.0], [], [20.0]],
        [[3.0], [], []],
    ),
    "uneven_list_ws2": better(uneven([[1, 1], [2, 2]]), "RuntimeError", [[0.0], [10.0, 11.0]], [[1.0], [12.0, 13.0]]),
    "doc_uneven_list_example": better(
        list_form(
            lambda r: (
                zeros(*[row[r] for row in DOC_SPLITS], dtype=torch.int64),
                list(doc_input(r).split(DOC_SPLITS[r])),
            )
        ),
        "RuntimeError",
        *DOC_OUTPUTS,
    ),
    "zero_tensors": same(list_form(lambda r: (zeros(0, 0), zeros(0, 0))), part=lambda _, value: value[1]),
    "same_output_object_twice": same(list_form(lambda r: (zeros(1) * 2, pair(r)))),
    "same_input_object_twice": same(list_form(lambda r: (zeros(1, 1), [torch.tensor([1.0 + r])] * 2))),
    "in_place_alias": same(list_form(lambda r: (pair(r),) * 2)),
    "output_identity_kept": same(into_chunks(pair)),
    "async_handle": same(async_listed(lambda r: (zeros(1, 1), pair(r, step=0))), part=lambda _, value: value[3]),
    "sync_returns": better(collect_results(lambda r: (zeros(1, 1), pair(r))), "value", "the outputs", "the outputs"),
    "nonmember": same(one_sided_group, ranks=3, part=lambda rank, value: value[2 if rank == 2 else 1]),
    "scalar_0d": same(
        list_form(lambda r: ([torch.zeros(()), torch.zeros(())], [torch.tensor(1.0 + r), torch.tensor(2.0 + r)]))
    ),
    "bool_list": same(
        list_form(
            lambda r: (
                zeros(2, 2, dtype=torch.bool),
                [torch.tensor([True, r == 0]), torch.tensor([False, True])],
            )
        )
    ),
    "world1": same(three_ways, ranks=1),
    "doc_cfloat_example_cfloat_out": same(
        as_text(list_form(lambda r: (zeros(1, 1, dtype=torch.complex64), complex_pair(r))))
    ),
}
