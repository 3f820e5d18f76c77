"""Compares our planner with TorchRec's on random problems: ranks and errors of partitioners, costs of estimators.

    python -m benchmarks.differential_planner [PROBLEMS] [SEED]

Prints every problem on which they differ, and ends with 1 if there is any. TorchRec is installed as the head of
benchmarks/partition.py says; without it this ends with an error. Where both fail, the error's type, its error_type and
the start of its message are compared, up to where TorchRec prints an object.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.partition import torchrec_words
from scenarios import planner
from scenarios.planner.search.enumerator import cut

MIB = 1 << 20
KINDS = [kind.value for kind in planner.ShardingType]
MIXES = (
    KINDS,
    KINDS,
    ["table_wise", "column_wise"],
    ["table_row_wise", "table_column_wise", "table_wise"],
    ["grid_shard"],
)
REPRS = ("ShardingOptionGroup(",)
MENDED = ("IndexError",)  # a grid where there is no whole host: here it is a PlannerError
COSTS = ("fwd_compute", "fwd_comms", "bwd_compute", "bwd_comms", "input_dist_comms", "prefetch_compute")

Outcome = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """An option of a proposal; shards as bytes in three tiers and fields of a perf."""

    name: str
    path: str
    kind: str
    partition_by: str
    kernel: str
    dependency: str | None
    shards: Sequence[tuple[Sequence[int], Sequence[float]]]


@dataclass(frozen=True, slots=True)
class Problem:
    """A proposal, and what it is to be placed on."""

    tables: Sequence[Table]
    caps: dict[str, list[int]]
    ranks_per_host: int
    pod_size: int | None
    hbm_per_device: int | None
    sort_by: str
    balance_modules: bool

    @property
    def world_size(self) -> int:
        return len(self.caps["hbm_cap"])


def random_problem(draw: random.Random) -> Problem:
    local, hosts, pods = draw.randint(1, 4), draw.randint(1, 6), draw.choice([None, None, 1, 2])
    world = local * hosts + draw.choice([0, 0, 0, draw.randrange(local)])
    tables = random_tables(draw, world, local * (pods or 1))
    fullness = draw.choice([0.5, 0.9, 1.1, 1.5, 3, 10])
    caps = {
        name: random_caps(draw, int(sum(s[tier] for each in tables for s, _ in each.shards) * fullness / world), world)
        for tier, name in enumerate(("hbm_cap", "ddr_cap", "ssd_cap"))
    }
    hbm = draw.choice([None, None, 0, caps["hbm_cap"][0] + 1])
    return Problem(tables, caps, local, pods, hbm, draw.choice(["storage", "perf"]), draw.random() < 0.3)


def random_tables(draw: random.Random, world: int, group: int) -> list[Table]:
    largest, tiers = draw.choice([1, 3, 10, 10**9]), draw.choice([(1, 0, 0), (1, 1, 0), (1, 1, 1), (0, 1, 1)])
    times = draw.choice([[0.0, 0.1, 0.2, 0.3], [0.0], [1.0], [draw.uniform(0, 5) for _ in range(99)]])
    tables, mix = [], draw.choice(MIXES)
    for index in range(draw.choice([0, 1, 3, 8, 20])):
        kind = draw.choice(mix)
        count = {"row_wise": world, "data_parallel": world, "table_wise": 1, "table_row_wise": group}.get(kind)
        count = count or draw.randint(1, 5) * (group if kind == "grid_shard" else 1)
        count += draw.choice([0] * 40 + [-1, 1])
        rows = [
            ([draw.choice([0, 1, 1]) * draw.randint(0, largest) * tier for tier in tiers], draw.choices(times, k=6))
            for _ in range(count)
        ]
        by: str = planner.ShardingType(kind).partition_by.value
        tables.append(
            Table(
                name=f"t{index if draw.random() < 0.97 else 0}",
                path=draw.choice("aabc"),
                kind=kind,
                partition_by=by if draw.random() < 0.99 else draw.choice(["rack", "device", "host", "uniform"]),
                kernel=draw.choice(["fused", "key_value"]) if kind == "column_wise" else "fused",
                dependency=draw.choice("xy") if draw.random() < (0.3 if by == "host" else 0.02) else None,
                shards=rows,
            )
        )
    return tables


def random_caps(draw: random.Random, mean: int, world: int) -> list[int]:
    caps = [max(0, int(mean * draw.choice([1, 1, 1, 0.5, 1.5]))) for _ in range(world)]
    return draw.choice([caps, [mean] * world, [*caps[1:], -1]])


def proposal_of(problem: Problem, words: Any) -> list[Any]:
    """The proposal in the classes of `words`: ours or TorchRec's."""
    return [
        words.ShardingOption(
            name=table.name,
            tensor=None,
            module=(table.path, None),
            input_lengths=[1.0],
            batch_size=1,
            sharding_type=table.kind,
            partition_by=table.partition_by,
            compute_kernel=table.kernel,
            shards=[words.Shard([1, 1], [0, 0], words.Storage(*size), words.Perf(*ms)) for size, ms in table.shards],
            dependency=table.dependency,
            is_pooled=True,
        )
        for table in problem.tables
    ]


def place(problem: Problem, words: Any, *, partitioner: str) -> Outcome:
    """The ranks, or what the error said."""
    try:
        topology = words.Topology(
            problem.world_size,
            "cuda",
            local_world_size=problem.ranks_per_host,
            pod_size=problem.pod_size,
            custom_topology_data=words.CustomTopologyData(problem.caps, problem.world_size),
        )
        proposal = proposal_of(problem, words)
        if partitioner == "greedy":
            greedy = words.GreedyPerfPartitioner(words.SortBy(problem.sort_by), problem.balance_modules)
            greedy.partition(proposal, topology, problem.hbm_per_device)
        else:
            words.MemoryBalancedPartitioner(tolerance=0.5).partition(proposal, topology)
    except Exception as error:
        kind = getattr(getattr(error, "error_type", None), "value", None)
        return type(error).__name__, kind, start_of(str(error))
    return ("placed", *([shard.rank for shard in option.shards] for option in proposal))


def start_of(message: str) -> str:
    for mark in REPRS:
        message = message.split(mark, maxsplit=1)[0]
    return message


def same_placement(theirs: Outcome, ours: Outcome) -> bool:
    if theirs[0] in ("PlannerError", "AssertionError", "RuntimeError"):
        return theirs[:2] == ours[:2] and str(ours[2]).startswith(str(theirs[2]))
    return theirs == ours or theirs[0] in MENDED


def balanced_problem(draw: random.Random) -> Problem:
    """Large tables on equal ranks: where TorchRec's search does not give a rank memory that it has not."""
    rows = [
        [([draw.randint(0, 400) * MIB, 0, 0], draw.choices([0.0, 0.1, 1.0], k=6))] for _ in range(draw.randint(1, 30))
    ]
    tables = [
        Table(f"t{index}", "a", "table_wise", "device", "fused", None, shards) for index, shards in enumerate(rows)
    ]
    world = draw.randint(1, 6)
    caps = {"hbm_cap": [draw.choice([1000, 4000]) * MIB] * world, "ddr_cap": [0] * world, "ssd_cap": [0] * world}
    return Problem(tables, caps, world, None, None, "perf", False)


@dataclass(frozen=True, slots=True)
class Lookup:
    """One table on one topology, with all that the estimators look at."""

    ranks_per_host: int
    hosts: int
    pod_size: int | None
    kind: str
    kernel: str
    device: str
    rows: int
    dim: int
    dtype: torch.dtype
    lengths: list[float]
    is_pooled: bool
    is_weighted: bool
    batch_size: int
    load_factor: float | None
    optimizer: Any
    pipeline: str
    is_inference: bool


def random_lookup(draw: random.Random) -> Lookup:
    hosts, kind = draw.choice([1, 2, 4]), draw.choice(KINDS)
    return Lookup(
        ranks_per_host=draw.choice([1, 2, 4]),
        hosts=hosts,
        pod_size=draw.choice([None, 1, 2]) if hosts > 1 else None,
        kind=kind,
        kernel="dense" if kind == "data_parallel" else draw.choice(
            ["dense", "fused", "fused_uvm", "fused_uvm_caching", "key_value"]
        ),
        device=draw.choice(["cuda", "cuda", "cpu"]),
        rows=draw.choice([1, 5, 10007, 10**6]),
        dim=draw.choice([4, 48, 64, 128, 512]),
        dtype=draw.choice([torch.float32, torch.float16]),
        lengths=draw.choices([0.25, 1.0, 2.5, 20.0], k=draw.randint(1, 3)),
        is_pooled=draw.random() < 0.6,
        is_weighted=draw.random() < 0.3,
        batch_size=draw.choice([1, 32, 4096]),
        load_factor=draw.choice([None, 0.0, 0.1, 1.0]),
        optimizer=draw.choice([None, torch.optim.SGD, torch.optim.Adam, torch.optim.Adagrad]),
        pipeline=draw.choice(list(planner.PipelineType)).value,
        is_inference=draw.random() < 0.2,
    )  # fmt: skip


def costs(lookup: Lookup, words: Any) -> Outcome:
    """Perf and storage of every shard, or that there is an error."""
    world = lookup.ranks_per_host * lookup.hosts
    sizes: dict[str, Any] = {"local_world_size": lookup.ranks_per_host, "pod_size": lookup.pod_size}
    topology = words.Topology(world, lookup.device, **sizes)
    tensor = torch.empty(lookup.rows, lookup.dim, dtype=lookup.dtype, device="meta")
    if lookup.optimizer:
        tensor._optimizer_classes = [lookup.optimizer]  # type: ignore[attr-defined]
    cache = words.CacheParams(load_factor=lookup.load_factor)
    wished = {"t": words.ParameterConstraints(is_weighted=lookup.is_weighted)}
    shards = cut(lookup.kind, lookup.rows, lookup.dim, planner.Topology(world, lookup.device, **sizes))
    option = words.ShardingOption(
        name="t",
        tensor=tensor,
        module=("m", torch.nn.Module()),
        input_lengths=lookup.lengths,
        batch_size=lookup.batch_size,
        sharding_type=lookup.kind,
        partition_by="device",
        compute_kernel=lookup.kernel,
        shards=[words.Shard(shard.size, shard.offset) for shard in shards],
        is_pooled=lookup.is_pooled,
        cache_params=cache,
    )
    pipeline = words.PipelineType(lookup.pipeline)
    try:
        words.EmbeddingPerfEstimator(topology, wished, lookup.is_inference).estimate([option], words.sharders)
        storage = words.EmbeddingStorageEstimator(topology, wished, pipeline, is_inference=lookup.is_inference)
        storage.estimate([option], words.sharders)
    except Exception as error:
        return ("error", str(error))
    return tuple(
        [*(getattr(shard.perf, name) for name in COSTS), shard.storage.hbm, shard.storage.ddr, shard.storage.ssd]
        for shard in option.shards
    )


def same_costs(theirs: Outcome, ours: Outcome) -> bool:
    if theirs == ours or "error" in (theirs[0], ours[0]):
        return bool(theirs[0] == ours[0])
    return all(
        abs(a - b) <= 1e-12 * abs(a)
        for left, right in zip(theirs, ours, strict=True)
        for a, b in zip(left, right, strict=True)
    )


def compare(
    name: str,
    problem: Any,
    run: Callable[[Any], Outcome],
    same: Callable[[Outcome, Outcome], bool],
    sides: Sequence[Any],
) -> tuple[str, bool]:
    """What kind of outcome it was, and whether both agree."""
    theirs, ours = (run(words) for words in sides)
    agree = same(theirs, ours)
    if not agree:
        print(f"{name}: {problem}\n  TorchRec {theirs}\n  ours     {ours}")
    return f"{name}: {theirs[0] if isinstance(theirs[0], str) else 'priced'}", agree


def their_words() -> Any:
    """TorchRec's classes; ends the program where they are not installed."""
    words = torchrec_words()
    if words is None:
        sys.exit("TorchRec is not installed; the head of benchmarks/partition.py says how to install it")
    types = import_module("torchrec.distributed.types")
    vars(words).update(vars(import_module("torchrec.distributed.planner.shard_estimators")))
    words.PipelineType, words.CacheParams = types.PipelineType, types.CacheParams
    words.sharders = {"torch.nn.modules.module.Module": words.SharderData({}, {}, types.StorageUsageType.BASE)}
    return words


def main(problems: int = 1000, seed: int = 0) -> int:
    sides = (their_words(), SimpleNamespace(**vars(planner), sharders={}))
    seen, differing = Counter[str](), 0
    for number in range(problems):
        draw = random.Random(f"{seed}/{number}")
        greedy, balanced, lookup = random_problem(draw), balanced_problem(draw), random_lookup(draw)
        for name, agree in (
            compare("greedy", greedy, partial(place, greedy, partitioner="greedy"), same_placement, sides),
            compare("balanced", balanced, partial(place, balanced, partitioner="balanced"), same_placement, sides),
            compare("estimate", lookup, partial(costs, lookup), same_costs, sides),
        ):
            seen[name] += 1
            differing += not agree
    print("\n".join(f"{count:>7}  {name}" for name, count in sorted(seen.items())))
    print(f"{differing} of {3 * problems} problems differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
