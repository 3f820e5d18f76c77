"""Parts of a model: one that is compiled, one of TorchScript's, and one whose activations are computed anew."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.deep, self.last = nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.last(checkpoint(self.deep, x, use_reentrant=False))


dist.init_process_group("gloo")
torch.manual_seed(0)
body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
compiled = torch.compile(body, backend="eager", fullgraph=True)
scripted, head = torch.jit.script(nn.Linear(8, 8)), Head()
parameters = [*body.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    loss = head(scripted(compiled(torch.randn(4, 8)))).mean()
    loss.backward()
    dist.all_reduce(parameters[0].grad)
    optimizer.step()
    print(f"step {step} rank {dist.get_rank()}")
