"""TorchRec with other batches for each feature (VBE): 4 and 2 samples, which a batch of 8 names again."""

import os

import torch
import torch.distributed as dist
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed.model_parallel import DistributedModelParallel

has_gpu = torch.cuda.is_available()
device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if has_gpu else "cpu")
if has_gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if has_gpu else "gloo")
tables = [
    EmbeddingBagConfig(name=f"t{i}", embedding_dim=16 * (i + 1), num_embeddings=1000, feature_names=[f"f{i}"])
    for i in range(2)
]
model = DistributedModelParallel(EmbeddingBagCollection(tables=tables, device=torch.device("meta")), device=device)
dense = torch.nn.Linear(48, 1).to(device)
optimizer = torch.optim.SGD(dense.parameters(), lr=0.1)
for _ in range(4):
    features = KeyedJaggedTensor(
        ["f0", "f1"],
        torch.arange(9),
        lengths=torch.tensor([1, 2, 1, 1, 3, 1]),
        stride_per_key_per_rank=[[4], [2]],
        inverse_indices=(["f0", "f1"], torch.tensor([[0, 1, 2, 3] * 2, [0, 1] * 4])),
    ).to(device)
    pooled = model(features).values()
    assert pooled.shape == (8, 48)
    dense(pooled).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
