"""TwRwPooledEmbeddingDist from end to end on its ranks, as TorchRec 1.8.0 sums and sends rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from scenarios.seam.rank import Rank
from scenarios.sparse.output_dist import TwRwPooledEmbeddingDist
from tests.contract.worlds import WORLDS
from tests.vectors.fields import COUNT, NUMBER, SIZE, TEXT, Each, Fields
from tests.vectors.files import Case, Check, File, Format
from tests.vectors.formats.sparse_features import check_ranks
from tests.vectors.plays import Outcome

ROWS = Each(Each(Each(NUMBER)))
CASE = Fields(
    {
        "id": TEXT,
        "tag": TEXT,
        "world_size": SIZE,
        "local_size": SIZE,
        "batch_per_rank": Each(COUNT),
        "dim_sum_per_node": Each(COUNT),
        "inputs": ROWS,
        "outputs": ROWS,
    }
)


async def exchange(rank: Rank, case: Case) -> Tensor:
    rows, width = sum(case["batch_per_rank"]), case["dim_sum_per_node"][rank.host]
    pooled = torch.tensor(case["inputs"][rank.rank], dtype=torch.float32).reshape(rows, width)
    dist = TwRwPooledEmbeddingDist(dim_sum_per_node=tuple(case["dim_sum_per_node"]))
    return await dist.forward(rank, pooled, case["batch_per_rank"])


def check(case: Case, outcome: Callable[[], Outcome]) -> None:
    played = outcome()
    assert [rows.tolist() for rows in played.returned] == case["outputs"]
    for rank, spans in enumerate(played.spans):
        kinds = {span.kind for span in spans}
        assert ("reduce_scatter_tensor" in kinds) == scatters(case, rank)


def scatters(case: Case, rank: int) -> bool:
    """A reduce-scatter needs chunks of one size, something in them, and somebody to share the sum with."""
    local, batches = case["local_size"], case["batch_per_rank"]
    chunks = [sum(batches[place::local]) for place in range(local)]
    return local > 1 and min(chunks) == max(chunks) > 0 < case["dim_sum_per_node"][rank // local]


def replays(file: File, where: str, case: Case) -> Iterator[tuple[str, Check]]:
    CASE.check(case, where)
    check_ranks(case, where, {name: case[name] for name in ("batch_per_rank", "inputs", "outputs")})
    hosts = case["world_size"] // case["local_size"]
    for world in WORLDS:
        yield world, partial(check, case, file.batch(world, hosts, case["local_size"]).add(exchange, case))


FORMAT = Format(
    name="twrw_output_dist",
    cases="cases",
    signature=frozenset({"batch_per_rank", "dim_sum_per_node"}),
    head={"about": TEXT},
    replays=replays,
)
