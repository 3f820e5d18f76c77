"""block_bucketize: the recorded cases of fbgemm's operator, and its laws, with both kinds of arithmetic."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from scenarios.sparse import bucketize, kernels_device, kernels_host
from scenarios.sparse.blocks import Bucketized
from scenarios.sparse.bucketize import block_bucketize, bucketize_kernel
from tests.scenarios.sparse.vectors import case_id, cases
from tests.vectors.formats.bucketize import run, tensors

KERNELS = {"host": kernels_host, "device": kernels_device}
META = torch.device("meta")


@pytest.fixture(params=KERNELS)
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both kinds of arithmetic on CPU tensors."""
    monkeypatch.setattr(bucketize, "_kernels", lambda device: KERNELS[request.param])
    name: str = request.param
    return name


def plain(tensor: Tensor | None) -> list[Any] | None:
    return None if tensor is None else tensor.tolist()


def names(result: Bucketized) -> list[str | None]:
    return [None if tensor is None else str(tensor.dtype).removeprefix("torch.") for tensor in tensors(result)]


GOOD = [case for case in cases("bucketize.json") if "error" not in case["expected"]]
BAD = [case for case in cases("bucketize.json") if "error" in case["expected"]]


@pytest.mark.parametrize("case", GOOD, ids=case_id)
def test_every_recorded_case_is_repeated(case: dict[str, Any], kernels: str) -> None:
    result, expected = run(case), case["expected"]
    assert plain(result.lengths) == expected["new_lengths"]
    assert plain(result.values) == expected["new_indices"]
    assert plain(result.positions) == expected["new_pos"]
    assert plain(result.unbucketize_permute) == expected["unbucketize_permute"]
    assert names(result) == expected["dtypes"]
    if expected["new_weights"] is None:
        assert result.weights is None
    else:
        assert plain(result.weights) == pytest.approx(expected["new_weights"], abs=1e-6)


@pytest.mark.parametrize("case", BAD, ids=case_id)
def test_a_recorded_error_is_an_error_of_the_same_kind(case: dict[str, Any]) -> None:
    assert case["expected"]["error"] == "RuntimeError"
    with pytest.raises(RuntimeError) as caught:
        run(case)
    assert str(caught.value) == "block_bucketize: lengths add up to 3, expected the number of ids 2"


@pytest.mark.parametrize("case", GOOD, ids=case_id)
def test_without_values_the_lengths_and_shapes_are_the_same(case: dict[str, Any], kernels: str) -> None:
    real, sizes = run(case), run(case, META)
    assert plain(sizes.lengths) == plain(real.lengths)
    for with_values, without in zip(tensors(real)[1:], tensors(sizes)[1:], strict=True):
        assert (with_values is None) == (without is None)
        if with_values is not None and without is not None:
            assert without.is_meta
            assert (without.shape, without.dtype) == (with_values.shape, with_values.dtype)


@st.composite
def bags(draw: st.DrawFn, low: int = 0, high: int = 60) -> dict[str, Any]:
    features, batch = draw(st.integers(1, 4)), draw(st.integers(0, 5))
    lengths = draw(st.lists(st.integers(0, 6), min_size=features * batch, max_size=features * batch))
    ids = draw(st.lists(st.integers(low, high), min_size=sum(lengths), max_size=sum(lengths)))
    my_size = draw(st.sampled_from([1, 2, 3, 7, 300]))
    blocks = draw(st.lists(st.integers(0, 12), min_size=features, max_size=features))
    index_dtype = draw(st.sampled_from(["int32", "int64"]))
    return {
        "lengths": lengths,
        "indices": ids,
        "block_sizes": blocks,
        "my_size": my_size,
        "index_dtype": index_dtype,
        "sequence": True,
        "bucketize_pos": True,
    }


def slot_buckets(result: Bucketized, my_size: int) -> Tensor:
    per_bucket = result.lengths.view(my_size, -1).sum(1)
    return torch.repeat_interleave(torch.arange(my_size), per_bucket)


@given(bags())
def test_bucketize_then_unbucketize_is_the_identity(case: dict[str, Any]) -> None:
    result = run(case)
    assert result.unbucketize_permute is not None
    slots = result.unbucketize_permute.long()
    bucket, local = slot_buckets(result, case["my_size"])[slots], result.values.long()[slots]
    batch = len(case["lengths"]) // len(case["block_sizes"])
    block = torch.tensor(case["block_sizes"]).repeat_interleave(batch)
    block = block.repeat_interleave(torch.tensor(case["lengths"], dtype=torch.int64))
    ids = torch.tensor(case["indices"], dtype=torch.int64)
    inside = ids < block * case["my_size"]
    again = torch.where(inside, bucket * block + local, local * case["my_size"] + bucket)
    assert again.tolist() == ids.tolist()


@given(bags())
def test_the_order_inside_a_bag_and_bucket_is_kept(case: dict[str, Any]) -> None:
    result = run(case)
    assert result.positions is not None
    for part in torch.split(result.positions, result.lengths.tolist()):
        assert part.tolist() == sorted(set(part.tolist()))


@given(bags(low=-(2**31), high=2**31 - 1))
def test_host_and_device_arithmetic_agree_on_all_ids(case: dict[str, Any]) -> None:
    host = run(case)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bucketize, "_kernels", lambda device: kernels_device)
        device = run(case)
    for one, other in zip(tensors(host), tensors(device), strict=True):
        assert plain(one) == plain(other)
    assert names(host) == names(device)


def test_an_id_is_read_as_unsigned_of_its_width(kernels: str) -> None:
    ends = {"int32": [-1, -2, 2**31 - 1, -(2**31)], "int64": [-1, -2, 2**63 - 1, -(2**63)]}
    for dtype, ids in ends.items():
        width = 2 ** int(dtype.removeprefix("int"))
        case = {"lengths": [4], "indices": ids, "block_sizes": [7], "my_size": 3, "index_dtype": dtype}
        result = run({**case, "sequence": True})
        assert result.unbucketize_permute is not None
        slots = result.unbucketize_permute.long()
        assert result.values[slots].tolist() == [(item % width) // 3 for item in ids]
        assert slot_buckets(result, 3)[slots].tolist() == [item % width % 3 for item in ids]


@pytest.mark.parametrize("my_size", [256, 257, 1 << 15, (1 << 15) + 1])
def test_the_last_bucket_is_found_whatever_dtype_holds_it(my_size: int, kernels: str) -> None:
    result = run({"lengths": [2], "indices": [my_size - 1, 0], "block_sizes": [1], "my_size": my_size})
    assert result.lengths.nonzero().flatten().tolist() == [0, my_size - 1]


def test_blocks_wider_than_the_ids_leave_all_in_the_first_bucket(kernels: str) -> None:
    case = {"lengths": [2], "indices": [-1, 5], "block_sizes": [2**33], "my_size": 2, "index_dtype": "int32"}
    assert (run(case).values.tolist(), run(case).lengths.tolist()) == ([-1, 5], [2, 0])


def test_past_the_last_of_several_blocks_a_bucket_ids_go_round_all_blocks(kernels: str) -> None:
    case = {"lengths": [4], "indices": [41, 42, 45, 100], "block_sizes": [7], "my_size": 2, "total_num_blocks": [6]}
    result = run(case)
    assert (result.lengths.tolist(), result.values.tolist()) == ([1, 3], [7, 20, 7, 16])


def test_a_table_without_rows_deals_out_every_id(kernels: str) -> None:
    case = {"lengths": [4], "indices": [0, 1, 3, 6], "block_sizes": [0], "my_size": 2, "total_num_blocks": [6]}
    result = run(case)
    assert (result.lengths.tolist(), result.values.tolist()) == ([3, 1], [0, 0, 1, 0])


def test_uneven_blocks_end_at_their_last_row(kernels: str) -> None:
    case = {"lengths": [4], "indices": [33, 34, 35, 0], "block_sizes": [12], "my_size": 3}
    result = run({**case, "block_bucketize_pos": [[0, 11, 20, 34]]})
    assert (result.lengths.tolist(), result.values.tolist()) == ([1, 1, 2], [0, 11, 13, 11])


def test_ids_can_be_kept_by_feature(kernels: str) -> None:
    case = {"lengths": [1, 1], "indices": [9, 9], "block_sizes": [5, 5], "my_size": 2, "keep_orig_idx": [True, False]}
    assert run(case).values.tolist() == [9, 4]


def test_blocks_up_to_the_last_id_are_exact(kernels: str) -> None:
    rows, last = 2**62 - 1, 2**64 - 1
    ids = [0, rows - 1, rows, 2 * rows, 3 * rows - 2**64, 4 * rows - 1 - 2**64, 4 * rows - 2**64, -1]
    result = run({"lengths": [8], "indices": ids, "block_sizes": [rows], "my_size": 4, "sequence": True})
    assert result.unbucketize_permute is not None
    slots = result.unbucketize_permute
    assert slot_buckets(result, 4)[slots].tolist() == [0, 0, 1, 2, 3, 3, 4 * rows % 4, last % 4]
    assert result.values[slots].tolist() == [0, rows - 1, 0, 0, 0, rows - 1, rows, last // 4]


def test_features_of_different_blocks_in_one_chunk_are_exact(kernels: str) -> None:
    draw = torch.Generator().manual_seed(3)
    blocks = torch.randint(1, 1 << 40, (200,), generator=draw)
    bucket, place = torch.randint(0, 7, (200,), generator=draw), blocks - 1
    ids = torch.stack([bucket * blocks, bucket * blocks + place], dim=1).reshape(-1)
    result = block_bucketize(torch.full((200,), 2), ids, blocks, 7, sequence=True)
    assert result.unbucketize_permute is not None
    slots = result.unbucketize_permute
    assert slot_buckets(result, 7)[slots].tolist() == bucket.repeat_interleave(2).tolist()
    assert result.values[slots].tolist() == torch.stack([0 * place, place], dim=1).reshape(-1).tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64])
def test_weights_of_any_dtype_stay_with_their_ids(dtype: torch.dtype, kernels: str) -> None:
    weights = torch.tensor([1, 2, 3, 4]).to(dtype)
    result = block_bucketize(torch.tensor([4]), torch.tensor([9, 0, 8, 1]), [5], 2, weights=weights)
    assert result.weights is not None
    assert (result.weights.dtype, result.weights.tolist()) == (dtype, [2, 4, 1, 3])


def test_a_bag_of_more_ids_than_a_byte_counts_is_counted(kernels: str) -> None:
    result = block_bucketize(torch.tensor([300, 0, 256]), torch.zeros(556, dtype=torch.int64), [5], 2)
    assert result.lengths.tolist() == [300, 0, 256, 0, 0, 0]


ERRORS: dict[str, dict[str, Any]] = {
    "block_bucketize: 3 lengths, expected a multiple of 2": {"block_sizes": [4, 4]},
    "block_bucketize: batch_size_per_feature [1], expected 1 sizes that add up to 3": {"batch_size_per_feature": [1]},
    "block_bucketize: total_num_blocks[0] = 5, expected a multiple of my_size 2": {"total_num_blocks": [5]},
    "block_bucketize: total_num_blocks has 2 items, expected one a feature: 1": {"total_num_blocks": [2, 2]},
    "block_bucketize: keep_orig_idx has 0 items, expected one a feature: 1": {"keep_orig_idx": []},
    "block_bucketize: block_bucketize_pos[0] = [2, 4, 8], expected 3 ascending rows that start with 0": {
        "block_bucketize_pos": [[2, 4, 8]]
    },
    "block_bucketize: block_bucketize_pos[0] = [0, 8], expected 3 ascending rows that start with 0": {
        "block_bucketize_pos": [[0, 8]]
    },
    "block_bucketize: block_bucketize_pos[0] = [0, 9, 8], expected 3 ascending rows that start with 0": {
        "block_bucketize_pos": [[0, 9, 8]]
    },
}


@pytest.mark.parametrize("sentence", ERRORS)
def test_arguments_that_do_not_fit_are_one_sentence(sentence: str) -> None:
    case = {"lengths": [1, 0, 1], "indices": [1, 2], "block_sizes": [4], "my_size": 2}
    with pytest.raises(RuntimeError) as caught:
        run(case | ERRORS[sentence])
    assert str(caught.value) == sentence


BAD_TENSORS: dict[str, dict[str, Any]] = {
    "block_bucketize: my_size = 0, expected at least 1": {"my_size": 0},
    "block_bucketize: block_sizes[0] = -4, expected at least 0": {"block_sizes": [-4]},
    "block_bucketize: a length is -1, expected at least 0": {"lengths": torch.tensor([-1, 3])},
    "block_bucketize: ids are torch.float32, expected torch.int32 or torch.int64": {"ids": torch.ones(2)},
    "block_bucketize: lengths are torch.float32, expected torch.int32 or torch.int64": {"lengths": torch.ones(2)},
    "block_bucketize: weights of shape [3], expected that of ids [2]": {"weights": torch.ones(3)},
}


@pytest.mark.parametrize("sentence", BAD_TENSORS)
def test_tensors_that_make_no_sense_are_one_sentence(sentence: str) -> None:
    good = {"lengths": torch.tensor([1, 1]), "ids": torch.tensor([1, 2]), "block_sizes": [4], "my_size": 2}
    with pytest.raises(RuntimeError) as caught:
        block_bucketize(**{**good, **BAD_TENSORS[sentence]})
    assert str(caught.value) == sentence


def test_ids_without_values_cannot_be_bucketized() -> None:
    with pytest.raises(RuntimeError) as caught:
        block_bucketize(torch.ones(1, dtype=torch.int32), torch.empty(1, dtype=torch.int64, device="meta"), [4], 2)
    sentence = "block_bucketize: ids are on the meta device, but their values decide the sizes"
    assert str(caught.value) == sentence


def test_the_cost_counts_two_passes_over_ids_and_one_write() -> None:
    lengths, ids = torch.ones(10, dtype=torch.int32), torch.zeros(10, dtype=torch.int64)
    kernel = bucketize_kernel(lengths, ids, 4, None, positions=True)
    assert kernel.kind == "bucketize"
    assert kernel.bytes_read == 3 * 40 + 2 * 4 * 40 + 2 * 80
    assert kernel.bytes_written == 40 + 2 * 4 * 40 + 2 * 80
