"""Pieces of training and whole steps by name, and a script that runs them as a user's script.

snippets.py count DEVICE                     # on a simulated GPU: count the host's work of each snippet snippets.py
time DEVICE SECONDS OUT.json     # on a real GPU: time the host for each snippet
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

import twinstep
from real.calibration.host import pieces, whole_steps
from real.calibration.host.pieces import Run

# First runs that are dropped: libraries load their kernels, DistributedDataParallel rebuilds its buckets.
_WARM_UP = 3
_LEAST_ROUNDS, _MOST_ROUNDS = 5, 1000
_Make = Callable[[torch.device], Run]
# Snippets that check the prices and are not fitted.
HELD_OUT: dict[str, _Make] = {
    "transformer step": whole_steps.transformer,
    "convolutional step": whole_steps.convolutional,
    "recommender step": whole_steps.recommender,
}
SNIPPETS: dict[str, _Make] = {
    "operators": pieces.elementwise,
    "views": pieces.views,
    "products": pieces.products,
    "convolutions": pieces.convolutions,
    "modules": pieces.modules,
    "bookkeeping": pieces.bookkeeping,
    "forward": pieces.forward,
    "perceptron": pieces.perceptron,
    "accumulation": pieces.accumulation,
    "pointwise": pieces.pointwise,
    "passes": pieces.passes,
    "heads": pieces.heads,
    "normalized": pieces.normalized_layers,
    "functions and hooks": pieces.functions,
    "AdamW": pieces.adamw,
    "SGD by parameter": pieces.sgd_by_parameter,
    "Adam by parameter": pieces.adam_by_parameter,
    "collectives": pieces.collectives,
    "data parallel": pieces.data_parallel,
    **HELD_OUT,
}


def warm_up(device: torch.device) -> dict[str, Run]:
    """Return the warmed-up snippets by name; report snippets that fail on this machine on stderr and leave them out."""
    runs: dict[str, Run] = {}
    for name, make in SNIPPETS.items():
        try:
            run = make(device)
            for _ in range(_WARM_UP):
                run()
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error).partition(chr(10))[0]}", file=sys.stderr)
        else:
            runs[name] = run
    return runs


def count(runs: dict[str, Run]) -> None:
    """Mark two steps for each snippet, which run it once and twice; for a failed snippet both are empty."""
    twinstep.step()
    for name in SNIPPETS:
        # A failed snippet has its two marks, too, so that steps and names stay aligned.
        for often in (1, 2) if name in runs else (0, 0):
            for _ in range(often):
                runs[name]()
            twinstep.step()


def time_snippets(runs: dict[str, Run], device: torch.device, seconds: float) -> dict[str, list[int]]:
    """Time the host for each snippet in ns, round after round, so that caches are as cold as in a program."""
    wait: Callable[[], object] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    times_ns: dict[str, list[int]] = {name: [] for name in runs}
    until = time.monotonic() + seconds
    for index in range(_MOST_ROUNDS):
        if index > _WARM_UP + _LEAST_ROUNDS and time.monotonic() > until:
            break
        for name, run in runs.items():
            wait()
            # The GPU is idle here: a full launch queue would hold the host up.
            begun_ns = time.perf_counter_ns()
            run()
            time_ns = time.perf_counter_ns() - begun_ns
            if index >= _WARM_UP:
                times_ns[name].append(time_ns)
    wait()
    return times_ns


def main() -> None:
    """Run the command's mode."""
    mode, device = sys.argv[1], torch.device(sys.argv[2])
    torch.manual_seed(0)
    runs = warm_up(device)
    if mode == "count":
        count(runs)
    else:
        times_ns = time_snippets(runs, device, float(sys.argv[3]))
        with open(sys.argv[4], "w", encoding="utf-8") as file:
            json.dump(times_ns, file)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
