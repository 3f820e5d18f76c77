"""TorchRec's tables and pipelines beyond the plain ones, by name: python torchrec_features.py KIND."""

import os
import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.itep_embeddingbag import ITEPEmbeddingBagCollectionSharder
from torchrec.distributed.mc_embeddingbag import ManagedCollisionEmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.distributed.train_pipeline.pipeline_stage import PipelineStage, SparseDataDistUtil
from torchrec.distributed.train_pipeline.train_pipelines import (
    PrefetchTrainPipelineSparseDist,
    StagedTrainPipeline,
    TrainPipelineSemiSync,
)
from torchrec.distributed.types import CacheParams
from torchrec.modules.hash_mc_evictions import HashZchEvictionConfig, HashZchEvictionPolicyName
from torchrec.modules.hash_mc_modules import HashZchManagedCollisionModule
from torchrec.modules.itep_embedding_modules import ITEPEmbeddingBagCollection
from torchrec.modules.itep_modules import GenericITEPModule
from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingBagCollection
from torchrec.modules.mc_modules import (
    DistanceLFU_EvictionPolicy,
    ManagedCollisionCollection,
    MCHManagedCollisionModule,
)
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.keyed import KeyedOptimizerWrapper
from torchrec.streamable import Pipelineable

KIND, TABLES, ROWS, BATCH, STEPS = sys.argv[1], 3, 1000, 32, 6
has_gpu = torch.cuda.is_available()
device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if has_gpu else "cpu")
if has_gpu:
    torch.cuda.set_device(device)
dist.init_process_group("cpu:gloo,cuda:nccl" if has_gpu else "gloo")
names = [f"t{i}" for i in range(TABLES)]
tables = [EmbeddingBagConfig(name=name, embedding_dim=16, num_embeddings=ROWS, feature_names=[name]) for name in names]


@dataclass
class Batch(Pipelineable):
    ids: KeyedJaggedTensor

    def to(self, device: torch.device, non_blocking: bool = False) -> "Batch":
        return Batch(self.ids.to(device, non_blocking=non_blocking))

    def record_stream(self, stream: torch.Stream) -> None:
        self.ids.record_stream(stream)

    def pin_memory(self) -> "Batch":
        return Batch(self.ids.pin_memory())


def batches() -> list[Batch]:
    draw = torch.Generator().manual_seed(dist.get_rank())
    lengths = [torch.randint(0, 5, (TABLES * BATCH,), generator=draw) for _ in range(STEPS)]
    ids = [torch.randint(ROWS, (int(each.sum()),), generator=draw) for each in lengths]
    return [Batch(KeyedJaggedTensor(names, *each)) for each in zip(ids, [None] * STEPS, lengths, strict=True)]


def embeddings() -> nn.Module:
    bags = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    if KIND == "itep":
        return ITEPEmbeddingBagCollection(
            bags, GenericITEPModule(table_name_to_unpruned_hash_sizes=dict.fromkeys(names, 2 * ROWS))
        )
    if KIND not in ("zch", "mpzch"):
        return bags
    modules = {}
    for name in names:
        if KIND == "zch":
            modules[name] = MCHManagedCollisionModule(
                zch_size=ROWS,
                device=device,
                input_hash_size=100_000,
                eviction_interval=2,
                eviction_policy=DistanceLFU_EvictionPolicy(),
                buckets=dist.get_world_size(),
            )
        else:
            modules[name] = HashZchManagedCollisionModule(
                zch_size=ROWS,
                device=device,
                total_num_buckets=dist.get_world_size(),
                eviction_policy_name=HashZchEvictionPolicyName.SINGLE_TTL_EVICTION,
                eviction_config=HashZchEvictionConfig(features=[name], single_ttl=1),
            )
    collisions = ManagedCollisionCollection(managed_collision_modules=modules, embedding_configs=tables)
    return ManagedCollisionEmbeddingBagCollection(bags, collisions)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables, self.dense = embeddings(), nn.Linear(16 * TABLES, 1, device=device)

    def forward(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.tables(batch.ids)
        pooled = found[0] if KIND in ("zch", "mpzch") else found
        scores = self.dense(pooled.values())
        return scores.mean(), scores.detach()


model = Model()
apply_optimizer_in_backward(
    torch.optim.SGD, [each for name, each in model.named_parameters() if "embedding_bags" in name], {"lr": 0.1}
)
kernel = {"uvm": "fused_uvm", "caching": "fused_uvm_caching", "prefetch": "fused_uvm_caching"}.get(KIND, "fused")
constraint = ParameterConstraints(
    sharding_types=["row_wise" if KIND in ("zch", "mpzch") else "table_wise"],
    compute_kernels=[kernel if has_gpu else "fused"],
    cache_params=CacheParams(load_factor=0.2) if has_gpu and kernel == "fused_uvm_caching" else None,
)
fused = {"prefetch_pipeline": True} if KIND == "prefetch" and has_gpu else {}
sharders = [
    EmbeddingBagCollectionSharder(fused_params=fused),
    ITEPEmbeddingBagCollectionSharder(),
    ManagedCollisionEmbeddingBagCollectionSharder(),
]
topology = Topology(world_size=dist.get_world_size(), compute_device=device.type)
planner = EmbeddingShardingPlanner(topology=topology, constraints=dict.fromkeys(names, constraint))
plan = planner.collective_plan(model, sharders, dist.GroupMember.WORLD)
model = DistributedModelParallel(model, device=device, plan=plan, sharders=sharders)
dense = {name: each for name, each in model.named_parameters() if "dense" in name}
optimizer = KeyedOptimizerWrapper(dense, lambda parameters: torch.optim.SGD(parameters, lr=0.1))
data = iter(batches())
if KIND in ("prefetch", "semi_sync"):
    kind = PrefetchTrainPipelineSparseDist if KIND == "prefetch" else TrainPipelineSemiSync
    pipeline = kind(model, optimizer, device, execute_all_batches=True)
    for _ in range(STEPS):
        pipeline.progress(data)
elif KIND == "staged":
    util = SparseDataDistUtil(model, torch.Stream(device), apply_jit=False)
    copying = PipelineStage("copy", lambda batch: batch.to(device, non_blocking=True), torch.Stream(device))
    exchanging = PipelineStage(
        "exchange",
        util.start_sparse_data_dist,
        util.data_dist_stream,
        fill_callback=util.wait_sdd_fill_callback,
        data_exhausted_callback=util.data_exhausted_callback,
    )
    pipeline = StagedTrainPipeline([copying, exchanging])
    while (batch := pipeline.progress(data)) is not None:
        optimizer.zero_grad()
        model(batch)[0].backward()
        optimizer.step()
else:
    for batch in data:
        optimizer.zero_grad()
        model(batch.to(device))[0].backward()
        optimizer.step()
