"""A script's rank on a GPU that is not there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch._dynamo

from scenarios.workloads.script.gpu.bags import watch_bags
from scenarios.workloads.script.gpu.mode import Meta, OnGpu, leave_trials_alone
from scenarios.workloads.script.gpu.pretend import SeenGpu, Streams, pretend
from scenarios.workloads.script.gpu.shadows import Shadows
from scenarios.workloads.script.simulated import SimulatedLink


@contextmanager
def on_gpu(gpu: SeenGpu, link: SimulatedLink) -> Iterator[None]:
    """Inside, torch has `gpu.count` GPUs; what is launched there goes with the requests of `link`."""
    link.shadows, link.launched = Shadows(has_all=gpu.has_values), []
    indexed = pretend(gpu, link.shadows, Streams(link), lambda: link.ask("synchronize"))
    leave_trials_alone(link.shadows)
    watch_bags(link, gpu.l2_bytes)
    torch._C._set_only_lift_cpu_tensors(True)  # so that `torch.tensor` comes by
    with Meta(link.shadows, indexed), OnGpu(link.shadows, link.launch, _say):
        yield


def _say(sentence: str) -> None:
    if os.environ["RANK"] == "0":
        print(f"note: {sentence}", file=sys.stderr, flush=True)
