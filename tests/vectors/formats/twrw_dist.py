"""TwRwSparseFeaturesDist from end to end on its ranks, as TorchRec 1.8.0 and 0.2.0 sent and received."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.sparse.input_dist import TwRwSparseFeaturesDist
from scenarios.sparse.keyed_jagged import KeyedJagged
from tests.contract.worlds import WORLDS
from tests.vectors import v0_2_0
from tests.vectors.fields import COUNT, TEXT, Each, Fields, Maybe, one_of
from tests.vectors.files import Case, Check, File, Format
from tests.vectors.formats.sparse_features import (
    EXCHANGE,
    INPUT,
    NOTE,
    OUTPUT,
    NotingRank,
    check_features,
    check_features_per_rank,
    check_ranks,
    features_of,
)
from tests.vectors.plays import Outcome

SPLITS = Fields({"lengths": Each(COUNT), "values": Each(COUNT)}, {"strides": Each(COUNT), "weights": Each(COUNT)})
CASE = Fields({**EXCHANGE, "outputs": Each(OUTPUT), "send_splits": Each(SPLITS)}, NOTE)

SCORES = Fields(
    {
        "features_per_node": Each(COUNT),
        "keys": Each(TEXT),
        "hash_sizes": Each(COUNT),
        "inputs": Each(INPUT),
        "outputs": Each(Maybe(OUTPUT)),
    }
)
OLD_CASE = Fields(
    {**EXCHANGE, "need_pos": one_of(False), "outputs": Each(Maybe(OUTPUT)), "id_score_list": SCORES}, NOTE
)


def today(case: Case) -> TwRwSparseFeaturesDist:
    return TwRwSparseFeaturesDist(
        Group("world", tuple(range(case["world_size"]))),
        case["local_size"],
        case["features_per_rank"],
        case["hash_sizes"],
        None,
        case["has_feature_processor"],
        case["need_pos"],
    )


async def exchange(rank: Rank, case: Case) -> tuple[KeyedJagged, dict[str, list[int]]]:
    """What came, and how what was sent was split."""
    noting: Any = NotingRank(rank)
    given = features_of(case, case["inputs"][rank.rank], case["keys"])
    return await today(case)(noting, given), noting.splits


def positions_of(case: Case, sent: bool) -> str | None:
    """The dtype of weights that are positions, where any are sent: the note alone says only what they were cast to."""
    return case["index_dtype"] if sent and "note" in case else None


def check(case: Case, outcome: Callable[[], Outcome]) -> None:
    dist = today(case)
    assert list(dist.block_sizes) == case["block_sizes"]
    assert list(dist.staggered_shuffle) == case["staggered_shuffle"]
    assert list(dist.features_per_node) == case["features_per_node"]
    for rank, (got, splits) in enumerate(outcome().returned):
        weighted = case["inputs"][rank]["weights"] is not None
        sent = case["need_pos"] if weighted else case["has_feature_processor"]
        check_features(got, case["outputs"][rank], positions_of(case, sent))
        check_splits(case, got, splits, case["send_splits"][rank])


def check_splits(case: Case, got: KeyedJagged, splits: dict[str, list[int]], expected: dict[str, list[int]]) -> None:
    """One row of sizes to every rank, then what was recorded; where there is nobody to send to, all stays here."""
    if case["world_size"] == 1:
        assert splits == {}
        assert expected == stays_here(got)
        return
    columns = len(expected) + ("strides" not in expected)
    assert splits == {"splits": [columns] * case["world_size"], **expected}


def stays_here(got: KeyedJagged) -> dict[str, list[int]]:
    """What the only rank of a world sends to itself, as the recorder counts it."""
    counts = {"lengths": got.lengths.numel(), "values": got.values.numel()}
    if got.stride_per_key_per_rank is not None:
        counts["strides"] = len(got.stride_per_key_per_rank)
    if got.weights is not None:
        counts["weights"] = got.weights.numel()
    return {label: [count] for label, count in counts.items()}


def old(case: Case) -> v0_2_0.TwRwSparseFeaturesDist:
    local, scored = case["local_size"], case["id_score_list"]
    return v0_2_0.TwRwSparseFeaturesDist(
        Group("world", tuple(range(case["world_size"]))),
        Group("intra", tuple(range(local))),
        case["features_per_rank"],
        [count for count in scored["features_per_node"] for _ in range(local)],
        case["hash_sizes"],
        scored["hash_sizes"],
        None,
        case["has_feature_processor"],
    )


async def exchange_old(rank: Rank, case: Case) -> tuple[KeyedJagged | None, KeyedJagged | None, list[str]]:
    """What came without scores and with, and the labels of the exchanges."""
    noting: Any = NotingRank(rank)
    scored = case["id_score_list"]
    lists = features_of(case, case["inputs"][rank.rank], case["keys"])
    scores = features_of(case, scored["inputs"][rank.rank], scored["keys"])
    given = v0_2_0.SparseFeatures(id_list_features=lists, id_score_list_features=scores)
    came = await old(case)(noting, given)
    return came.id_list_features, came.id_score_list_features, list(noting.splits)


def check_old(case: Case, outcome: Callable[[], Outcome]) -> None:
    dist = old(case).id_list
    assert list(dist.block_sizes) == case["block_sizes"]
    assert list(dist.staggered_shuffle) == case["staggered_shuffle"]
    assert list(dist.features_per_node) == case["features_per_node"]
    positions = positions_of(case, case["has_feature_processor"])
    for rank, (lists, scores, labels) in enumerate(outcome().returned):
        check_features(lists, case["outputs"][rank], positions)
        check_features(scores, case["id_score_list"]["outputs"][rank], None)
        assert not any("splits" in label for label in labels)


def replays(file: File, where: str, case: Case) -> Iterator[tuple[str, Check]]:
    is_old = file.say("versions")["torchrec"] == "0.2.0"
    (OLD_CASE if is_old else CASE).check(case, where)
    by_rank = {name: case[name] for name in ("features_per_rank", "inputs", "outputs")}
    if is_old:
        by_rank |= {f"id_score_list.{name}": case["id_score_list"][name] for name in ("inputs", "outputs")}
    else:
        by_rank["send_splits"] = case["send_splits"]
    check_ranks(case, where, by_rank)
    check_features_per_rank(case, where)
    hosts = case["world_size"] // case["local_size"]
    for world in WORLDS:
        batch = file.batch(world, hosts, case["local_size"])
        yield (
            world,
            partial(check_old if is_old else check, case, batch.add(exchange_old if is_old else exchange, case)),
        )


FORMAT = Format(
    name="twrw_dist",
    cases="cases",
    signature=frozenset({"features_per_rank", "staggered_shuffle"}),
    head={
        "about": TEXT,
        "layout": TEXT,
        "versions": Fields({"torchrec": one_of("1.8.0", "1.9.2", "0.2.0"), "torch": TEXT}),
    },
    replays=replays,
)
