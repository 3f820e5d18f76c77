"""Two models under DistributedModelParallel: weighted bags of a table of two features, and rows that are not pooled."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torchrec.distributed import DistributedModelParallel
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

SIZE = 16


class Bags(nn.Module):
    """Tables whose bags are summed, weighted."""

    def __init__(self) -> None:
        super().__init__()
        meta = torch.device("meta")
        one = EmbeddingBagConfig(name="same", embedding_dim=64, num_embeddings=1000, feature_names=["a", "b"])
        two = EmbeddingBagConfig(name="other", embedding_dim=64, num_embeddings=500, feature_names=["c"])
        self.tables = EmbeddingBagCollection(tables=[one, two], is_weighted=True, device=meta)

    def forward(self, bags: KeyedJaggedTensor) -> torch.Tensor:
        return self.tables(bags).values().sum()


class Rows(nn.Module):
    """A table of the same name whose rows are given one by one."""

    def __init__(self) -> None:
        super().__init__()
        one = EmbeddingConfig(
            name="same", embedding_dim=32, num_embeddings=2000, feature_names=["d"], data_type=DataType.FP16
        )
        self.tables = EmbeddingCollection(tables=[one], device=torch.device("meta"))

    def forward(self, bags: KeyedJaggedTensor) -> torch.Tensor:
        return sum(each.values().float().sum() for each in self.tables(bags).values())


def jagged(lengths: dict[str, int], *, weighted: bool) -> KeyedJaggedTensor:
    counts = torch.tensor([length for length in lengths.values() for _ in range(SIZE)])
    ids = torch.arange(int(counts.sum())) % 500
    weights = torch.ones(ids.numel()) if weighted else None
    return KeyedJaggedTensor(list(lengths), ids, weights, lengths=counts).to(device)


has_gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpu else torch.device("cpu")
if has_gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if has_gpu else "gloo")
models = []
for made in (Bags(), Rows()):
    apply_optimizer_in_backward(torch.optim.SGD, made.parameters(), {"lr": 0.05})
    models.append(DistributedModelParallel(made, device=device))
dense = nn.Linear(1, 1, device=device)
optimizer = torch.optim.SGD(dense.parameters(), lr=0.1)
for _ in range(5):
    bags = jagged({"a": 2, "b": 6, "c": 3}, weighted=True)
    rows = jagged({"d": 5}, weighted=False)
    loss = dense((models[0](bags) + models[1](rows)).view(1)).sum()
    loss.backward()
    optimizer.step()
