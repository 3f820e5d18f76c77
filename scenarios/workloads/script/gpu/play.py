"""Sets up the process of a script's rank with a simulated GPU."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from unittest import mock

import torch
import torch._dynamo

from scenarios.modules.cuda_autocast import autocast_here, autocast_on_meta
from scenarios.workloads.script.gpu.cuda.driver import Current
from scenarios.workloads.script.gpu.cuda.generators import make_generators
from scenarios.workloads.script.gpu.cuda.properties import SeenGpu
from scenarios.workloads.script.gpu.cuda.torch_cuda import pretend
from scenarios.workloads.script.gpu.cuda.torch_streams import GpuStreams
from scenarios.workloads.script.gpu.dispatch_mode import Meta, OnGpu
from scenarios.workloads.script.gpu.fakes import find_shapes_of_dtensors, leave_fakes_alone
from scenarios.workloads.script.gpu.fbgemm_bags import watch_bags
from scenarios.workloads.script.gpu.flex_attention import FlexAttention
from scenarios.workloads.script.gpu.functional import Functional
from scenarios.workloads.script.gpu.kernels import kernels_of_gpus, name_operators_of_gpus
from scenarios.workloads.script.gpu.known_values import Shadows
from scenarios.workloads.script.gpu.memory.memory import DeviceMemory, workspace_bytes
from scenarios.workloads.script.gpu.parameters import keep_parameters
from scenarios.workloads.script.gpu.storages import Storages
from scenarios.workloads.script.gpu.tensors import HostCopies, move_tensors, print_tensors
from scenarios.workloads.script.gpu.triton_kernels import TritonKernels
from scenarios.workloads.script.gpu.values.computed import ValueComputer, draw_at_once
from scenarios.workloads.script.gpu.values.value_reads import ValueReads
from scenarios.workloads.script.process.labels import Labels
from scenarios.workloads.script.process.simulated import SimulatedLink


@contextmanager
def on_gpu(gpu: SeenGpu, link: SimulatedLink) -> Iterator[None]:
    """Simulate `gpu.count` GPUs within this context; launches go along with the requests of `link`."""
    memory = DeviceMemory(gpu.memory_bytes, workspace_bytes(gpu.capability), lambda: link.stream, _say)
    current = Current(gpu.count)
    shadows = Shadows(memory, current.get, has_all=gpu.has_values)
    link.shadows, link.labels, link.launched = shadows, Labels(), []
    link.compiled.takes(memory)
    indexed = move_tensors(shadows, current.get)
    keep_parameters(shadows)
    make_generators(indexed, gpu.count)
    pretend(gpu, current, GpuStreams(link), partial(_memory_of, shadows, current))
    leave_fakes_alone(shadows, current.get)
    find_shapes_of_dtensors(shadows)
    watch_bags(link, gpu.l2_bytes)
    torch._C._set_only_lift_cpu_tensors(True)  # so that `torch.tensor` dispatches its copy to the GPU
    functional = Functional(shadows)
    flex = FlexAttention(shadows, link.launch, lambda: link.compiled.is_running)
    flex.install()

    transfers = HostCopies(link)
    print_tensors(shadows, transfers.wait)
    asked = ValueReads(shadows, _say, link.step)
    computed = ValueComputer(shadows, asked.say, lambda: torch.cuda.default_generators[indexed("cuda").index])
    link.filing = Storages(shadows, transfers, asked.say).filing
    draw_at_once(shadows)
    TritonKernels(shadows, gpu, link.launch, _say).watch()
    name_operators_of_gpus()
    # One operator per layer of an encoder in evaluations: the operators of training price it, with padding.
    torch.backends.mha.set_fastpath_enabled(False)

    @contextmanager
    def modes() -> Iterator[None]:
        on_gpu = OnGpu(link, shadows, functional, flex, transfers, computed, asked)
        with autocast_here(), Meta(shadows, indexed), on_gpu:
            yield

    with autocast_on_meta(shadows.is_of_gpu), kernels_of_gpus(), _in_threads(modes), modes():
        yield


def _memory_of(shadows: Shadows, current: Current, device: int) -> DeviceMemory:
    """Return the process's use of a GPU's memory, an empty memory for a GPU that it does not use."""
    memory = shadows.memory.count_records()
    return memory if device == current.get() or shadows.uses(device) else DeviceMemory(memory.total_bytes)


@contextmanager
def _in_threads(modes: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Enter the modes in threads that a script starts, too: torch's modes belong to one thread."""
    # `run`, not `start`: it is called in the new thread, where the modes must be entered.
    run = threading.Thread.run

    def start(self: threading.Thread) -> None:
        with modes():
            run(self)

    with mock.patch.object(threading.Thread, "run", start):
        yield


@cache
def _say(sentence: str) -> None:
    if os.environ["RANK"] == "0":
        print(f"note: {sentence}", file=sys.stderr, flush=True)
