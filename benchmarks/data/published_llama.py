"""Llama 3 as torchtitan trains it: FSDP2 in bfloat16 with gradients reduced in float32, or with it tensor parallelism.

`--early`: as torchtitan was in December 2024, with embedding and output in one unit, norms and AdamW operator by
operator. torchtitan's launcher asks for expandable segments, and so does this without `--segments`. Activation
checkpoints are those of torchtitan: "full", each block; "selective", in each block the results of attention and of
every second product of matrices are kept. `--context-parallel`: each sequence lies on so many GPUs. `--compile`: each block, and with `--compile-loss` the loss. Products in
float8 keep their inputs in bfloat16, so that memory is nearly that of bfloat16, in which all is computed here.
"""

import argparse
import os
import sys

if "--segments" not in sys.argv:
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")  # before torch looks

from collections import Counter
from contextlib import nullcontext
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

# Layers, dim, heads, heads of keys and values, hidden dim of the feed-forward network.
SIZES = {"8b": (32, 4096, 32, 8, 14336), "70b": (80, 8192, 64, 8, 28672), "405b": (126, 16384, 128, 8, 53248)}
VOCABULARY = 128256
parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=SIZES, default="8b")
parser.add_argument("--batch", type=int, required=True)
parser.add_argument("--seq", type=int, default=8192)
parser.add_argument("--tensor-parallel", type=int, default=1)
parser.add_argument("--context-parallel", type=int, default=1)
parser.add_argument("--checkpoint", choices=("none", "selective", "full"), default="selective")
parser.add_argument("--early", action="store_true")
parser.add_argument("--segments", action="store_true")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--compile-loss", action="store_true")
given = parser.parse_args()
LAYERS, DIM, HEADS, KEYS, HIDDEN = SIZES[given.model]
HEAD = DIM // HEADS
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl")


def rotated(x, turns):
    """Return queries or keys [batch, length, heads, head size] with rotary embeddings, computed in float32."""
    found = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2)) * turns
    return torch.view_as_real(found).flatten(3).type_as(x)


class RMSNorm(nn.Module):
    """The norm of 2024, in float32 operator by operator."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(DIM))

    def forward(self, x):
        high = x.float()
        return (high * torch.rsqrt((high * high).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


def norm():
    return RMSNorm() if given.early else nn.RMSNorm(DIM, eps=1e-5)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.o = nn.Linear(DIM, DIM, bias=False), nn.Linear(DIM, DIM, bias=False)
        self.k, self.v = (nn.Linear(DIM, KEYS * HEAD, bias=False) for _ in range(2))

    def forward(self, x, turns):
        batch, length = x.shape[:2]
        q, k, v = (each(x).view(batch, length, -1, HEAD) for each in (self.q, self.k, self.v))
        q, k = rotated(q, turns), rotated(k, turns)
        times = q.shape[2] // k.shape[2]
        k, v = (each.repeat_interleave(times, 2) for each in (k, v))
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(found.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = (nn.Linear(DIM, HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(HIDDEN, DIM, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


def contexts():
    """Return what a selective checkpoint keeps: attention, and every second product of matrices, forward and again."""
    counts = Counter()
    kept = {
        torch.ops.aten._scaled_dot_product_flash_attention.default,
        torch.ops.aten._scaled_dot_product_efficient_attention.default,
        torch.ops._c10d_functional.reduce_scatter_tensor.default,
    }

    def policy(context, operator, *_, **__):
        is_kept = operator in kept
        if operator == torch.ops.aten.mm.default:
            counts[context.is_recompute] += 1
            is_kept = counts[context.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = norm(), norm()
        self.attention, self.feed_forward = Attention(), FeedForward()

    def inner(self, x, turns):
        x = x + self.attention(self.norm_1(x), turns)
        return x + self.feed_forward(self.norm_2(x))

    def forward(self, x, turns):
        if given.checkpoint == "none":
            return self.inner(x, turns)
        how = {"context_fn": contexts} if given.checkpoint == "selective" else {}
        return checkpoint(self.inner, x, turns, use_reentrant=False, **how)


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.blocks = nn.Embedding(VOCABULARY, DIM), nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.output = norm(), nn.Linear(DIM, VOCABULARY, bias=False)

    def forward(self, ids, turns):
        x = self.words(ids)
        for block in self.blocks:
            x = block(x, turns)
        return self.output(self.norm(x))


def cut(model, mesh):
    """Cut products over a mesh, with the sequence cut between them, as torchtitan does."""
    across, rows = {"use_local_output": False}, Shard(1)
    whole = {"words": RowwiseParallel(input_layouts=Replicate(), output_layouts=rows), "norm": SequenceParallel()}
    whole["output"] = ColwiseParallel(input_layouts=rows, output_layouts=Shard(-1), **across)
    parallelize_module(model, mesh, whole)
    column, row = partial(ColwiseParallel), partial(RowwiseParallel, output_layouts=rows)
    for block in model.blocks:
        plan = {"norm_1": SequenceParallel(), "norm_2": SequenceParallel(), "attention.o": row()}
        plan["attention"] = PrepareModuleInput(input_layouts=(rows, None), desired_input_layouts=(Replicate(), None))
        plan["feed_forward"] = PrepareModuleInput(input_layouts=(rows,), desired_input_layouts=(Replicate(),))
        plan |= {f"attention.{each}": column() for each in "qkv"}
        plan |= {"feed_forward.gate": column(), "feed_forward.up": column(), "feed_forward.down": row()}
        parallelize_module(block, mesh, plan)


def loss_of(logits, ids):
    """Return the cross entropy, of logits in float32."""
    return F.cross_entropy(logits.flatten(0, 1).float(), ids.flatten(0, 1))


replicas = dist.get_world_size() // (given.context_parallel * given.tensor_parallel)
sizes = (replicas, given.context_parallel, given.tensor_parallel)
mesh = init_device_mesh("cuda", sizes, mesh_dim_names=("data", "context", "tensor"))
shards = mesh["data", "context"]._flatten("shards") if given.context_parallel > 1 else mesh["data"]
with torch.device("meta"):
    model = Llama()
if given.tensor_parallel > 1:
    cut(model, mesh["tensor"])
policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
for block in model.blocks:
    if given.compile:
        block.compile(fullgraph=True)
    is_freed = not given.early or block is not model.blocks[-1]
    fully_shard(block, mesh=shards, mp_policy=policy, reshard_after_forward=is_freed)
if not given.early:
    fully_shard(model.words, mesh=shards, mp_policy=policy)
    fully_shard([model.norm, model.output], mesh=shards, mp_policy=policy, reshard_after_forward=False)
fully_shard(model, mesh=shards, mp_policy=policy)
model.to_empty(device=device)
for parameter in model.parameters():
    nn.init.normal_(parameter, 0, 0.02)
if given.compile_loss:
    loss_of = torch.compile(loss_of)
angles = torch.outer(torch.arange(given.seq, device=device).float(), torch.ones(HEAD // 2, device=device))
turns = torch.polar(torch.ones_like(angles), angles)[None, :, None]
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=not given.early)
while True:
    optimizer.zero_grad()
    ids = torch.randint(VOCABULARY, (given.batch, given.seq), device=device)
    cut_sequence = nullcontext()
    if given.context_parallel > 1:
        cut_sequence = context_parallel(mesh["context"], buffers=[ids, turns], buffer_seq_dims=[1, 1])
    with cut_sequence, loss_parallel() if given.tensor_parallel > 1 else torch.enable_grad():
        logits = model(ids, turns)
        loss = loss_of(logits, ids)
        del logits
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    optimizer.step()
