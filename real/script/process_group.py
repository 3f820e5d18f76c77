"""The process groups of a script on a real rank: torch's own, behind ones that note each call."""

# torch's stubs say other than what its bindings take and call.
# mypy: disable-error-code="override, attr-defined, arg-type"

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd import Variable

from real.script.backend import Underway, WatchingBackend
from scenarios.seam.errors import ProgramError
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.workloads.script.process.process_group import Asked, ScriptGroup
from scenarios.workloads.script.requests import issue


class WatchedGroup(ScriptGroup):
    """The ranks of one group, over gloo or NCCL for each type of device, as torch would choose."""

    def __init__(
        self, backend: WatchingBackend, rank: Rank, group: Group, options: Any, backends: Mapping[str, str]
    ) -> None:
        super().__init__(options, backends)
        self._backend, self._rank, self._group = backend, rank, group
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

    def issue(self, asked: Asked) -> WatchedWork:
        """Begin a call for real."""
        backend = self._backend
        with backend.between(), backend.asked(asked, self._inner):
            underway = issue(
                self._rank,
                asked.verb,
                asked.inputs,
                asked.targets,
                group=self._group,
                label=asked.label,
                options=asked.options,
            )
            assert isinstance(underway, Underway), "that is what this backend issues"
            work = WatchedWork(backend, underway, asked)
            if torch._C._current_autograd_node() is not None:
                # At the end of the backward pass DDP waits, in C++; the simulator does at the same place.
                Variable._execution_engine.queue_callback(work.wait)
            if asked.is_async:
                backend.lane.overtakes()
            return work


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
            with self._backend.between(is_cut=self._asked.is_async):
                self._underway.wait()
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
