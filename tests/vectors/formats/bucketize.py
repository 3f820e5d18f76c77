"""Bags of ids, and what fbgemm's block_bucketize_sparse_features made of them: values, dtypes and errors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from scenarios.sparse.blocks import Bucketized
from scenarios.sparse.bucketize import block_bucketize
from tests.vectors.fields import COUNT, FLAG, NUMBER, PROSE, SIZE, TEXT, WHOLE, Each, Fields, Kind, Maybe, one_of
from tests.vectors.files import Case, Check, File, Format

IDS = one_of("int32", "int64")
WEIGHTS = one_of("float16", "bfloat16", "float32", "float64")
NAMES = ("new_lengths", "new_indices", "new_weights", "new_pos", "unbucketize_permute")

ALWAYS: dict[str, Kind] = {
    "id": TEXT,
    "tag": TEXT,
    "T": COUNT,
    "my_size": SIZE,
    "block_sizes": Each(COUNT),
    "lengths": Each(COUNT),
    "indices": Each(WHOLE),
}
OPTIONS: dict[str, Kind] = {
    "B": Maybe(COUNT),
    "batch_size_per_feature": Maybe(Each(COUNT)),
    "hash_sizes": Each(COUNT),
    "weights": Maybe(Each(NUMBER)),
    "index_dtype": IDS,
    "length_dtype": IDS,
    "weight_dtype": Maybe(WEIGHTS),
    "bucketize_pos": FLAG,
    "sequence": FLAG,
    "keep_orig_idx": FLAG,
    "total_num_blocks": Maybe(Each(COUNT)),
    "block_bucketize_pos": Maybe(Each(Each(COUNT))),
}
RESULT = Fields(
    {
        "new_lengths": Each(COUNT),
        "new_indices": Each(WHOLE),
        "new_weights": Maybe(Each(NUMBER)),
        "new_pos": Maybe(Each(COUNT)),
        "unbucketize_permute": Maybe(Each(COUNT)),
        "dtypes": Each(Maybe(one_of("int32", "int64", "float16", "bfloat16", "float32", "float64"))),
    }
)
ERROR = Fields({"error": one_of("RuntimeError"), "message": TEXT})
CASE = Fields({**ALWAYS, **OPTIONS, "expected": RESULT})
BAD_CASE = Fields({**ALWAYS, "expected": ERROR}, OPTIONS)  # recorded with defaults left out


def run(case: Case, device: torch.device | None = None) -> Bucketized:
    """The operator on the case's arguments; what is left out has the recorder's default."""
    weights = case.get("weights")
    return block_bucketize(
        torch.tensor(case["lengths"], dtype=getattr(torch, case.get("length_dtype", "int32"))),
        torch.tensor(case["indices"], dtype=getattr(torch, case.get("index_dtype", "int64"))),
        case["block_sizes"],
        case["my_size"],
        weights=None if weights is None else torch.tensor(weights, dtype=getattr(torch, case["weight_dtype"])),
        bucketize_pos=case.get("bucketize_pos", False),
        sequence=case.get("sequence", False),
        batch_size_per_feature=case.get("batch_size_per_feature"),
        block_bucketize_pos=case.get("block_bucketize_pos"),
        keep_orig_idx=case.get("keep_orig_idx", False),
        total_num_blocks=case.get("total_num_blocks"),
        device=device,
    )


def tensors(result: Bucketized) -> list[Tensor | None]:
    return [result.lengths, result.values, result.weights, result.positions, result.unbucketize_permute]


def check(case: Case) -> None:
    check_sizes(case)
    for name, got, dtype in zip(NAMES, tensors(run(case)), case["expected"]["dtypes"], strict=True):
        expected = case["expected"][name]
        if expected is None or got is None:
            assert got is expected is dtype is None, name
            continue
        assert str(got.dtype).removeprefix("torch.") == dtype, name
        assert got.tolist() == torch.tensor(expected, dtype=got.dtype).tolist(), name


def check_sizes(case: Case) -> None:
    """T and B say again what the lists say."""
    assert case["T"] == len(case["block_sizes"]) == len(case["hash_sizes"])
    batches = case["batch_size_per_feature"]
    assert (case["B"] is None) == (batches is not None)
    assert len(case["lengths"]) == (case["T"] * case["B"] if batches is None else sum(batches))
    assert (case["weights"] is None) == (case["weight_dtype"] is None)


def check_error(case: Case) -> None:
    with pytest.raises(RuntimeError) as caught:
        run(case)
    ids, total = len(case["indices"]), sum(case["lengths"])
    if total != ids:
        assert case["expected"]["message"] == f"offsets_data[lengths_size] ({total}) != indices.numel() ({ids})"
        assert str(caught.value) == f"block_bucketize: lengths add up to {total}, expected the number of ids {ids}"
    assert str(caught.value).startswith("block_bucketize: ")


def replays(file: File, where: str, case: Case) -> Iterator[tuple[str, Check]]:
    expected: Any = case.get("expected") if isinstance(case, dict) else None
    is_bad = isinstance(expected, dict) and "error" in expected
    (BAD_CASE if is_bad else CASE).check(case, where)
    yield "", partial(check_error if is_bad else check, case)


FORMAT = Format(
    name="bucketize",
    cases="cases",
    signature=frozenset({"my_size", "block_sizes", "indices", "expected"}),
    head={"about": TEXT, "layout": TEXT, "versions": PROSE},
    replays=replays,
)
