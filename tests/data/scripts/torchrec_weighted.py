"""TorchRec's bags with a weight for each id, more than 4,096 ids a rank."""

import os

import torch
import torch.distributed as dist
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed.model_parallel import DistributedModelParallel

has_gpu, batch = torch.cuda.is_available(), 512
device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if has_gpu else "cpu")
if has_gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if has_gpu else "gloo")
tables = [
    EmbeddingBagConfig(name=f"t{i}", embedding_dim=16, num_embeddings=1000, feature_names=[f"f{i}"]) for i in range(4)
]
bags = EmbeddingBagCollection(tables=tables, is_weighted=True, device=torch.device("meta"))
model = DistributedModelParallel(bags, device=device)
dense = torch.nn.Linear(64, 1).to(device)
optimizer = torch.optim.SGD(dense.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
lengths = torch.randint(0, 8, (4 * batch,))
ids = torch.randint(1000, (int(lengths.sum()),))
assert len(ids) > 4096
for _ in range(4):
    features = KeyedJaggedTensor([f"f{i}" for i in range(4)], ids, torch.rand(len(ids)), lengths=lengths).to(device)
    dense(model(features).values()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
