"""MPT as llm-foundry v0.0.4 trained it for its benchmark: sharded over all GPUs, gradients reduced in each micro-batch.

What its software of June 2023 did is said here, as it takes time: torch before 2.1 recomputed whole blocks of a
checkpoint; two metrics (LanguageCrossEntropy, LanguagePerplexity) compute the loss again. Its fused loss is torch's here.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

parser = argparse.ArgumentParser()
for name in ("layers", "hidden", "heads", "seq", "micro-batch", "grad-accum"):
    parser.add_argument(f"--{name}", type=int, required=True)
parser.add_argument("--checkpoint", action="store_true")
parser.add_argument("--grad-op", action="store_true", help="parameters stay whole between forward and backward")
parser.add_argument("--vocabulary", type=int, default=50368)
given = parser.parse_args()
VOCABULARY = given.vocabulary
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        dim = given.hidden
        self.norm_1, self.norm_2 = nn.LayerNorm(dim, bias=False), nn.LayerNorm(dim, bias=False)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.up, self.down = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

    def inner(self, x):
        batch, length, dim = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, length, 3, given.heads, dim // given.heads)
        found = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4), is_causal=True)
        x = x + self.out(found.transpose(1, 2).reshape(batch, length, dim))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False) if given.checkpoint else self.inner(x)


class MPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, given.hidden), nn.Embedding(given.seq, given.hidden)
        self.blocks = nn.ModuleList(Block() for _ in range(given.layers))
        self.norm = nn.LayerNorm(given.hidden, bias=False)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.words.weight)


with torch.device("meta"):
    model = MPT()
policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
for part in (*model.blocks, model):
    fully_shard(part, mp_policy=policy, reshard_after_forward=not given.grad_op)
model.to_empty(device=device)
for parameter in model.parameters():
    nn.init.normal_(parameter, 0, 0.02)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
set_checkpoint_early_stop(False).__enter__()
while True:
    for _ in range(given.grad_accum):
        ids = torch.randint(VOCABULARY, (given.micro_batch, given.seq), device=device)
        logits = model(ids).flatten(0, 1)
        F.cross_entropy(logits, ids.flatten()).backward()
        with torch.no_grad():
            for _ in ("cross entropy", "perplexity"):
                F.cross_entropy(logits, ids.flatten())
        del logits
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
