"""The input exchanges: their laws, the mended faults, and the recorded cases without values (with: tests/vectors)."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from scenarios.seam.errors import CollectiveError
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.sparse import (
    DpSparseFeaturesDist,
    KeyedJagged,
    RwSparseFeaturesDist,
    TwRwSparseFeaturesDist,
    TwSparseFeaturesDist,
)
from tests.lanes import examples
from tests.lockstep import Lockstep
from tests.scenarios.sparse.vectors import case_id, cases
from tests.vectors import v0_2_0
from tests.vectors.formats.sparse_features import features_of
from tests.vectors.formats.twrw_dist import old, today

TODAY, OLD = cases("twrw_dist.json"), cases("twrw_dist_v0.2.0.json")
REPLACED = "need_pos: positions are sent in place of the features' own weights"


def world_of(case: dict[str, Any], payload: str = "cpu") -> Lockstep:
    local = case["local_size"]
    return Lockstep(case["world_size"] // local, local, payload)


def play(case: dict[str, Any], world: Lockstep) -> list[KeyedJagged]:
    dist = today(case)

    async def program(rank: Rank) -> KeyedJagged:
        return await dist(rank, features_of(case, case["inputs"][rank.rank], case["keys"]))

    with pytest.warns(UserWarning, match=REPLACED) if case["tag"] == "need_pos_over_weights" else nullcontext():
        return world.run(program)


@pytest.mark.parametrize("case", TODAY, ids=case_id)
def test_without_values_sizes_are_the_same(case: dict[str, Any]) -> None:
    real, sizes = world_of(case), world_of(case, "meta")
    for with_values, without in zip(play(case, real), play(case, sizes), strict=True):
        assert without.values.is_meta
        assert without.values.shape == with_values.values.shape
        assert without.lengths.tolist() == with_values.lengths.tolist()
        assert (without.weights is None) == (with_values.weights is None)
        assert replace(without, values=with_values.values, weights=None, lengths=with_values.lengths) == replace(
            with_values, weights=None
        )
    assert sizes.log == real.log
    assert sizes.kernels_by_rank == real.kernels_by_rank


def play_old(case: dict[str, Any], world: Lockstep) -> list[v0_2_0.SparseFeatures]:
    dist, scored = old(case), case["id_score_list"]

    async def program(rank: Rank) -> v0_2_0.SparseFeatures:
        lists = features_of(case, case["inputs"][rank.rank], case["keys"])
        scores = features_of(case, scored["inputs"][rank.rank], scored["keys"])
        return await dist(rank, v0_2_0.SparseFeatures(id_list_features=lists, id_score_list_features=scores))

    return world.run(program)


@pytest.mark.parametrize("case", OLD, ids=case_id)
def test_without_values_sizes_are_the_same_in_0_2_0(case: dict[str, Any]) -> None:
    real, sizes = world_of(case), world_of(case, "meta")
    for with_values, without in zip(play_old(case, real), play_old(case, sizes), strict=True):
        for name in ("id_list_features", "id_score_list_features"):
            one, other = getattr(with_values, name), getattr(without, name)
            assert (one is None) == (other is None)
            if one is not None:
                assert (one.lengths.tolist(), one.values.shape) == (other.lengths.tolist(), other.values.shape)
    assert (sizes.log, sizes.kernels_by_rank) == (real.log, real.kernels_by_rank)


def make_jagged(lengths: list[int], keys: int, weights: Tensor | None = None) -> KeyedJagged:
    return KeyedJagged(
        keys=tuple(f"f{index}" for index in range(keys)),
        values=torch.arange(sum(lengths)),
        lengths=torch.tensor(lengths, dtype=torch.int32),
        weights=weights,
        stride=len(lengths) // keys,
    )


WORLD = Group("world", (0, 1, 2, 3))


def test_0_2_0_needs_one_batch_on_every_rank_and_says_so() -> None:
    dist = v0_2_0.TwRwSparseFeaturesDist(WORLD, Group("intra", (0, 1)), [1, 1, 0, 0], [0] * 4, [8], [])

    async def program(rank: Rank) -> v0_2_0.SparseFeatures:
        features = make_jagged([1] * (1 + rank.rank // 3), 1)
        return await dist(rank, v0_2_0.SparseFeatures(id_list_features=features))

    with pytest.raises(CollectiveError) as caught:
        Lockstep(2, 2).run(program)
    assert str(caught.value) == (
        "group world: all_to_all_single 'input_dist.id_list.lengths': rank 3 sends 8 bytes to rank 0, which expects 4"
    )


def test_0_2_0_refuses_a_batch_that_differs_by_key() -> None:
    dist = v0_2_0.TwRwSparseFeaturesDist(WORLD, Group("intra", (0, 1)), [1, 1, 0, 0], [0] * 4, [8], [])
    features = replace(make_jagged([1], 1), stride=None, stride_per_key_per_rank=((1,),))
    with pytest.raises(
        ValueError, match=r"^TwRwSparseFeaturesDist 0.2.0: a batch that differs by key is not supported$"
    ):
        Lockstep(2, 2).run(lambda rank: dist(rank, v0_2_0.SparseFeatures(id_list_features=features)))


def test_ranks_that_send_different_tensors_are_told_before_data_moves() -> None:
    dist = TwRwSparseFeaturesDist(WORLD, 2, [1, 1, 1, 1], [8, 8])
    world = Lockstep(2, 2)
    with pytest.raises(CollectiveError) as caught:
        world.run(lambda rank: dist(rank, make_jagged([1, 1], 2, None if rank.rank else torch.ones(2))))
    assert str(caught.value) == (
        "group world: all_to_all_single 'input_dist.splits': rank 0 sends 32 bytes to rank 1, which expects 24"
    )


def test_positions_travel_in_the_dtype_of_the_ids_on_cpu() -> None:
    dist = TwRwSparseFeaturesDist(WORLD, 2, [1, 1, 0, 0], [8], has_feature_processor=True)
    results = Lockstep(2, 2).run(lambda rank: dist(rank, make_jagged([3], 1)))
    assert [result.weights.tolist() for result in results] == [[0, 1, 2] * 4, [], [], []]
    assert {result.weights.dtype for result in results} == {torch.int64}


def test_a_rank_without_samples_takes_part_in_a_variable_batch() -> None:
    dist = TwRwSparseFeaturesDist(WORLD, 2, [1, 1, 1, 1], [8, 8])
    empty = replace(make_jagged([], 2), stride=None, stride_per_key_per_rank=((0,), (0,)))
    full = replace(make_jagged([2, 1], 2), stride=None, stride_per_key_per_rank=((1,), (1,)))
    results = Lockstep(2, 2).run(lambda rank: dist(rank, full if rank.rank == 3 else empty))
    assert [result.stride_per_key_per_rank for result in results] == [((0, 0, 0, 1),)] * 4
    assert [result.values.tolist() for result in results] == [[0, 1], [], [2], []]


def test_a_single_rank_sends_nothing() -> None:
    world = Lockstep(1, 1)
    dist = TwRwSparseFeaturesDist(Group("world", (0,)), 1, [1], [8])
    (result,) = world.run(lambda rank: dist(rank, make_jagged([3, 2], 1)))
    assert (result.values.tolist(), result.batch_per_rank, world.log[0]) == ([0, 1, 2, 3, 4], (2,), [])


Sample = tuple[str, int, int]  # its key, the rank that it is from, and its place in that rank's batch


@examples(40)
@given(st.integers(1, 3), st.integers(1, 3), st.booleans(), st.data())
def test_the_exchange_loses_and_invents_no_id_and_keeps_the_order_inside_a_bag(
    hosts: int, local: int, by_key: bool, data: st.DataObject
) -> None:
    counts = data.draw(st.lists(st.integers(0, 2), min_size=hosts, max_size=hosts))
    rows, ranks = [data.draw(st.integers(1, 50)) for _ in range(sum(counts))], hosts * local
    world = Group("world", tuple(range(ranks)))
    dist = TwRwSparseFeaturesDist(world, local, [count for count in counts for _ in range(local)], rows)
    inputs = [draw(data, rows, by_key) for _ in range(ranks)]
    results = Lockstep(hosts, local).run(lambda rank: dist(rank, inputs[rank.rank]))
    strides = [given.stride_per_key for given in inputs]
    came: dict[Sample, list[tuple[float, int]]] = defaultdict(list)
    for rank, got in enumerate(results):
        offsets = {f"f{index}": block * (rank % local) for index, block in enumerate(dist.block_sizes)}
        for sample, bag in samples_of(got, dist.source_order, strides):
            assert bag == sorted(bag)
            came[sample] += [(serial, row + offsets[sample[0]]) for serial, row in bag]
    sent = {sample: bag for rank, given in enumerate(inputs) for sample, bag in samples_of(given, [rank], strides)}
    assert {sample: sorted(bag) for sample, bag in came.items()} == sent


def draw(data: st.DataObject, rows: list[int], by_key: bool) -> KeyedJagged:
    """Every id has its own number as its weight."""
    batch, sizes = data.draw(st.integers(0, 3)), st.lists(st.integers(0, 3), max_size=3)
    each = st.lists(st.integers(0, 3), min_size=batch, max_size=batch)
    bags = [data.draw(sizes if by_key else each) for _ in rows]
    ids = [data.draw(st.integers(0, rows[key] - 1)) for key, own in enumerate(bags) for _ in range(sum(own))]
    return KeyedJagged(
        keys=tuple(f"f{index}" for index in range(len(rows))),
        values=torch.tensor(ids, dtype=torch.int64),
        lengths=torch.tensor([size for own in bags for size in own], dtype=torch.int32),
        weights=torch.arange(len(ids), dtype=torch.float64),
        stride=None if by_key else batch,
        stride_per_key_per_rank=tuple((len(own),) for own in bags) if by_key else None,
    )


def samples_of(
    features: KeyedJagged, sources: Sequence[int], strides: list[tuple[int, ...]]
) -> list[tuple[Sample, list[tuple[float, int]]]]:
    """Every bag's sample, and its ids behind their numbers; `strides[rank][key]`: samples that each rank had."""
    assert features.weights is not None
    sizes = features.lengths.tolist()
    rows, serials = (tensor.split(sizes) for tensor in (features.values, features.weights))
    keys = [(key, int(key.removeprefix("f"))) for key in features.keys]
    order = [(key, rank, one) for key, index in keys for rank in sources for one in range(strides[rank][index])]
    bags = [list(zip(weight.tolist(), row.tolist(), strict=True)) for weight, row in zip(serials, rows, strict=True)]
    return list(zip(order, bags, strict=True))


def test_constructors_take_their_arguments_in_the_order_of_torchrec() -> None:
    wanted = {
        TwRwSparseFeaturesDist: (
            "pg local_size features_per_rank feature_hash_sizes device has_feature_processor need_pos"
        ),
        TwSparseFeaturesDist: "pg features_per_rank",
        RwSparseFeaturesDist: "pg num_features feature_hash_sizes",
        DpSparseFeaturesDist: "",
        v0_2_0.TwRwSparseFeaturesDist: (
            "pg intra_pg id_list_features_per_rank id_score_list_features_per_rank id_list_feature_hash_sizes"
            " id_score_list_feature_hash_sizes device has_feature_processor"
        ),
    }
    for made, names in wanted.items():
        parameters = inspect.signature(made).parameters.values()
        assert " ".join(one.name for one in parameters if one.kind is not one.KEYWORD_ONLY) == names


def test_row_wise_needs_the_rows_of_every_feature() -> None:
    with pytest.raises(ValueError, match=r"^feature_hash_sizes has 1 items, expected 2$"):
        RwSparseFeaturesDist(WORLD, 2, [8])


ERRORS = {
    "local_size = 3: expected a divisor of the group's size 4": (WORLD, 3, [1, 1, 1, 1], [8, 8]),
    "features_per_rank has 3 items, expected 4": (WORLD, 2, [1, 1, 1], [8, 8]),
    "feature_hash_sizes has 1 items, expected 2": (WORLD, 2, [1, 1, 1, 1], [8]),
}


@pytest.mark.parametrize("sentence", ERRORS)
def test_sizes_that_do_not_fit_are_one_sentence(sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        TwRwSparseFeaturesDist(*ERRORS[sentence])


def test_table_wise_needs_a_count_for_every_rank() -> None:
    with pytest.raises(ValueError, match=r"^features_per_rank has 1 items, expected 4$"):
        TwSparseFeaturesDist(WORLD, [1])
