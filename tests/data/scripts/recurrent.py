"""A language model of recurrent layers, by one of torch's cells; prints its losses."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

parser = argparse.ArgumentParser()
parser.add_argument("--cell", choices=("LSTM", "GRU", "RNN"), default="LSTM")
parser.add_argument("--hidden", type=int, default=16)
parser.add_argument("--projected", type=int, default=0)
parser.add_argument("--dropout", type=float, default=0.0)
parser.add_argument("--bidirectional", action="store_true")
parser.add_argument("--batch-first", action="store_true")
parser.add_argument("--packed", action="store_true")
parser.add_argument("--autocast", action="store_true")
options = parser.parse_args()

is_gpu, local = torch.cuda.is_available(), int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", local) if is_gpu else torch.device("cpu")
if is_gpu:
    torch.cuda.set_device(local)
dist.init_process_group("nccl" if is_gpu else "gloo")
torch.manual_seed(dist.get_rank())
projection = {"proj_size": options.projected} if options.projected else {}
layers = getattr(nn, options.cell)(
    8,
    options.hidden,
    num_layers=2,
    dropout=options.dropout,
    bidirectional=options.bidirectional,
    batch_first=options.batch_first,
    **projection,
).to(device)
width = (options.projected or options.hidden) * (1 + options.bidirectional)
words, head = nn.Embedding(32, 8).to(device), nn.Linear(width, 32).to(device)
parameters = [*layers.parameters(), *words.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1)
text = torch.arange(5 * 4, device=device).reshape(5, 4) % 32
for _ in range(3):
    optimizer.zero_grad()
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=options.autocast):
        given = words(text)
        if options.packed:
            given = pack_padded_sequence(given, torch.tensor([5, 3, 4, 2]), enforce_sorted=False)
        made, state = layers(given)
        if options.packed:
            made, _ = pad_packed_sequence(made)
        last = state[0] if isinstance(state, tuple) else state
        loss = nn.functional.cross_entropy(head(made).flatten(0, 1).float(), text.flatten()) + last.float().mean()
    loss.backward()
    for each in parameters:
        dist.all_reduce(each.grad)
    optimizer.step()
dist.destroy_process_group()
