"""What a host does is counted: operators, nodes of autograd, gradients, backward passes."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from scenarios.modules.describing.host import HostCounter
from scenarios.seam.host_work import NO_WORK


class _Counting(TorchDispatchMode):
    def __init__(self, counter: HostCounter) -> None:
        super().__init__()
        self._counter = counter

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self._counter.count_dispatch()
        return func(*args, **(kwargs or {}))


def test_a_pass_forward_and_two_back_are_counted() -> None:
    counter, layer = HostCounter(), nn.Linear(4, 4)
    inputs = torch.ones(2, 4)
    with _Counting(counter):
        outputs = layer(inputs)
        forward = counter.take()
        for _ in range(2):
            outputs.backward(torch.ones(2, 4), retain_graph=True)
        backward = counter.take()
    assert (forward.dispatches, forward.nodes, forward.passes) == (2, 0, 0)  # the weight's transpose and the product
    # Those of the product, of the transpose, and of weight and bias, in each pass.
    assert (backward.passes, backward.nodes, backward.gradients) == (2, 2 * 4, 2 * 2)
    assert counter.take() is NO_WORK


def test_library_launches_are_counted_apart_from_other_operators() -> None:
    counter = HostCounter()
    for kind in ("gemm", "attention", "convolution", "elementwise"):
        counter.count_launch(kind)
    counter.passed_bags()
    counter.calls += 7
    taken = counter.take()
    assert (taken.products, taken.operators, taken.bags, taken.calls) == (3, 1, 1, 7)
