"""Asks a GPU that is not there for integers beside floats, draws from it, and reads losses as scripts log them."""

import json
import math

import torch

dev, n = torch.device("cuda"), 100_000
torch.manual_seed(5)
first = torch.rand(3)
torch.manual_seed(5)
data = torch.randn(n, device=dev)

# Made of sizes alone, of any size, also beside data.
ids = torch.arange(n, device=dev)
assert ids[-1].item() == n - 1
assert ids.sum().item() == n * (n - 1) // 2
assert torch.zeros_like(data, dtype=torch.long).sum().item() == 0
assert torch.full((3,), 7, device=dev).tolist() == [7, 7, 7]
assert data.new_ones(4, dtype=torch.int32).tolist() == [1] * 4
assert torch.ones(2048, 2048, device=dev, dtype=torch.bool).tril().sum().item() == 2048 * 2049 // 2
written = torch.empty(3, dtype=torch.long, device=dev)
for place in range(3):
    written[place] = place
assert written.tolist() == [0, 1, 2]

# Drawn from the GPU's generator: that of the CPU stays as it is.
permuted = torch.randperm(n, device=dev)
assert sorted(permuted.tolist()) == list(range(n))
drawn = torch.randint(3, 9, (1000,), device=dev)
assert set(drawn.tolist()) == set(range(3, 9))
assert set(torch.multinomial(torch.ones(5, device=dev), 3).tolist()) <= set(range(5))
assert 0 <= int(torch.multinomial(torch.softmax(torch.randn(2, 50_000, device=dev), -1), 1)[0]) < 50_000
mask = torch.rand(64, 1024, device=dev) < 0.15
assert 0.14 < mask.sum().item() / mask.numel() < 0.16
torch.cuda.manual_seed(3)
again = torch.randperm(9, device=dev).tolist()
torch.cuda.manual_seed_all(3)
assert torch.randperm(9, device=dev).tolist() == again
assert torch.rand(3).tolist() == first.tolist()

# Made of integers that are known.
assert data[ids > 99_000].numel() == 999
assert ids[ids > 99_000].tolist() == list(range(99_001, n))
assert torch.topk(ids, 2).indices.tolist() == [n - 1, n - 2]
assert permuted.sort().values.tolist() == list(range(n))
assert torch.unique(drawn).tolist() == list(range(3, 9))
assert sum(torch.bincount(drawn, minlength=12).tolist()) == 1000
assert torch.searchsorted(ids, torch.tensor([5, 77], device=dev)).tolist() == [5, 77]
offsets = drawn.cumsum(0)
assert offsets[-1].item() == drawn.sum().item()
assert (drawn > 4).nonzero().numel() == torch.where(drawn > 4)[0].numel() == (drawn > 4).sum().item()
assert torch.repeat_interleave(torch.randn(1000, 8, device=dev), drawn, dim=0).shape[0] == offsets[-1].item()
assert [len(part) for part in data[:18].split([3, 15])] == [3, 15]
assert torch.equal(ids, ids.clone())
assert not torch.equal(ids, ids + 1)
assert not torch.equal(ids, ids[1:])
assert torch.allclose(drawn, drawn)
assert not torch.allclose(drawn, drawn + 1)

# Rejected samples are drawn in the same kernel.
torch.nn.init.trunc_normal_(torch.empty(256, 256, device=dev), std=1.0)

# A loss that is only logged.
loss, best, losses = data.square().mean(), math.inf, []
losses += [loss.item(), loss.detach().cpu().item(), loss.tolist(), float(loss)]
print(loss, f"{loss:.3f} {loss.item():.4f}", round(loss.item(), 4), int(loss), sum(losses) / len(losses))
assert not math.isnan(loss)
assert not torch.isnan(loss).any()
with torch.autograd.set_detect_anomaly(True):  # looks for nan in all gradients, here 20 million numbers
    torch.randn(5_000, 4_000, device=dev, requires_grad=True).square().mean().backward()
best = min(best, loss)
json.dumps({"loss": loss.item(), "best": best.item()})
torch.allclose(data, data + 1), torch.equal(data, data + 1)  # of unknown values, as torchmetrics compares states
right = (torch.randn(32, 10, device=dev).argmax(1) == torch.randint(10, (32,), device=dev)).float().mean()
print(right.item() * 100, loss.detach().cpu().numpy())
