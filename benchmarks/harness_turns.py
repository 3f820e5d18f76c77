"""Torch as it is without us, to which a script that is measured turns for some of its steps, and back.

Two processes differ by more than the harness adds, if only by where their memory lies: so steps of both kinds are taken
in turn, in one process. What torch has of its own is kept as this module is loaded, ahead of all that watches a script.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch.optim import optimizer

OWN, AGAIN, OFF = "torch's own", "torch's own again", "recording off"
ROUNDS, OF_A_TURN = 60, 3  # the first step of a turn, one more, is not timed
_backward = torch.Tensor.backward, torch.autograd.backward


@contextmanager
def _own() -> Iterator[Any]:
    """Give torch's own group, while nothing of ours is in the place of torch's functions or called by them."""
    hooks, ours = optimizer._global_optimizer_post_hooks, (torch.Tensor.backward, torch.autograd.backward)
    kept = dict(hooks)
    hooks.clear()
    torch.Tensor.backward, torch.autograd.backward = _backward  # type: ignore[method-assign]
    try:
        yield dist.group.WORLD._inner  # type: ignore[union-attr]
    finally:
        torch.Tensor.backward, torch.autograd.backward = ours  # type: ignore[method-assign]
        hooks.update(kept)


def take(step: Callable[[Any], None]) -> dict[str, dict[str, list[float]]]:
    """Run steps in turn, each with the group that it is to use; return the median time of each turn in us, by clock and
    by whose turn it was.
    """
    ways = [OWN, AGAIN, OFF]
    found: dict[str, dict[str, list[float]]] = {clock: {way: [] for way in ways} for clock in ("wall", "cpu")}
    for round_ in range(ROUNDS):
        first = round_ % len(ways)
        for way in ways[first:] + ways[:first]:
            with nullcontext(dist.group.WORLD) if way == OFF else _own() as group:
                times: dict[str, list[float]] = {"wall": [], "cpu": []}
                for _ in range(1 + OF_A_TURN):
                    began_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
                    step(group)
                    times["cpu"].append((time.thread_time_ns() - cpu_ns) / 1e3)
                    times["wall"].append((time.perf_counter_ns() - began_ns) / 1e3)
            for clock, taken in times.items():
                found[clock][way].append(sorted(taken[1:])[OF_A_TURN // 2])
    return found
