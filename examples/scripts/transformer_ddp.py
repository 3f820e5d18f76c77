"""A small language model under DistributedDataParallel, gradients of two micro-batches a step.

torchrun --nproc-per-node 2 transformer_ddp.py
twinstep predict --hosts 2 --gpus-per-host 1 --profile emulated_200mbit --steps 5 transformer_ddp.py
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--dim", type=int, default=128)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--steps", type=int, default=1000)
options = parser.parse_args()

WORDS, LENGTH = 512, 32


class LanguageModel(nn.Module):
    """Predicts each word from those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, options.dim), nn.Embedding(LENGTH, options.dim)
        layer = nn.TransformerEncoderLayer(options.dim, 4, 4 * options.dim, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, options.layers, enable_nested_tensor=False)
        self.head = nn.Linear(options.dim, WORDS, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        places = torch.arange(words.shape[1], device=words.device)
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1], device=words.device)
        return self.head(self.layers(self.words(words) + self.places(places), mask=mask, is_causal=True))


has_gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if has_gpu else "gloo")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpu else torch.device("cpu")
if has_gpu:
    torch.cuda.set_device(device)
torch.manual_seed(0)
model = DistributedDataParallel(LanguageModel().to(device), gradient_as_bucket_view=True, bucket_cap_mb=1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
torch.manual_seed(1 + dist.get_rank())
for _ in range(options.steps):
    text = torch.randint(WORDS, (2, options.batch_size, LENGTH + 1), device=device)
    with model.no_sync():
        nn.functional.cross_entropy(model(text[0, :, :-1]).flatten(0, 1), text[0, :, 1:].flatten()).backward()
    loss = nn.functional.cross_entropy(model(text[1, :, :-1]).flatten(0, 1), text[1, :, 1:].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
