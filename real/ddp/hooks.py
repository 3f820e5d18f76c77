"""Communication hooks of PowerSGD for `DistributedDataParallel.register_comm_hook`, torch 2.11 to 2.13.

The algorithms are `scenarios.compression`'s, the same coroutines that simulations run. A hook hands its bucket to the
state's thread and returns a future; see docs/reference/compression.md.
"""

import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Variable
from torch.distributed import GradBucket  # type: ignore[attr-defined]

from real.ddp.agreement import agree, facts_of
from real.ddp.backend import DdpBackend, twin_of
from real.ddp.buckets import BucketLayout, Reduction, Regrouping
from real.ddp.worker import Promise, Worker
from real.rank.drive import play
from scenarios import compression
from scenarios.compression import Bucket, batched_powersgd, layerwise_powersgd
from scenarios.seam.rank import Rank

# No `from __future__ import annotations` here: DDP compares a hook's annotations with the types themselves.

_STATE = "a real.ddp.hooks.PowerSGDState"
_log = logging.getLogger(__name__)
_Algorithm = Callable[[Rank, compression.PowerSGDState, Bucket], Coroutine[Any, Any, Tensor]]


class _ProcessState:
    """A part of a state that belongs to this process: group, thread, and the mapping of DDP's buckets."""

    def __init__(self, base: dist.ProcessGroup, device: torch.device, layout: BucketLayout) -> None:
        self.base = base
        self.group = twin_of(base, device)
        self.worker = Worker()
        self.regrouping = Regrouping(layout)
        self.promises: list[Promise] = []


@dataclass(slots=True, eq=False)
class PowerSGDState(compression.PowerSGDState):
    """A `PowerSGDState` as in torch 2.13, with `survive_zero_matrices` (see `scenarios.compression.PowerSGDState`).

    `process_group` is torch's; None is the default group. One state serves one DistributedDataParallel; every rank has
    its own state, because errors differ. A state pickles without its process group, and training resumes with the same
    bits: a loaded state is on the default group until `process_group` is set. States that differ between ranks are
    refused on every rank by the first backward pass that reduces.

    Raises:
        ValueError: error feedback or warm start from before the second step, or a rank below 1.
    """

    process_group: dist.ProcessGroup | None = None  # type: ignore[assignment]
    layout: BucketLayout = field(init=False, repr=False, default_factory=BucketLayout)
    _here: _ProcessState | None = field(init=False, repr=False, default=None)

    @property
    def group(self) -> None:
        """None: the training's process group is the only one."""
        return

    def __getstate__(self) -> dict[str, Any]:
        if self.process_group is not None:
            _log.warning("A PowerSGDState is stored without its process group; set process_group again when loaded.")
        left_out = ("process_group", "_here")
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name not in left_out}

    def __setstate__(self, stored: dict[str, Any]) -> None:
        self.process_group, self._here = None, None
        for name, value in stored.items():
            setattr(self, name, value)

    def here(self, device: torch.device, hook: str) -> _ProcessState:
        """Return the part of this state that belongs to this process; create it for each new process group.

        The thread's first job compares this state and its hook with those of all ranks.

        Raises:
            TypeError: `process_group` is no process group of torch.
            ValueError: the state has memory of another hook's buckets.
        """
        base = dist.group.WORLD if self.process_group is None else self.process_group
        if not isinstance(base, dist.ProcessGroup):
            raise TypeError(
                f"process_group is a {type(base).__name__}, expected a torch.distributed.ProcessGroup or None"
            )
        self.layout.belong_to(hook, bool(self.error_dict or self.p_memory_dict))
        if self._here is None or self._here.base is not base:
            self._here = _ProcessState(base, device, self.layout)
            facts = facts_of(hook, self, self.layout)
            self._here.worker.submit(partial(agree, self._here.group, device, facts), device)
        return self._here


def batched_powerSGD_hook(  # noqa: N802 (torch's own name)
    state: PowerSGDState, bucket: GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Reduce each bucket as one square matrix, as torch 2.13 intends; see `scenarios.compression.batched_powersgd`."""
    return _reduce("batched_powerSGD_hook", batched_powersgd, state, bucket)


def powerSGD_hook(  # noqa: N802 (torch's own name)
    state: PowerSGDState, bucket: GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Reduce each gradient as a matrix, as torch 2.13 does; see `scenarios.compression.layerwise_powersgd`."""
    return _reduce("powerSGD_hook", layerwise_powersgd, state, bucket)


def _reduce(
    hook: str, algorithm: _Algorithm, state: PowerSGDState, bucket: GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Return a future of DDP's bucket, reduced in place on the state's thread.

    The backward pass that called the hook raises an error of the reduction; outside of a backward pass, whoever waits
    for the future does.
    """
    if not isinstance(state, PowerSGDState):
        raise TypeError(f"the hook's state is a {type(state).__module__}.{type(state).__name__}, expected {_STATE}")
    buffer = bucket.buffer()
    if buffer.is_sparse:
        raise TypeError(f"bucket {bucket.index()} has sparse gradients, expected dense ones")
    if any(parameter.is_complex() for parameter in bucket.parameters()):
        raise TypeError(f"bucket {bucket.index()} has complex parameters, expected real ones")
    here = state.here(buffer.device, hook)
    here.promises.append(here.worker.promise(buffer))
    future = here.promises[-1].future
    reductions = here.regrouping.take(bucket, bool(state.error_dict or state.p_memory_dict))
    for reduction in reductions:
        here.worker.submit(partial(_play, algorithm, state, here.group, reduction), reduction.device)
    if reductions:
        here.worker.settle(here.promises)
        here.promises = []
    # The engine's callback runs at the end of the backward pass: `loss.backward()` raises what the thread raised.
    if bucket.is_last():
        with suppress(RuntimeError):  # raised where no backward pass runs
            Variable._execution_engine.queue_callback(here.worker.join)
    return future


def _play(algorithm: _Algorithm, state: PowerSGDState, group: dist.ProcessGroup, reduction: Reduction) -> None:
    rank = Rank(DdpBackend(group, reduction.device))
    reduction.play(lambda bucket: play(algorithm(rank, state, bucket), group.rank()))
