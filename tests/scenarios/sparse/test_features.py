"""Several features a table: their way is that of TorchRec's EmbeddingBagCollection, to the last id and embedding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scenarios.config.scenario import ShardingType
from scenarios.seam.rank import Rank
from scenarios.sparse.groups import Lookup, ShardedGroup, build_groups, outputs_to_tables
from scenarios.sparse.keyed_jagged import KeyedJagged
from scenarios.sparse.tables import ShardedTable, TableShard
from tests.lockstep import Lockstep
from tests.scenarios.sparse.test_groups import row_shards

RECORDED = json.loads((Path(__file__).parents[2] / "data/torchrec_step.json").read_text())
SHARED, ROWS, DIM, RANKS = RECORDED["shared"], RECORDED["rows"], RECORDED["dim"], [0, 1]


def whole(rank: int, columns: tuple[int, int] = (0, DIM)) -> TableShard:
    return TableShard(rank=rank, row_offset=0, rows=ROWS, column_offset=columns[0], columns=columns[1])


# As benchmarks/torchrec_step.py places them.
PLACES: dict[str, tuple[ShardingType, list[TableShard]]] = {
    "t0": ("table_wise", [whole(0)]),
    "t1": ("row_wise", row_shards(ROWS, RANKS, (0, DIM))),
    "t2": ("data_parallel", [whole(rank) for rank in RANKS]),
    "t3": ("table_wise", [whole(1)]),
    "t4": ("column_wise", [whole(rank, (rank * DIM // 2, DIM // 2)) for rank in RANKS]),
}


def groups() -> tuple[ShardedGroup, ...]:
    tables = [
        ShardedTable(
            name=name, rows=ROWS, dim=DIM, sharding_type=kind, shards=shards, features=tuple(SHARED["features"][name])
        )
        for name, (kind, shards) in PLACES.items()
    ]
    return build_groups(tables, len(RANKS), len(RANKS))


def features_of(rank: int) -> KeyedJagged:
    bags = SHARED["bags"][0][rank]
    every = [bag for of_key in bags.values() for bag in of_key]
    ids, lengths = torch.tensor([one for bag in every for one in bag]), torch.tensor([len(bag) for bag in every])
    return KeyedJagged.from_lengths_sync([*bags], ids, lengths)


def rows_of(lookup: Lookup) -> Tensor:
    """Row r of table n is 1000 n + r + c / 64 in column c, as in the recorded run."""
    rows = torch.arange(lookup.rows) + lookup.row_offset
    columns = torch.arange(lookup.columns) + lookup.column_offset
    return 1000.0 * int(lookup.table[1:]) + rows[:, None] + columns / 64


def pool(group: ShardedGroup, rank: Rank, features: KeyedJagged) -> Tensor:
    """[samples, columns of all keys], in the order in which the features came."""
    lookups = group.lookups(rank.place)
    lengths, pooled = features.lengths.view(len(lookups), -1), []
    of_keys = features.values.split(lengths.sum(1).tolist())
    for lookup, ids, of_key in zip(lookups, of_keys, lengths, strict=True):
        bags = rows_of(lookup)[ids].split(of_key.tolist())
        pooled.append(torch.stack([bag.sum(0) for bag in bags]))
    return torch.cat(pooled, 1)


async def exchange(rank: Rank) -> dict[str, Any]:
    """What one rank is given, as the recorded run has it."""
    arrived, outputs = [], []
    for group in groups():
        features = await group.input(rank, features_of(rank.rank))
        came = {"keys": [*features.keys], "lengths": features.lengths.tolist(), "values": features.values.tolist()}
        arrived.append(came)
        outputs.append(await group.forward(rank, pool(group, rank, features), features.batch_per_rank))
    pooled = outputs_to_tables(groups(), outputs)
    return {
        "arrived": arrived,
        "keys": [*pooled],
        "pooled": torch.cat([*pooled.values()], 1).tolist(),
    }


def test_ids_and_embeddings_travel_as_with_torchrec() -> None:
    found = Lockstep(1, len(RANKS)).run(exchange)
    assert list(found) == SHARED["ranks"]


def test_columns_of_a_table_are_a_key_for_each_feature() -> None:
    """Shard by shard, and of each feature by feature."""
    column_wise = groups()[-1]
    assert column_wise.features == ("i", "j", "i", "j")
    assert [(one.feature, one.column_offset) for one in column_wise.columns] == [
        *(("i", 0), ("j", 0), ("i", DIM // 2), ("j", DIM // 2)),
    ]
