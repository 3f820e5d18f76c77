"""The process groups of a script on a real rank: wrappers around torch's own that record each call."""

# torch's stubs disagree with what its bindings take and call.
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
from scenarios.workloads.recording.packed import issue
from scenarios.workloads.script.process.process_group import BEGINNING, ScriptGroup, TorchCall
from scenarios.workloads.script.requests import Refused

# Calls that a group remembers as checked; calls whose sizes differ from step to step come once each.
_MOST_KNOWN = 1 << 10


class WatchedGroup(ScriptGroup):
    """A process group over gloo or NCCL for each type of device, chosen as torch would; records its calls."""

    def __init__(
        self, backend: WatchingBackend, rank: Rank, group: Group, options: Any, backends: Mapping[str, str]
    ) -> None:
        super().__init__(options, backends)
        self._backend, self._rank, self._group = backend, rank, group
        self._known: dict[Hashable, Known] = {}
        # A plain ProcessGroup, as torch creates one: some of its calls are its own, made of its backends' calls.
        self._inner: Any = dist.ProcessGroup(options.store, self.rank(), self.size())
        by_name = {name: self._make(name, options) for name in dict.fromkeys(backends.values())}
        for kind, name in backends.items():
            own = getattr(dist.ProcessGroup.BackendType, name.upper())
            self._inner._register_backend(torch.device(kind), own, by_name[name])
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

    def bypass(self) -> None:
        """Pass each call straight to torch's own group from now on, unrecorded; calls begun before stay recorded."""
        for name in BEGINNING:
            if hasattr(dist.ProcessGroup, name):
                setattr(self, name, self._bypassing(getattr(self._inner, name)))

    def _bypassing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a Python function: torch ignores bound methods of its own where it looks for overrides."""
        journal = self._backend.journal

        def bypass(*arguments: Any, **more: Any) -> Any:
            journal.moves += 1  # this rank does not hang
            work = call(*arguments, **more)
            if self._begun is not None and work is not None:
                self._begun.append(work)
            return work

        return bypass

    def issue(self, request: TorchCall) -> dist.Work:
        """Execute a call on torch's own group; a call equal to an earlier one is not checked again."""
        backend, key = self._backend, _signature(request)
        known = self._known.get(key)
        is_hosts = backend.is_on_gpu and self._is_hosts(request)
        try:
            underway = backend.begin(request, self._inner, partial(self._play, request), known, is_hosts=is_hosts)
        except MISTAKES as mistake:  # if torch refuses the call too, its own error is raised
            name, arguments = request.native
            getattr(self._inner, name)(*arguments)
            raise Refused.of(mistake).error from None
        if known is None:
            if len(self._known) == _MOST_KNOWN:
                self._known.clear()
            assert underway.entry.call is not None, "a call of the script's"
            self._known[key] = underway.entry.call, underway.group
        if underway.is_waited:
            return underway.work
        work = WatchedWork(backend, underway, request)
        if torch._C._current_autograd_node() is not None:
            # DDP waits in C++ at the end of the backward pass, where nothing is recorded; so does the simulator.
            Variable._execution_engine.queue_callback(work.wait)
        if request.is_async:
            underway.entry.lane.overtakes()
        return work

    def _is_hosts(self, request: TorchCall) -> bool:
        """Return whether gloo executes the call, so that the host waits; torch uses NCCL for a call without tensors."""
        tensors = request.inputs or request.targets
        if not tensors:
            return "nccl" not in self._backends.values()
        return self._backend_of(tensors[0]) == "gloo"

    def _play(self, request: TorchCall) -> Underway:
        """Make a checked verb of a call."""
        rank = self._rank.for_role(REDUCTION) if request.of_reducer else self._rank
        arguments = rank, request.verb, request.inputs, request.targets
        underway = issue(*arguments, group=self._group, label=request.label, options=request.options)
        assert isinstance(underway, Underway), "that is what this backend issues"
        return underway


def _signature(request: TorchCall) -> Hashable:
    """Return a key of everything that decides what a call is and whether it is valid."""
    options = [(*value,) if isinstance(value, list) else value for value in request.options.values()]
    return (
        request.verb,
        request.label,
        request.of_reducer,
        torch.is_grad_enabled(),
        (*map(_kind, request.inputs),),
        (*map(_kind, request.targets),),
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
    """A handle of a call that has begun."""

    def __init__(self, backend: WatchingBackend, underway: Underway, request: TorchCall) -> None:
        super().__init__()
        self._backend, self._underway, self._request = backend, underway, request
        self._is_waited = False

    def wait(self, timeout: Any = None) -> bool:
        """Wait as torch's own work does."""
        if not self._is_waited:
            self._is_waited = True
            self._backend.wait(self._underway, is_async=self._request.is_async)
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self._underway.work.is_completed()

    def is_success(self) -> bool:
        return self._underway.work.is_success()

    def result(self) -> Any:
        return self._request.result

    def get_future(self) -> Any:
        """Return torch's own future."""
        return self._underway.work.get_future()
