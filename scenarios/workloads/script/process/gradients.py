"""Reports, from a script's process, when the gradients of its replicas are ready.

A replica is a module under DistributedDataParallel. Simulating other buckets or hooks requires these times.
"""

from __future__ import annotations

import weakref
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from scenarios.workloads.recording.events.calls import ReplicaGradients
from scenarios.workloads.script.process.simulated import SimulatedLink


def watch_gradients(link: SimulatedLink) -> None:
    """Make each DistributedDataParallel that the script creates report its gradients."""
    numbers, begin = count(), DistributedDataParallel.__init__
    register = DistributedDataParallel.register_comm_hook

    def create_watched(self: Any, *args: Any, **more: Any) -> None:
        begin(self, *args, **more)
        self._twinstep = _WatchedReplica(self, link, next(numbers))

    def register_hook(self: Any, *args: Any, **more: Any) -> None:
        self._twinstep.has_hook = True
        register(self, *args, **more)

    DistributedDataParallel.__init__ = create_watched  # type: ignore[method-assign]
    DistributedDataParallel.register_comm_hook = register_hook  # type: ignore[method-assign]
    future: Any = torch._C.Future
    wait = future.wait

    def wait_within_pass(self: Any) -> Any:
        """Wait as torch does, for a call whose future only the end of the backward pass would fulfil: a hook waits."""
        link.fulfil()
        return wait(self)

    future.wait = wait_within_pass


def _accumulating(parameter: Tensor) -> Any:
    """Return autograd's node that accumulates a parameter's gradient."""
    with torch.enable_grad():
        node: Any = parameter.view_as(parameter).grad_fn
    return node.next_functions[0][0]


def _dense(module: Any) -> list[Tensor]:
    """Return the parameters that share buckets; sparse gradients are reduced separately."""
    parameters, is_sparse = module._build_params_for_reducer()
    return [each for each, sparse in zip(parameters, is_sparse, strict=True) if not sparse]


class _WatchedReplica:
    """A watcher of one replica, which keeps nothing of the replica alive.

    Gradients are numbered by their order of arrival in the first pass, which is the order of the replica's buckets.
    """

    def __init__(self, module: Any, link: SimulatedLink, number: int) -> None:
        self._module, self._link, self._number, self.has_hook = weakref.ref(module), link, number, False
        parameters = [each for each in _dense(module) if each.requires_grad]
        self._shapes = [[list(each.shape), str(each.dtype).removeprefix("torch.")] for each in parameters]
        self._arrived: list[int] = []
        self._places: dict[int, int] = {}
        self._nodes = [_accumulating(each) for each in parameters]  # kept alive here, as autograd does not
        own = weakref.ref(self)
        for index, node in enumerate(self._nodes):
            # Runs after the reducer's hook, which copies into the bucket.
            node.register_hook(partial(_tell, own, index))

    def ready(self, index: int) -> None:
        """Report that the gradient of the parameter `index` is ready; after the first pass, report the order."""
        module = self._module()
        # Under `no_sync` the reducer sends nothing, so that gradients are not ready for it.
        if module is None or not module.require_backward_grad_sync:
            return
        if self._places:
            self._link.gradient_is_ready(self._number, self._places[index])
            return
        if index not in self._arrived:
            self._arrived.append(index)
        if len(self._arrived) == len(self._shapes):
            self._places = {each: place for place, each in enumerate(self._arrived)}
            shapes = [self._shapes[each] for each in self._arrived]
            group = getattr(module.process_group, "number", 0)
            self._link.ask(ReplicaGradients(self._number, group, self.has_hook, shapes))


def _tell(replica: weakref.ref[_WatchedReplica], index: int, *_: Any) -> None:
    if (found := replica()) is not None:
        found.ready(index)
