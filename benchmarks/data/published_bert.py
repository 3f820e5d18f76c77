"""BERT-large of 128 tokens as NVIDIA's DeepLearningExamples pre-train it: gradients are accumulated, reduced once a step.

AdamW stands for LAMB. TorchScript compiles the original and fuses some elementwise operators, which are by themselves
here.
"""

import argparse
import contextlib
import math
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--micro-batch", type=int, required=True)
parser.add_argument("--grad-accum", type=int, required=True)
parser.add_argument("--precision", choices=("FP32", "TF32", "fp16 AMP"), required=True)
given = parser.parse_args()
DIM, HEADS, LAYERS, WORDS, LENGTH, MASKED = 1024, 16, 24, 30528, 128, 20
is_half = given.precision == "fp16 AMP"
torch.backends.cuda.matmul.allow_tf32 = given.precision == "TF32"
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl")


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(DIM, DIM) for _ in range(4))
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)
        self.norm_1, self.norm_2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)

    def forward(self, x, mask):
        batch = x.shape[0]
        each = (layer(x).view(batch, LENGTH, HEADS, -1).transpose(1, 2) for layer in (self.query, self.key, self.value))
        query, key, value = each
        scores = query @ key.transpose(-1, -2) / math.sqrt(DIM // HEADS) + mask
        found = F.dropout(scores.softmax(-1), 0.1) @ value
        x = self.norm_1(x + F.dropout(self.out(found.transpose(1, 2).reshape(batch, LENGTH, DIM)), 0.1))
        return self.norm_2(x + F.dropout(self.down(F.gelu(self.up(x))), 0.1))


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places, self.kinds = (nn.Embedding(rows, DIM) for rows in (WORDS, 512, 2))
        self.norm, self.layers = nn.LayerNorm(DIM), nn.ModuleList(Layer() for _ in range(LAYERS))
        self.pool, self.transform, self.next = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM), nn.Linear(DIM, 2)
        self.transform_norm, self.bias = nn.LayerNorm(DIM), nn.Parameter(torch.zeros(WORDS))

    def forward(self, ids, kinds, mask, where, labels, follows):
        places = self.places(torch.arange(LENGTH, device=ids.device))
        x = F.dropout(self.norm(self.words(ids) + places + self.kinds(kinds)), 0.1)
        for layer in self.layers:
            x = layer(x, mask)
        masked = torch.gather(x, 1, where[:, :, None].expand(-1, -1, DIM)).flatten(0, 1)
        words = F.linear(self.transform_norm(F.gelu(self.transform(masked))), self.words.weight, self.bias)
        pair = self.next(torch.tanh(self.pool(x[:, 0])))
        return F.cross_entropy(words.float(), labels.flatten()) + F.cross_entropy(pair.float(), follows)


with device:
    model = Bert()
model = DistributedDataParallel(model, device_ids=[device.index])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
scaler = torch.amp.GradScaler("cuda", enabled=is_half)
batch = given.micro_batch
ids = torch.randint(WORDS, (batch, LENGTH), device=device)
where, labels = (torch.randint(most, (batch, MASKED), device=device) for most in (LENGTH, WORDS))
mask, follows = torch.zeros(batch, 1, 1, LENGTH, device=device), torch.randint(2, (batch,), device=device)
while True:
    for place in range(given.grad_accum):
        with model.no_sync() if place < given.grad_accum - 1 else contextlib.nullcontext():
            with torch.autocast("cuda", torch.float16, enabled=is_half):
                loss = model(ids, torch.zeros_like(ids), mask, where, labels, follows) / given.grad_accum
            scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
