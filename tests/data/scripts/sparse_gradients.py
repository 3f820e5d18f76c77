"""Embeddings with sparse gradients, alone on a CPU or a GPU that is not there, under each optimizer that takes them."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
KINDS = {
    "rows": lambda: nn.Embedding(1000, 16, sparse=True, device=device),
    "padded": lambda: nn.Embedding(1000, 16, sparse=True, padding_idx=0, device=device),
    "sums": lambda: nn.EmbeddingBag(1000, 16, mode="sum", sparse=True, device=device),
    "means": lambda: nn.EmbeddingBag(1000, 16, mode="mean", sparse=True, device=device),
}
for kind, make in KINDS.items():
    for optimizer_type in (torch.optim.SGD, torch.optim.SparseAdam, torch.optim.Adagrad):
        tables = make()
        optimizer = optimizer_type(tables.parameters(), lr=0.1)
        ids = torch.randint(100, (32, 4)).to(device)
        named = ids[ids != 0] if kind == "padded" else ids.view(-1)
        for _ in range(2):
            tables(ids).sum().backward()
            found = tables.weight.grad
            assert found.is_sparse
            assert found.device == tables.weight.device
            assert (found.shape, found._nnz()) == ((1000, 16), named.numel())
            added = found.coalesce()
            for _ in range(2):  # its parts can be read again
                assert added.indices().tolist() == [named.unique().tolist()]
                assert added.values().shape == (named.unique().numel(), 16)
            optimizer.step()
            optimizer.zero_grad()
        for _ in range(2):
            tables(ids).sum().backward()
        # GPUs put the two behind each other, CPUs merge them.
        assert device == "cpu" or tables.weight.grad._nnz() == 2 * named.numel()
        assert tables.weight.grad.to_dense().shape == (1000, 16)
        optimizer.zero_grad(set_to_none=False)
        assert tables.weight.grad._nnz() == 0
tables = nn.EmbeddingBag(1000, 16, mode="sum", sparse=True, device=device)
weights = torch.rand(64, device=device)
tables(torch.arange(64, device=device), torch.arange(0, 64, 4, device=device), weights).sum().backward()
assert tables.weight.grad._nnz() == 64
