"""Counts a script's CPU work next to a GPU: operators by law, other work as measured.

Rank 0 reports the work at the end of each step, for all ranks.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any

from scenarios.config.host_costs import Eager
from scenarios.seam.errors import package_of
from scenarios.seam.host_work import NO_WORK, HostWork, total
from scenarios.workloads.recording.events.notes import NoteCpuWork
from scenarios.workloads.script.host.calls import turns_of
from scenarios.workloads.script.host.cpu_work import BESIDE, COPIES, LOADING, MEASURED, OPERATORS
from scenarios.workloads.script.host.operators import work_of
from scenarios.workloads.script.process.simulated import SimulatedLink
from scenarios.workloads.script.users_lines import is_users_file, users_line

# Shorter work is reported without its line, as the lookup of a line takes time.
_LEAST_NS = 20_000
# Least ns to count: a line's measured work (or a batch's loading) per step, a stretch, and a stretch in torch or in
# Python's library. Less may be noise of a busy machine; torch's C++ does other work for tensors without values.
_LEAST_MEASURED_NS, _LEAST_STRETCH_NS, _LEAST_ELSEWHERE_NS = 200_000, 50_000, 1_000_000
# What a line takes in a step beyond this many times the most of its earlier steps may be noise of a virtual machine,
# whose CPU time includes what the host takes from it; from this many ns on it counts, as a checkpoint's would. In the
# first step, which has none before it, less is enough.
_MOST_OF_EARLIER, _LEAST_ONCE_NS, _LEAST_AT_FIRST_NS = 2, 10_000_000, 1_000_000
_OF_TORCH = ("torch", "fbgemm_gpu")  # beginnings of packages' names, also torchrec's
_USUAL = Eager()
# Freeing memory takes up to this share of the CPU time of operators and copies (page by page), and this many ns per
# dispatched operator (tensors and autograd nodes).
_FREEING_SHARE, _FREEING_NS = 0.5, 150


class OnCpu:
    """A record of a process's CPU work next to its GPU, from its first step on.

    Work is added to the counts of the process's link, and summed by kind and by line of the script since the last step.
    """

    def __init__(self, link: SimulatedLink) -> None:
        self._link = link
        self._is_counting = False  # set-up before the first step does not count
        self._is_told = os.environ["RANK"] == "0"
        self._since: dict[tuple[str, str], HostWork] = {}
        self._freeing = Freeing()
        self._recurring = Recurring()
        self._loading: list[float] | None = None  # stretches while the data loader works in this process
        link.on_cpu, link.staged, link.measured = self.run, self.stage, self.count_measured

    def end_step(self) -> None:
        """Report the work of the ending step."""
        if self._since:
            self._link.ask(NoteCpuWork([[*key, work] for key, work in self._since.items()]))
            self._since = {}
        if self._is_counting:
            self._recurring.end_step()
            self._freeing.end_step(self._link.host.all_dispatches)
        else:
            self._is_counting, self._freeing = True, Freeing(self._link.host.all_dispatches)

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an operator on CPU tensors, and count its work on a core unless the simulation itself called it."""
        result = func(*args, **kwargs)
        if self._is_counting and not self._link.is_busy and func.namespace != "profiler":
            self._add(OPERATORS, work_of(func, args, kwargs, result))
        return result

    def stage(self, size_bytes: int) -> None:
        """Count a copy of `size_bytes` between pageable memory and memory that a GPU can access."""
        if self._is_counting:
            self._add(COPIES, HostWork(cpu_bytes=2 * size_bytes))

    def count_measured(self, cpu_ns: float, frame: FrameType | None) -> None:
        """Count a measured stretch of the main thread that ends in `frame`, once its line has enough."""
        if self._loading is not None:
            self._loading.append(self._freeing.beyond(cpu_ns, self._link.host.all_dispatches))
        elif self._is_counting and cpu_ns >= _LEAST_STRETCH_NS:
            self._add(MEASURED, HostWork(turns=turns_of(self._counted_ns(cpu_ns, frame))), frame)

    def _counted_ns(self, cpu_ns: float, frame: FrameType | None) -> float:
        """Return the ns to count now for a line: once the line passes the threshold, also its work before."""
        if frame is not None and _is_opaque(frame.f_code.co_filename):
            cpu_ns = self._freeing.beyond(cpu_ns, self._link.host.all_dispatches)
        elif cpu_ns < _LEAST_ELSEWHERE_NS:
            return 0
        return self._recurring.add(("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno), cpu_ns)

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Attribute the work within the context to the data loader."""
        if self._loading is not None or threading.current_thread() is not threading.main_thread():
            yield  # nested in another loader's loading, or in a thread that is not measured
            return
        before, self._loading = self._link.host.counts(), []
        try:
            yield
        finally:
            measured_ns, self._loading = sum(self._loading), None
            if self._is_counting:
                counted_ns = self._recurring.add((LOADING, 0), measured_ns)
                self._link.host.count_work(HostWork(turns=turns_of(counted_ns)))
                after = self._link.host.counts()
                spent = HostWork(*(max(0, now - then) for now, then in zip(after, before, strict=True)))
                self._name(LOADING, users_line(sys._getframe()), spent)

    def count_loaded(self, cpu_ns: int) -> None:
        """Count a batch that the data loader took in this process in `cpu_ns`, measured without the simulation."""
        if self._is_counting and cpu_ns >= _LEAST_STRETCH_NS:
            self._link.host.count_work(HostWork(turns=turns_of(cpu_ns, is_seen=False)))

    def _add(self, what: str, work: HostWork, frame: FrameType | None = None) -> None:
        if not any(work):
            return
        is_beside = threading.current_thread() is not threading.main_thread()
        if is_beside:
            what = BESIDE
        else:
            self._link.host.count_work(work)
            self._freeing.add(_USUAL.computes_ns(work) if what != MEASURED else 0)
        if is_beside or self._loading is None:
            is_short = _USUAL.computes_ns(work) < _LEAST_NS
            self._name(what, "" if is_short else users_line(frame or sys._getframe()), work)

    def _name(self, what: str, place: str, work: HostWork) -> None:
        if self._is_told:
            key = what, place
            self._since[key] = total((self._since.get(key, NO_WORK), work))


@cache
def _is_opaque(file: str) -> bool:
    """Return whether a file belongs to the script or to a package other than torch and Python's library."""
    package = package_of(file)
    return not package.startswith(_OF_TORCH) if package else is_users_file(file)


class Recurring:
    """The measured work of lines in a step, limited by that of earlier steps: a busy machine's noise does not recur."""

    def __init__(self) -> None:
        self._now_ns = defaultdict[tuple[str, int], float](float)
        self._counted_ns = defaultdict[tuple[str, int], float](float)
        self._most_ns: dict[tuple[str, int], float] = {}  # by line, of earlier steps
        self._least_once_ns = _LEAST_AT_FIRST_NS

    def add(self, line: tuple[str, int], cpu_ns: float) -> float:
        """Add a stretch to a line, and return the ns to count now: once the line has enough, also its work before."""
        now_ns = self._now_ns[line] = self._now_ns[line] + cpu_ns
        if now_ns < _LEAST_MEASURED_NS:
            return 0
        if now_ns < self._least_once_ns:
            now_ns = min(now_ns, _MOST_OF_EARLIER * self._most_ns.get(line, 0.0))
        due_ns = now_ns - self._counted_ns[line]
        self._counted_ns[line] = now_ns
        return due_ns

    def end_step(self) -> None:
        """Begin a step, for which all work so far is that of earlier steps."""
        self._least_once_ns = _LEAST_ONCE_NS
        for line, took_ns in self._now_ns.items():
            self._most_ns[line] = max(took_ns, self._most_ns.get(line, 0.0))
        self._now_ns.clear()
        self._counted_ns.clear()


class Freeing:
    """A budget of CPU time for freeing the results of this and the last step; only work beyond the budget counts.

    `dispatched`: operators dispatched before the first step, by set-up and evaluations; they add nothing to the budget.
    """

    def __init__(self, dispatched: int = 0) -> None:
        self._last_ns = self._now_ns = 0.0
        self._dispatched = dispatched

    def add(self, computed_ns: float) -> None:
        """Extend the budget for operators and copies that took `computed_ns`."""
        self._now_ns += _FREEING_SHARE * computed_ns

    def beyond(self, cpu_ns: float, dispatched: int) -> float:
        """Return the part of a stretch beyond the budget; `dispatched`: operators dispatched so far."""
        self._see(dispatched)
        freeing_ns = min(cpu_ns, self._last_ns + self._now_ns)
        of_last_ns = min(freeing_ns, self._last_ns)
        self._last_ns -= of_last_ns
        self._now_ns -= freeing_ns - of_last_ns
        return cpu_ns - freeing_ns

    def end_step(self, dispatched: int) -> None:
        """Drop the budget that is left of the step before."""
        self._see(dispatched)
        self._last_ns, self._now_ns = self._now_ns, 0.0

    def _see(self, dispatched: int) -> None:
        self._now_ns += _FREEING_NS * (dispatched - self._dispatched)
        self._dispatched = dispatched
