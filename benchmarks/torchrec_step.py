"""Records in which order a training step of real TorchRec issues its collectives, for tests/data/torchrec_step.json.

    make .venv-benchmarks/.installed
    .venv-benchmarks/bin/python -m benchmarks.torchrec_step > tests/data/torchrec_step.json

TorchRec's own DLRM, eager, with a table of each of three sharding types, on two gloo ranks: of the second step's
collectives on rank 0 the name, the sizes of what is sent (an element's bytes, and how many) and where it was issued.
DDP's own reductions are done by torch's hook that does the same in Python, so that they are seen.

Then the same with several features a table ("shared"): of a column-wise table, too. There the ids of all steps are
written down, and of step 0's on both ranks what the exchange of ids brings, by sharding type, and what the pooled
embeddings are by key, of weights as `weigh` gives them. And what the planner makes of such tables on GPUs ("planned").
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder, ShardedEmbeddingBagCollection
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.sharding_plan import (
    column_wise,
    construct_module_sharding_plan,
    data_parallel,
    row_wise,
    table_wise,
)
from torchrec.distributed.types import ModuleSharder, ShardingEnv, ShardingPlan
from torchrec.models.dlrm import DLRM, DLRMTrain
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

RANKS, BATCH, DIM, ROWS, STEPS = 2, 8, 16, 40, 2
TABLES = {"t0": table_wise, "t1": row_wise, "t2": data_parallel, "t3": table_wise}
FEATURES = {name: [f"f_{name}"] for name in TABLES}
SHARED_TABLES = TABLES | {"t4": column_wise}
SHARED = {"t0": ["a", "b"], "t1": ["c", "d", "e"], "t2": ["f", "g"], "t3": ["h"], "t4": ["i", "j"]}
LENGTHS = (0, 3)  # of a bag, if it is shared
PLANNED = {  # pooling factors of each feature
    "data_parallel": [20.0, 0.5],
    **{
        "table_wise": [3.0, 1.5, 7.0],
        "row_wise": [20.0, 0.5],
        "table_row_wise": [20.0, 0.5],
        "column_wise": [2.0, 9.0],
    },
    **{"table_column_wise": [20.0, 0.25], "grid_shard": [1.0, 4.0]},
}
NAMES = ("all_to_all_single", "all_reduce", "reduce_scatter_tensor", "all_gather_into_tensor", "reduce_scatter")


def log_calls(found: list[dict[str, Any]]) -> None:
    """Let each collective of torch.distributed note what it is given."""
    for name in NAMES:
        own = getattr(dist, name)

        def note(*arguments: Any, _own: Any = own, _name: str = name, **named: Any) -> Any:
            given = [each for each in (*arguments, *named.values()) if isinstance(each, Tensor)]
            sent = given[0] if _name == "all_reduce" else named.get("input", given[-1])
            found.append({"op": _name, "element_bytes": sent.element_size(), "elements": sent.numel()})
            return _own(*arguments, **named)

        setattr(dist, name, note)


def place(kind: Any, number: int) -> Any:
    """Where a table of this sharding type is, the `number`-th of all."""
    if kind is table_wise:
        return table_wise(rank=number % RANKS, compute_kernel="fused")
    return column_wise(ranks=[*range(RANKS)]) if kind is column_wise else kind()


def parallel_of(kinds: dict[str, Any], features: dict[str, list[str]]) -> DistributedModelParallel:
    """TorchRec's DLRM over these tables."""
    configs = [
        EmbeddingBagConfig(name=name, embedding_dim=DIM, num_embeddings=ROWS, feature_names=features[name])
        for name in kinds
    ]
    tables = EmbeddingBagCollection(tables=configs, device=torch.device("meta"))
    apply_optimizer_in_backward(torch.optim.SGD, tables.parameters(), {"lr": 0.1})
    model = DLRMTrain(DLRM(tables, 4, [8, DIM], [8, 1], dense_device=torch.device("cpu")))
    sharder: ModuleSharder[Any] = EmbeddingBagCollectionSharder()
    places = {name: place(kind, number) for number, (name, kind) in enumerate(kinds.items())}
    plan = construct_module_sharding_plan(
        tables, places, sharder, local_size=RANKS, world_size=RANKS, device_type="cpu"
    )
    path = "model.sparse_arch.embedding_bag_collection"
    return DistributedModelParallel(
        model,
        env=ShardingEnv.from_process_group(dist.group.WORLD),
        device=torch.device("cpu"),
        plan=ShardingPlan({path: plan}),
        sharders=[sharder],
    )


def step_of(
    parallel: DistributedModelParallel, batches: Sequence[KeyedJaggedTensor], found: list[dict[str, Any]]
) -> None:
    """Train a step on each batch; `found` then has the last one's calls."""
    model = parallel.module.model
    for part, label in ((model.dense_arch, "dense_arch"), (model.over_arch, "over_arch")):
        part.register_forward_hook(lambda *_, label=label: found.append({"op": f"{label} forward"}))
        part.register_full_backward_hook(lambda *_, label=label: found.append({"op": f"{label} backward"}))
    sharded = model.sparse_arch.embedding_bag_collection
    for reduced in (parallel._dmp_wrapped_module, *sharded._lookups):
        if isinstance(reduced, DistributedDataParallel):
            reduced.register_comm_hook(None, allreduce_hook)
    optimizer = torch.optim.SGD([each for name, each in parallel.named_parameters() if "sparse" not in name], lr=0.1)
    for features in batches:
        found.clear()
        optimizer.zero_grad()
        loss, _ = parallel(Batch(torch.rand(BATCH, 4), features, torch.ones(BATCH)))
        loss.backward()
        optimizer.step()


class Batch:
    """What DLRMTrain takes."""

    def __init__(self, dense: Tensor, sparse: KeyedJaggedTensor, labels: Tensor) -> None:
        self.dense_features, self.sparse_features, self.labels = dense, sparse, labels


def draw_bags(features: dict[str, list[str]], lengths: tuple[int, int]) -> list[list[dict[str, list[list[int]]]]]:
    """By step and rank each feature's bags."""
    generator = random.Random(5)
    keys = [key for of_table in features.values() for key in of_table]
    bag = [[generator.randrange(ROWS) for _ in range(generator.randint(*lengths))] for _ in range(10_000)]
    bags = iter(bag)
    return [[{key: [next(bags) for _ in range(BATCH)] for key in keys} for _ in range(RANKS)] for _ in range(STEPS)]


def make_jagged(bags: dict[str, list[list[int]]]) -> KeyedJaggedTensor:
    every = [bag for of_key in bags.values() for bag in of_key]
    ids, lengths = [one for bag in every for one in bag], [len(bag) for bag in every]
    return KeyedJaggedTensor(keys=[*bags], values=torch.tensor(ids), lengths=torch.tensor(lengths))


def weigh(tables: ShardedEmbeddingBagCollection) -> None:
    """Row r of table n is 1000 n + r + c / 64 in column c: sums of few are exact."""
    for name, weight in tables.state_dict().items():
        base = 1000.0 * int(name.split(".")[1][1:])
        shards = weight.local_shards() if hasattr(weight, "local_shards") else None
        places = [(0, 0, weight)] if shards is None else [(*one.metadata.shard_offsets, one.tensor) for one in shards]
        for row, column, part in places:
            rows, columns = torch.arange(part.shape[0]) + row, torch.arange(part.shape[1]) + column
            with torch.no_grad():
                part.copy_(base + rows[:, None] + columns / 64)


def exchange(parallel: DistributedModelParallel, features: KeyedJaggedTensor) -> dict[str, Any]:
    """What comes for this rank to look up, by sharding type, and the pooled embeddings."""
    tables = parallel.module.model.sparse_arch.embedding_bag_collection
    weigh(tables)
    context = tables.create_context()
    arrived = tables.input_dist(context, features).wait().wait()
    came = [{"keys": one.keys(), "lengths": one.lengths().tolist(), "values": one.values().tolist()} for one in arrived]
    pooled = tables.compute_and_output_dist(context, arrived).wait()
    return {"arrived": came, "keys": pooled.keys(), "pooled": pooled.values().tolist()}


def plan() -> list[dict[str, Any]]:
    """Of 2 hosts of 2 GPUs, a table of each sharding type: pooling factors, storage and perf of its first shard."""
    names = {kind: [f"{kind}{at}" for at in range(len(each))] for kind, each in PLANNED.items()}
    tables = EmbeddingBagCollection(
        tables=[
            EmbeddingBagConfig(name=kind, embedding_dim=256, num_embeddings=1001, feature_names=names[kind])
            for kind in PLANNED
        ],
        device=torch.device("meta"),
    )
    constraints = {
        kind: ParameterConstraints(
            sharding_types=[kind],
            compute_kernels=["dense" if kind == "data_parallel" else "fused"],
            pooling_factors=factors,
        )
        for kind, factors in PLANNED.items()
    }
    topology = Topology(world_size=4, local_world_size=2, compute_device="cuda")
    enumerator = EmbeddingEnumerator(topology, batch_size=64, constraints=constraints)
    options = enumerator.enumerate(torch.nn.ModuleDict({"tables": tables}), [EmbeddingBagCollectionSharder()])
    return [
        {
            "sharding_type": one.sharding_type,
            "pooling_factors": one.input_lengths,
            "hbm": one.shards[0].storage.hbm,
            "perf": [getattr(one.shards[0].perf, part) for part in PERF],
        }
        for one in options
    ]


PERF = ("fwd_compute", "fwd_comms", "bwd_compute", "bwd_comms", "input_dist_comms")


def run(rank: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29561", "RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(RANKS)}
    dist.init_process_group("gloo")
    found: list[dict[str, Any]] = []
    log_calls(found)
    step_of(parallel_of(TABLES, FEATURES), [make_jagged(of[rank]) for of in draw_bags(FEATURES, (1, 1))], found)
    calls = [*found]
    bags = draw_bags(SHARED, LENGTHS)
    parallel = parallel_of(SHARED_TABLES, SHARED)
    step_of(parallel, [make_jagged(of[rank]) for of in bags], found)
    shared: dict[str, Any] = {"features": SHARED, "calls": [*found], "bags": bags}
    every: list[Any] = [None] * RANKS
    dist.all_gather_object(every, exchange(parallel, make_jagged(bags[0][rank])))
    if rank == 0:
        told = {"made_by": "benchmarks/torchrec_step.py", "torchrec": "1.8.0", "torch": torch.__version__}
        sizes = {"batch": BATCH, "dim": DIM, "rows": ROWS}
        more = {"calls": calls, "shared": shared | {"ranks": every}, "planned": plan()}
        text = json.dumps(told | sizes | more, indent=1)
        sys.stdout.write(re.sub(r"\s*\n\s*(-?[\d.e-]+|\])(?=,|\s)", r" \1", text))  # numbers side by side
    dist.destroy_process_group()


if __name__ == "__main__":
    spawn(run, nprocs=RANKS)
