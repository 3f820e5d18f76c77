"""What training scripts do beside their steps; each habit by an option."""

import argparse
import contextlib
import os
import queue
import sys
import threading
from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--save", help="a file, which is saved and loaded")
parser.add_argument("--amp", choices=("bfloat16", "float16"))
parser.add_argument("--workers", type=int, default=0)
HABITS = "compile profile images clip finite checkpoint average meter events graph prefetch"
for habit in HABITS.split():
    parser.add_argument(f"--{habit}", action="store_true")
options = parser.parse_args()

has_gpu = torch.cuda.is_available()
local = int(os.environ["LOCAL_RANK"])
device = torch.device(f"cuda:{local}" if has_gpu else "cpu")
if has_gpu:
    torch.cuda.set_device(local)
    torch.backends.cuda.matmul.allow_tf32 = True
torch.set_float32_matmul_precision("high")
dist.init_process_group("nccl" if has_gpu else "gloo")
rank = dist.get_rank()
torch.manual_seed(1)


class Samples(Dataset):
    """Words or images, and one of ten classes."""

    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        if options.images:
            return torch.randn(3, 32, 32, generator=generator), index % 10
        return torch.randint(1000, (16,), generator=generator), index % 10


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 4, dropout=0.1, batch_first=True)
        self.norm = nn.LayerNorm(64)
        self.mlp = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(x)


class Words(nn.Module):
    """A transformer of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(1000, 64), nn.Linear(64, 10)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.words(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if options.checkpoint else block(x)
        return self.head(x.mean(1))


def prefetched(batches: Iterable[list[torch.Tensor]]) -> Iterator[list[torch.Tensor]]:
    """Batches that a thread moves to the device, on a stream of its own."""
    ready: queue.Queue[list[torch.Tensor] | None] = queue.Queue(2)
    stream = torch.cuda.Stream() if has_gpu else None

    def move() -> None:
        with torch.cuda.stream(stream) if has_gpu else contextlib.nullcontext():
            for batch in batches:
                ready.put([each.to(device, non_blocking=True) for each in batch])
        ready.put(None)

    threading.Thread(target=move, daemon=True).start()
    while (batch := ready.get()) is not None:
        if has_gpu:
            torch.cuda.current_stream().wait_stream(stream)
        yield batch


model: nn.Module
if options.images:
    layers = nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    model = nn.Sequential(*layers, nn.Linear(32, 10))
    if has_gpu:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model).to(device, memory_format=torch.channels_last)
else:
    model = Words().to(device)
if options.compile:
    model = torch.compile(model)
model = DistributedDataParallel(model, device_ids=[local] if has_gpu else None)
sampler = DistributedSampler(Samples())
loader = DataLoader(
    Samples(), batch_size=8, sampler=sampler, num_workers=options.workers, pin_memory=has_gpu and options.workers > 0
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
scaler = torch.amp.GradScaler(device.type, enabled=options.amp == "float16")
dtype = getattr(torch, options.amp) if options.amp else None
average = AveragedModel(model.module, multi_avg_fn=get_ema_multi_avg_fn(0.99)) if options.average else None
profile = torch.profiler.profile() if options.profile else contextlib.nullcontext()
if options.graph:
    captured, weight = torch.cuda.CUDAGraph(), torch.randn(64, 64, device=device)
    with torch.cuda.graph(captured):
        for _ in range(10):
            product = weight @ weight

with profile:
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for number, batch in enumerate(prefetched(loader) if options.prefetch else loader):
            if options.events:
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
            x, y = (each.to(device, non_blocking=True) for each in batch)
            with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
                found = model(x)
                loss = nn.functional.cross_entropy(found, y, label_smoothing=0.1)
            if options.finite and not torch.isfinite(loss):
                sys.exit("the loss is not finite")
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            if options.clip:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            if options.graph:
                captured.replay()
            if average:
                average.update_parameters(model.module)
            if options.events:
                end.record()
                torch.cuda.synchronize()
                print(begin.elapsed_time(end))
            if options.meter:
                right = (found.argmax(1) == y).float().mean()
                dist.all_reduce(right)
                dist.reduce(loss.detach().clone(), 0)
            if options.save and number == 1:
                if rank == 0:
                    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, options.save)
                dist.barrier()
                state = torch.load(options.save, map_location=device, weights_only=True)
                model.module.load_state_dict(state["model"])
                optimizer.load_state_dict(state["optimizer"])
            peak = torch.cuda.max_memory_allocated() if has_gpu else 0
            print(f"{epoch} {number}: loss {loss.item():.3f}, {peak} bytes", flush=True)
dist.destroy_process_group()
