"""TorchRec's DLRM on random data: tables sharded by DistributedModelParallel, the rest under DistributedDataParallel.

    torchrun --nproc-per-node 4 torchrec_dlrm.py --sharding table_row_wise
    python -m sim --hosts 2 --gpus-per-host 2 --profile emulated_200mbit --steps 5 torchrec_dlrm.py
    python -m sim --hosts 2 --gpus-per-host 8 --profile dgx_h100 --steps 5 torchrec_dlrm.py --sharding-group 8

Needs TorchRec (twinstep docs scripts: how to install it). Without --sharding its EmbeddingShardingPlanner chooses.
"""

import argparse
import os
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torchrec.distributed import DistributedModelParallel, TrainPipelineSparseDist
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DMPCollection
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.distributed.sharding_plan import (
    column_wise,
    construct_module_sharding_plan,
    data_parallel,
    grid_shard,
    row_wise,
    table_row_wise,
    table_wise,
)
from torchrec.distributed.types import ShardingEnv, ShardingPlan
from torchrec.models.dlrm import DLRM, DLRMTrain
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.keyed import KeyedOptimizerWrapper
from torchrec.optim.optimizers import in_backward_optimizer_filter
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor
from torchrec.streamable import Pipelineable

KINDS = ("table_wise", "row_wise", "column_wise", "table_row_wise", "grid_shard", "data_parallel", "mixed")

parser = argparse.ArgumentParser()
parser.add_argument("--sharding", choices=KINDS, help="of all tables; mixed: each kind in turn")
parser.add_argument("--hook", choices=("fp16", "powersgd"), help="how dense gradients are compressed")
parser.add_argument(
    "--pipeline", action="store_true", help="TrainPipelineSparseDist: ids travel beside the step before"
)
parser.add_argument("--sharding-group", type=int, help="2D parallelism, on GPUs: so many ranks share all tables")
parser.add_argument("--tables", type=int, default=8)
parser.add_argument("--rows", type=int, default=10_000)
parser.add_argument("--dim", type=int, default=64)
parser.add_argument("--ids", type=int, default=4, help="ids of a sample and table, in the mean")
parser.add_argument("--fixed", action="store_true", help="as many of each")
parser.add_argument("--batch-size", type=int, default=128)
parser.add_argument("--steps", type=int, default=1000)
options = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpu else torch.device("cpu")
if has_gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if has_gpu else "gloo")
rank, world, gpus = dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_WORLD_SIZE"])
features = [f"feature_{number}" for number in range(options.tables)]


class Batch(Pipelineable):
    """What DLRMTrain takes."""

    def __init__(self, dense: torch.Tensor, sparse: KeyedJaggedTensor, labels: torch.Tensor) -> None:
        self.dense_features, self.sparse_features, self.labels = dense, sparse, labels

    def to(self, device: torch.device, non_blocking: bool = False) -> "Batch":
        parts = (self.dense_features, self.sparse_features, self.labels)
        return Batch(*(part.to(device=device, non_blocking=non_blocking) for part in parts))

    def record_stream(self, stream: torch.Stream) -> None:
        for part in (self.dense_features, self.sparse_features, self.labels):
            part.record_stream(stream)

    def pin_memory(self) -> "Batch":
        return Batch(self.dense_features.pin_memory(), self.sparse_features.pin_memory(), self.labels.pin_memory())


def batches() -> Iterator[Batch]:
    """Random samples, others on each rank."""
    generator = torch.Generator().manual_seed(1 + rank)
    size = options.batch_size
    for _ in range(options.steps):
        lengths = torch.randint(2 * options.ids + 1, (len(features) * size,), generator=generator)
        lengths = torch.full_like(lengths, options.ids) if options.fixed else lengths
        ids = torch.randint(options.rows, (int(lengths.sum()),), generator=generator)
        sparse = KeyedJaggedTensor(features, ids, lengths=lengths)
        dense = torch.rand(size, 13, generator=generator)
        yield Batch(dense, sparse, torch.randint(2, (size,), generator=generator).float())


def shards(kind: str, number: int):
    """How the `number`-th table is sharded."""
    if kind == "table_wise":
        return table_wise(rank=number % world)
    if kind == "column_wise":
        return column_wise(ranks=[number % world, (number + 1) % world])
    if kind == "table_row_wise":
        return table_row_wise(host_index=number % (world // gpus))
    if kind == "grid_shard":
        hosts, columns = world // gpus, max(1, options.dim // 128)  # TorchRec cuts columns of 128
        return grid_shard(host_indexes=[(number + column) % hosts for column in range(columns)])
    return data_parallel() if kind == "data_parallel" else row_wise()


torch.manual_seed(0)
configs = [
    EmbeddingBagConfig(
        name=f"table_{feature}", embedding_dim=options.dim, num_embeddings=options.rows, feature_names=[feature]
    )
    for feature in features
]
tables = EmbeddingBagCollection(tables=configs, device=torch.device("meta"))
apply_optimizer_in_backward(torch.optim.SGD, tables.parameters(), {"lr": 0.05})
model = DLRMTrain(DLRM(tables, 13, [256, options.dim], [256, 128, 1], dense_device=device))
sharder = EmbeddingBagCollectionSharder()
if options.sharding is None:
    sharding_world = options.sharding_group or world
    topology = Topology(
        world_size=sharding_world, local_world_size=min(gpus, sharding_world), compute_device=device.type
    )
    constraints = {config.name: ParameterConstraints(pooling_factors=[float(options.ids)]) for config in configs}
    planner = EmbeddingShardingPlanner(topology=topology, batch_size=options.batch_size, constraints=constraints)
    plan = planner.collective_plan(model, [sharder], dist.group.WORLD)
else:
    kinds = [kind for kind in KINDS if kind != "mixed"] if options.sharding == "mixed" else [options.sharding]
    by_table = {config.name: shards(kinds[n % len(kinds)], n // len(kinds)) for n, config in enumerate(configs)}
    of_tables = construct_module_sharding_plan(
        tables, by_table, sharder, local_size=gpus, world_size=world, device_type=device.type
    )
    plan = ShardingPlan({"model.sparse_arch.embedding_bag_collection": of_tables})
if rank == 0:
    print(plan, flush=True)
if options.sharding_group:
    parallel = DMPCollection(
        model,
        device=device,
        plan=plan,
        world_size=world,
        sharding_group_size=options.sharding_group,
        global_pg=dist.group.WORLD,
        sharders=[sharder],
    )
else:
    env = ShardingEnv.from_process_group(dist.group.WORLD)
    parallel = DistributedModelParallel(model, env=env, device=device, plan=plan, sharders=[sharder])
dense = parallel._dmp_wrapped_module
if options.hook == "fp16":
    dense.register_comm_hook(None, default_hooks.fp16_compress_hook)
elif options.hook == "powersgd":
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
    dense.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
optimizer = KeyedOptimizerWrapper(
    dict(in_backward_optimizer_filter(parallel.named_parameters())), lambda found: torch.optim.SGD(found, lr=0.05)
)
samples = batches()
if options.pipeline:
    pipeline = TrainPipelineSparseDist(parallel, optimizer, device)
    for _ in range(options.steps):
        pipeline.progress(samples)
else:
    for batch in samples:
        optimizer.zero_grad()
        loss, _ = parallel(batch.to(device))
        loss.backward()
        optimizer.step()
        if options.sharding_group:
            parallel.sync()
dist.destroy_process_group()
