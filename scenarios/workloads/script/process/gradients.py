"""When the gradients of a script's replicas are there, told by the process that runs it.

A replica is a module under DistributedDataParallel. Who exchanges its buckets or its hook needs that.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from scenarios.workloads.script.process.simulated import SimulatedLink


def watch_gradients(link: SimulatedLink) -> None:
    """Have each DistributedDataParallel that the script makes tell of its gradients."""
    numbers, begin = count(), DistributedDataParallel.__init__
    register = DistributedDataParallel.register_comm_hook

    def made(self: Any, *args: Any, **more: Any) -> None:
        begin(self, *args, **more)
        self._twinstep = _Replica(self, link, next(numbers))

    def registered(self: Any, *args: Any, **more: Any) -> None:
        self._twinstep.has_hook = True
        register(self, *args, **more)

    DistributedDataParallel.__init__ = made  # type: ignore[method-assign]
    DistributedDataParallel.register_comm_hook = registered  # type: ignore[method-assign]


def _accumulating(parameter: Tensor) -> Any:
    """autograd's node that adds to its gradient."""
    with torch.enable_grad():
        node: Any = parameter.view_as(parameter).grad_fn
    return node.next_functions[0][0]


class _Replica:
    """One of them; the order in which its gradients arrive in its first pass is that of its buckets."""

    def __init__(self, module: Any, link: SimulatedLink, number: int) -> None:
        self._module, self._link, self._number, self.has_hook = module, link, number, False
        parameters = [each for each in module._module_parameters if each.requires_grad]
        self._count = len(parameters)
        self._arrived: dict[int, Tensor] = {}
        self._places: dict[int, int] = {}
        self._nodes = [_accumulating(each) for each in parameters]  # which autograd would not keep
        for node, parameter in zip(self._nodes, parameters, strict=True):
            node.register_hook(lambda *_, of=parameter: self._ready(of))  # after the reducer's, which copies

    def _ready(self, parameter: Tensor) -> None:
        if not self._module.require_backward_grad_sync:
            return
        if self._places:
            self._link.gradient_is_ready(self._number, self._places[id(parameter)])
            return
        self._arrived[id(parameter)] = parameter
        if len(self._arrived) == self._count:
            self._places = {key: place for place, key in enumerate(self._arrived)}
            shapes = [[list(each.shape), str(each.dtype).removeprefix("torch.")] for each in self._arrived.values()]
            group = getattr(self._module.process_group, "number", 0)
            self._link.ask("replica", [self._number, group, self.has_hook, shapes])
