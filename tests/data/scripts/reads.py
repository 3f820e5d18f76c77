"""In each step a long kernel and twenty short ones, between which each waits for the GPU in another way, or not."""

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1, device="cuda"))])
long = torch.randn(4096, 4096, device="cuda")
short, on_cpu = torch.zeros(1024, device="cuda"), torch.zeros(1024)
first, flags = short[0], torch.tensor([False, True, True], device="cuda")
index = torch.zeros(1, dtype=torch.int64, device="cuda")
side, event, calls = torch.cuda.Stream(), torch.cuda.Event(), []


def reads_thrice():
    first.item()
    short.tolist()
    torch.cuda.current_stream().synchronize()


def reads_behind_a_call(read):
    """While a call is under way for which no stream waits."""
    calls.append(dist.all_reduce(long, async_op=True))
    read()


ways = {
    "set-up": lambda: None,
    "nothing": lambda: None,
    # What waits for the current stream.
    "item": first.item,
    "float": lambda: float(first),
    "if": lambda: bool(first),
    "tolist": short.tolist,
    "cpu": short.cpu,
    "copy_": lambda: on_cpu.copy_(short),
    "stream": lambda: torch.cuda.current_stream().synchronize(),
    "device": torch.cuda.synchronize,
    "event": lambda: torch.cuda.current_stream().record_event().synchronize(),
    "thrice": reads_thrice,
    # Likewise, with kernels of its own.
    "nonzero": flags.nonzero,
    "mask": lambda: flags[flags],
    "equal": lambda: torch.equal(flags, flags),
    "to the GPU": lambda: torch.tensor([1.0, 2.0], device="cuda"),
    # What does not.
    "of the CPU": lambda: (on_cpu[0].item(), on_cpu.tolist(), on_cpu.nonzero()),
    "non_blocking": lambda: short.to("cpu", non_blocking=True),
    "earlier event": event.synchronize,
    "other stream": side.synchronize,
    "index": lambda: short[index],
    # Calls.
    "item behind a call": lambda: reads_behind_a_call(first.item),
    "device behind a call": lambda: reads_behind_a_call(torch.cuda.synchronize),
    "item behind a call that was waited for": lambda: (dist.all_reduce(long), first.item()),
}
for way in ways.values():
    event.record()
    torch.mm(long, long)
    way()
    for _ in range(20):
        short.add_(1)
    if calls:
        calls.pop().wait()
    optimizer.step()
    torch.cuda.current_stream().synchronize()  # behind the step's end, where nothing is left to wait for
dist.destroy_process_group()
