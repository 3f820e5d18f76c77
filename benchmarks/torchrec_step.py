"""Records in which order a training step of real TorchRec issues its collectives, for tests/data/torchrec_step.json.

    python -m venv /tmp/torchrec
    /tmp/torchrec/bin/pip install torch==2.13.0 torchmetrics tqdm pyre-extensions iopath tensordict
    /tmp/torchrec/bin/pip install --no-deps fbgemm-gpu-cpu==1.8.0 torchrec==1.8.0
    /tmp/torchrec/bin/python benchmarks/torchrec_step.py > tests/data/torchrec_step.json

TorchRec's own DLRM, eager, with a table of each of three sharding types, on two gloo ranks: of the second step's
collectives on rank 0 the name, the sizes of what is sent (an element's bytes, and how many) and where it was issued.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import Tensor
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.sharding_plan import (
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

RANKS, BATCH, DIM, ROWS = 2, 8, 16, 40
TABLES = {"t0": table_wise, "t1": row_wise, "t2": data_parallel, "t3": table_wise}
NAMES = ("all_to_all_single", "all_reduce", "reduce_scatter_tensor", "all_gather_into_tensor", "reduce_scatter")


def log_calls(found: list[dict[str, Any]]) -> None:
    """Let each collective of torch.distributed note what it is given."""
    for name in NAMES:
        own = getattr(dist, name)

        def noted(*arguments: Any, _own: Any = own, _name: str = name, **named: Any) -> Any:
            given = [each for each in (*arguments, *named.values()) if isinstance(each, Tensor)]
            sent = given[0] if _name == "all_reduce" else named.get("input", given[-1])
            found.append({"op": _name, "element_bytes": sent.element_size(), "elements": sent.numel()})
            return _own(*arguments, **named)

        setattr(dist, name, noted)


def step_of(rank: int) -> list[dict[str, Any]]:
    configs = [
        EmbeddingBagConfig(name=name, embedding_dim=DIM, num_embeddings=ROWS, feature_names=[f"f_{name}"])
        for name in TABLES
    ]
    tables = EmbeddingBagCollection(tables=configs, device=torch.device("meta"))
    apply_optimizer_in_backward(torch.optim.SGD, tables.parameters(), {"lr": 0.1})
    model = DLRMTrain(DLRM(tables, 4, [8, DIM], [8, 1], dense_device=torch.device("cpu")))
    sharder: ModuleSharder[Any] = EmbeddingBagCollectionSharder()
    places: dict[str, Any] = {
        name: (kind(rank=number % RANKS, compute_kernel="fused") if kind is table_wise else kind())
        for number, (name, kind) in enumerate(TABLES.items())
    }
    plan = construct_module_sharding_plan(
        tables, places, sharder, local_size=RANKS, world_size=RANKS, device_type="cpu"
    )
    path = "model.sparse_arch.embedding_bag_collection"
    found: list[dict[str, Any]] = []
    parallel = DistributedModelParallel(
        model,
        env=ShardingEnv.from_process_group(dist.group.WORLD),
        device=torch.device("cpu"),
        plan=ShardingPlan({path: plan}),
        sharders=[sharder],
    )
    for part, label in ((model.model.dense_arch, "dense_arch"), (model.model.over_arch, "over_arch")):
        part.register_forward_hook(lambda *_, label=label: found.append({"op": f"{label} forward"}))
        part.register_full_backward_hook(lambda *_, label=label: found.append({"op": f"{label} backward"}))
    optimizer = torch.optim.SGD([each for name, each in parallel.named_parameters() if "sparse" not in name], lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    log_calls(found)
    for _ in range(2):
        found.clear()
        optimizer.zero_grad()
        ids = torch.randint(0, ROWS, (len(TABLES) * BATCH,), generator=generator)
        lengths = torch.ones(len(TABLES) * BATCH, dtype=torch.int64)
        features = KeyedJaggedTensor(keys=[f"f_{name}" for name in TABLES], values=ids, lengths=lengths)
        batch = Batch(torch.rand(BATCH, 4), features, torch.ones(BATCH))
        loss, _ = parallel(batch)
        loss.backward()
        optimizer.step()
    return found


class Batch:
    """What DLRMTrain takes."""

    def __init__(self, dense: Tensor, sparse: KeyedJaggedTensor, labels: Tensor) -> None:
        self.dense_features, self.sparse_features, self.labels = dense, sparse, labels


def run(rank: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29561", "RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(RANKS)}
    dist.init_process_group("gloo")
    found = step_of(rank)
    if rank == 0:
        told = {"made_by": "benchmarks/torchrec_step.py", "torchrec": "1.8.0", "torch": torch.__version__}
        json.dump(told | {"batch": BATCH, "dim": DIM, "rows": ROWS, "calls": found}, sys.stdout, indent=1)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(run, nprocs=RANKS)
