"""The process groups of a script on a real rank: torch's own, behind ones that note each call."""

# torch's stubs say other than what its bindings take and call.
# mypy: disable-error-code="override, attr-defined, arg-type"

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd import Variable

from real.script.backend import Known, Underway, WatchingBackend
from scenarios.seam.calls import MISTAKES
from scenarios.seam.errors import ProgramError
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.seam.roles import REDUCTION
from scenarios.workloads.script.process.process_group import BEGINNING, Asked, ScriptGroup
from scenarios.workloads.script.requests import Refused, issue

# Calls that a group knows: those of which sizes differ from step to step come once.
_MOST_KNOWN = 1 << 10


class WatchedGroup(ScriptGroup):
    """The ranks of one group, over gloo or NCCL for each type of device, as torch would choose."""

    def __init__(
        self, backend: WatchingBackend, rank: Rank, group: Group, options: Any, backends: Mapping[str, str]
    ) -> None:
        super().__init__(options, backends)
        self._backend, self._rank, self._group = backend, rank, group
        self._known: dict[Hashable, Known] = {}
        # As torch makes one: of a group's calls some are the group's own, which it makes of its backends'.
        self._inner: Any = dist.ProcessGroup(options.store, self.rank(), self.size())
        made = {name: self._make(name, options) for name in dict.fromkeys(backends.values())}
        for kind, name in backends.items():
            own = getattr(dist.ProcessGroup.BackendType, name.upper())
            self._inner._register_backend(torch.device(kind), own, made[name])
            self._inner._set_default_backend(own)

    def _make(self, name: str, options: Any) -> Any:
        store = dist.PrefixStore(f"{name}/", options.store)
        if name == "gloo":
            return dist.ProcessGroupGloo(store, self.rank(), self.size(), options.timeout)
        if name == "nccl":
            own = dist.ProcessGroupNCCL.Options()
            own._timeout = options.timeout
            return dist.ProcessGroupNCCL(store, self.rank(), self.size(), own)
        raise ProgramError(f"backend '{name}': expected 'gloo' or 'nccl'")

    def hand_on(self) -> None:
        """Hand each call straight to torch's own group from now on, and note none; works that were begun stay noted."""
        for name in BEGINNING:
            if hasattr(dist.ProcessGroup, name):
                setattr(self, name, self._handing_on(getattr(self._inner, name)))

    def _handing_on(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of Python's, as torch passes over bound methods of its own where it looks for ours."""
        journal = self._backend.journal

        def handed_on(*given: Any, **more: Any) -> Any:
            journal.moves += 1  # this rank does not hang
            work = call(*given, **more)
            if self._begun is not None and work is not None:
                self._begun.append(work)
            return work

        return handed_on

    def issue(self, asked: Asked) -> dist.Work:
        """Begin a call for real; one that is as another was, without a look at its arguments."""
        backend, key = self._backend, _signature(asked)
        known = self._known.get(key)
        is_hosts = backend.is_on_gpu and self._is_hosts(asked)
        try:
            underway = backend.begin(asked, self._inner, partial(self._play, asked), known, is_hosts=is_hosts)
        except MISTAKES as mistake:  # torch's own words, where it refuses the call, too
            name, given = asked.native
            getattr(self._inner, name)(*given)
            raise Refused.of(mistake).error from None
        if known is None:
            if len(self._known) == _MOST_KNOWN:
                self._known.clear()
            assert underway.entry.call is not None, "a call of the script's"
            self._known[key] = underway.entry.call, underway.group
        if underway.is_waited:
            return underway.work
        work = WatchedWork(backend, underway, asked)
        if torch._C._current_autograd_node() is not None:
            # At the end of the backward pass DDP waits, in C++; the simulator does at the same place.
            Variable._execution_engine.queue_callback(work.wait)
        if asked.is_async:
            underway.entry.lane.overtakes()
        return work

    def _is_hosts(self, asked: Asked) -> bool:
        """Return whether gloo makes the call, for which the host waits; torch takes NCCL for one without tensors."""
        tensors = asked.inputs or asked.targets
        if not tensors:
            return "nccl" not in self._backends.values()
        return self._backend_of(tensors[0]) == "gloo"

    def _play(self, asked: Asked) -> Underway:
        """Make a verb of a call, which is checked."""
        rank = self._rank.for_role(REDUCTION) if asked.of_reducer else self._rank
        given = rank, asked.verb, asked.inputs, asked.targets
        underway = issue(*given, group=self._group, label=asked.label, options=asked.options)
        assert isinstance(underway, Underway), "that is what this backend issues"
        return underway


def _signature(asked: Asked) -> Hashable:
    """Return all of a call on which it depends whether it is right, and what it is."""
    options = [(*value,) if isinstance(value, list) else value for value in asked.options.values()]
    return (
        asked.verb,
        asked.label,
        asked.of_reducer,
        torch.is_grad_enabled(),
        (*map(_kind, asked.inputs),),
        (*map(_kind, asked.targets),),
        (*options,),
    )


def _kind(tensor: torch.Tensor) -> Hashable:
    return (
        tensor.shape,
        tensor.dtype,
        tensor.device,
        tensor.layout,
        tensor.layout is not torch.strided or tensor.is_contiguous(),
        tensor.requires_grad and tensor.is_leaf,
        tensor.is_conj(),
        tensor.is_neg(),
    )


class WatchedWork(dist.Work):
    """A call on its way."""

    def __init__(self, backend: WatchingBackend, underway: Underway, asked: Asked) -> None:
        super().__init__()
        self._backend, self._underway, self._asked = backend, underway, asked
        self._is_waited = False

    def wait(self, timeout: Any = None) -> bool:
        """As torch's own does."""
        if not self._is_waited:
            self._is_waited = True
            self._backend.wait(self._underway, is_async=self._asked.is_async)
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self._underway.work.is_completed()

    def is_success(self) -> bool:
        return self._underway.work.is_success()

    def result(self) -> Any:
        return self._asked.result

    def get_future(self) -> Any:
        """torch's own."""
        return self._underway.work.get_future()
