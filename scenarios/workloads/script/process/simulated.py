"""A script's process in the simulator: its process group sends each call to the simulated rank, and waits there."""

# torch's stubs say other than what its bindings take and call.
# mypy: disable-error-code="override, call-arg, assignment, attr-defined, arg-type"

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import count
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Variable

from scenarios.during import during
from scenarios.modules.describing.host import HostCounter
from scenarios.modules.recorder import is_recomputed
from scenarios.seam.host_work import NO_WORK, HostWork
from scenarios.seam.kernel import Kernel
from scenarios.seam.program import COMPILED_STEP
from scenarios.workloads.recording.events.calls import IssueCall, NewGroup, WaitCall
from scenarios.workloads.recording.events.event import Request
from scenarios.workloads.recording.events.notes import CompiledStep, MemoryPeak, RecordMetric, ReservedPeak, StepEnd
from scenarios.workloads.recording.events.waits import Elapsed, Query, Sleep, Synchronize, SynchronizeEvent
from scenarios.workloads.recording.events.work import (
    GradientReady,
    Label,
    Launched,
    LaunchKernel,
    OnStream,
    RecordEvent,
    Spent,
    Turn,
    WaitEvent,
)
from scenarios.workloads.recording.packed import Packed
from scenarios.workloads.script.gpu.known_values import Shadows, is_meta
from scenarios.workloads.script.host.calls import CountedCalls, Stretches
from scenarios.workloads.script.host.compiled import AsCompiled, Call, Compiled
from scenarios.workloads.script.host.polls import Polls
from scenarios.workloads.script.host.through_host import through_host
from scenarios.workloads.script.meeting.store import SimulatedStore
from scenarios.workloads.script.process.clock import ScriptClock, ScriptCpuTimer
from scenarios.workloads.script.process.labels import Labels
from scenarios.workloads.script.process.process_group import ScriptGroup, TorchCall
from scenarios.workloads.script.requests import Asking
from scenarios.workloads.script.script_streams import KIND


class SimulatedLink:
    """A rank's connection to the simulator; each request carries the process's work since the previous one."""

    def __init__(self, connection: Connection) -> None:
        self._lock = threading.RLock()
        self._group = 0
        self.computed = ScriptCpuTimer(Label(KIND))  # on a CPU
        self.launched: list[Launched] | None = None  # on a GPU, since the last request
        self.host = HostCounter()  # beside a GPU
        self._calls = CountedCalls(self.host, Stretches(self._add_measured))  # from the first step on
        self.compiled = Compiled(self._launch_fused)
        self.as_compiled: AsCompiled | None = None  # of the step that is noted so
        self._steps = 0  # that have begun
        self.shadows: Shadows | None = None
        self.filing: Callable[[], AbstractContextManager[None]] = nullcontext  # while a file of ours is written
        self.labels: Labels | None = None
        self.numbers = count(1)
        self.is_captured = False  # whether what is launched now becomes a CUDA graph
        self.has_own_code = False  # whether the script compiles or captures code itself
        self._told_bytes: dict[str, int] = {}
        self.polls = Polls(self)
        self.promised: dict[int, SimulatedWork] = {}  # by number, those of futures that a backward pass's end fulfils
        self.is_busy = False  # with what is not the script's own
        self._idle: set[int | None] = set()  # streams, or all, for which the host waited since anything was given
        self._here = threading.local()  # each thread has its own stream
        self.on_cpu: Callable[..., Any] = lambda func, args, kwargs: func(*args, **kwargs)  # operators on CPU tensors
        self.staged: Callable[[int], None] = lambda _: None  # bytes of pageable memory that the host copies
        self.measured: Callable[[float, FrameType | None], None] = lambda *_: None  # ns of other work, where it ends
        self.clock = ScriptClock(self._computing_ns, self._sleep, lambda: self._asking.catch_up(self._lock))
        self._asking = Asking(connection, self.clock.hear)
        self._asking.receive()

    @property
    def stream(self) -> int:
        """The number of this thread's current stream."""
        return getattr(self._here, "stream", 0)

    @stream.setter
    def stream(self, number: int) -> None:
        self._here.stream = number

    def step(self) -> int:
        """Return how many steps have begun."""
        return self._steps

    def ask(self, request: Request | Callable[[], Request], *, is_cut: bool = True, is_beside: bool = False) -> Any:
        """Return the answer to a request, or to one that a function makes in time that is not charged.

        `is_cut` is False where nothing was computed since the last one. `is_beside`: a poll of another thread than the
        one that makes steps, whose compiled code it does not cut.
        """
        if isinstance(request, RecordMetric):
            request = replace(request, value=float(request.value))
        with self._lock:
            if not isinstance(request, Query | Sleep):
                self.polls.end()
            if not is_beside:
                self.compiled.flush()
            if isinstance(request, StepEnd):
                self.polls.stepping = threading.current_thread()
            if self.shadows is not None and isinstance(request, StepEnd):
                self._tell(MemoryPeak(self.shadows.memory.highest_bytes))
                self._tell(ReservedPeak(self.shadows.memory.allocator.highest_bytes))
            if self.launched or callable(request) or isinstance(request, WaitCall):
                self._idle.clear()
            with self.busy():
                spent = self._take_spent(is_cut=is_cut)
                if self.as_compiled is not None and not is_beside:
                    self._asking.ask(Turn((), CompiledStep(self.as_compiled.take())), is_on_gpu=True)
                request = request() if callable(request) else request
            answer = self._asking.ask(Turn(spent, request), is_on_gpu=self.launched is not None)
            # From the answer on: what the process computed meanwhile was packing and unpacking, not the script's work.
            self.computed.restart()
            if isinstance(request, NewGroup):
                self._group = answer
            if isinstance(request, StepEnd):
                self._begin_step()
            return answer

    def _sleep(self, slept_ns: int) -> bool:
        return self.launched is None and self.ask(Sleep(slept_ns)) is not None

    def _begin_step(self) -> None:
        """Count a step, and record one as if compiled, unless the script itself compiles or captures code."""
        self._steps += 1
        if self.launched is not None:
            self._calls.begin()
        is_noted = self._steps - 1 == COMPILED_STEP and self.launched is not None and not self.has_own_code
        self.as_compiled = AsCompiled() if is_noted else None

    def busy(self) -> AbstractContextManager[None]:
        """Treat work within the context as the link's own, not the script's."""
        return during(self, is_busy=True)

    def end_step(self) -> None:
        """Make the host wait for a GPU's current stream, whose pending work belongs to the ending step."""
        if self.launched is not None:
            self.synchronize(self.stream)

    def _take_spent(self, *, is_cut: bool) -> Spent:
        if self.launched is None:
            return self.computed.take(is_cut=is_cut)
        self._note(self.host.take())
        launched, self.launched = self.launched, []
        return launched

    def gradient_is_ready(self, replica: int, place: int) -> None:
        """Mark a replica's gradient as ready, by its place in the order of arrival."""
        if self.launched is not None:
            mark = GradientReady(self.stream, (replica, place))
            if not self.compiled.launch_after(lambda: self._append(mark, NO_WORK)):
                self._append(mark, NO_WORK)
            return
        self.computed.mark(GradientReady(0, (replica, place)))

    def _computing_ns(self) -> int:
        """Return the CPU time since the last answer in ns; 0 with a GPU, as its host is assumed to need no time."""
        return 0 if self.launched is not None else self.computed.since_answer_ns()

    def _tell(self, peak: MemoryPeak) -> None:
        if peak.peak_bytes > self._told_bytes.get(peak.kind, 0):
            self._told_bytes[peak.kind] = peak.peak_bytes
            self.ask(peak)

    def count_dispatch(self) -> None:
        """Count an operator on the script's GPU, before its kernel."""
        self.host.count_dispatch()
        self.compiled.defer_count()

    def launch(self, kernel: Kernel, call: Call | None = None) -> None:
        """Launch a kernel on the script's GPU; `call` is its operator's, None for a library's own function."""
        assert self.launched is not None, "a CPU runs what it is given"
        assert self.labels is not None, "there is a GPU"
        if kernel.flops and is_recomputed():
            kernel = replace(kernel, recomputed_flops=kernel.flops)
        if kernel.kind == "gemm" and self.shadows is not None:  # forward and back are threads of their own
            is_backward = torch._C._current_autograd_node() is not None
            has_bias = call is not None and call[0].overloadpacket is torch.ops.aten.addmm
            self.shadows.memory.hold_workspace((is_backward, self.stream), has_bias=has_bias)
        with self._lock:
            if call is not None and self.compiled.is_running:
                self.has_own_code = True
                self._note(self.host.take().own_work)  # compiled code does not do the rest
                self.compiled.note(kernel, call)
                return
            self.host.count_launch(kernel.kind)
            given = LaunchKernel(self.stream, kernel, *self.labels.now())
            work = self.host.take()
            if not self.compiled.launch_after(lambda: self._append(given, work)):
                self._append(given, work, call if self.labels.is_compilable else None)

    def _launch_fused(self, kernel: Kernel, work: HostWork) -> None:
        assert self.labels is not None, "there is a GPU"
        self._append(LaunchKernel(self.stream, kernel, *self.labels.now()), work)

    def _append(self, given: OnStream | GradientReady, work: HostWork, call: Call | None = None) -> None:
        assert self.launched is not None, "there is a GPU"
        self.launched += [work, given] if any(work) and not self.is_captured else [given]
        if self.as_compiled is not None:
            self.as_compiled.launch(given, work, call)

    def give_event(self, event: RecordEvent | WaitEvent) -> None:
        """Make a stream of the script's GPU record an event, or wait for one."""
        assert self.launched is not None, "there is a GPU"
        with self._lock:
            self.compiled.flush()
            self._append(event, NO_WORK)

    def _add_measured(self, cpu_ns: float, frame: FrameType | None) -> None:
        self.measured(cpu_ns, frame)

    def _note(self, work: HostWork) -> None:
        """Insert the host's work before the next request; capturing a graph is not part of a step."""
        if any(work) and self.launched is not None and not self.is_captured:
            self.launched.append(work)
            if self.as_compiled is not None:
                self.as_compiled.note(work)

    def wait(self, number: int, *, is_cut: bool) -> Any:
        """Make the current stream, or a CPU, wait for a call; return the call's outputs."""
        return self.ask(WaitCall(number, self.stream), is_cut=is_cut)

    def synchronize(self, stream: int | None = None) -> None:
        """Make the host wait for a stream of the GPU, or for all; do nothing while a graph is captured."""
        with self._lock:
            # A host that has waited, and has launched nothing since, needs no further request.
            if not (self.is_captured or (not self.launched and self._idle & {stream, None})):
                self.ask(Synchronize(stream))
                self._idle.add(stream)

    def synchronize_event(self, event: int) -> None:
        """Make the host wait for the work before an event."""
        with self._lock:
            if not (self.is_captured or (not self.launched and None in self._idle)):
                self.ask(SynchronizeEvent(event))

    def elapsed_ms(self, first: int, second: int) -> float | None:
        """Return the simulated time between two events in ms; None if nothing is simulated."""
        for event in (first, second):
            self.synchronize_event(event)
        if not self.clock.is_read():
            return None
        return float(self.ask(Elapsed(first, second))) / 1e6

    def fill(self, output: Tensor, part: Tensor) -> None:
        """Copy a part of a call's result into an output; a meta tensor makes the output's values unknown."""
        if self.shadows is None or not self.shadows.is_of_gpu(output):
            output.detach().copy_(part.view(output.shape))
        elif is_meta(part):
            self.shadows.forget([output])
        else:
            self.shadows.keep(output, part.view(output.shape))

    def values_of(self, tensor: Tensor) -> Tensor | None:
        """Return a tensor's values; None if they are unknown."""
        shadows = self.shadows
        return tensor if shadows is None or not shadows.is_of_gpu(tensor) else shadows.of(tensor)

    def pack(self, tensor: Tensor, factor: float | Tensor | None = None) -> Packed:
        """Pack a tensor with its values, times a factor, if they are known."""
        values = self.values_of(tensor)
        if values is not None and factor is not None:
            factor = self.values_of(factor) if isinstance(factor, Tensor) else factor
            values = None if factor is None else (values * factor).to(values.dtype)
        return Packed.shape_of(tensor) if values is None else Packed.of(values)

    def fulfil(self) -> None:
        """Wait for the calls of all futures that are not done: the script waits for one within a backward pass."""
        for work in list(self.promised.values()):
            work.wait()

    def begin(self) -> None:
        """Do nothing: the simulator needs no announcement."""

    def store(self) -> SimulatedStore:
        """Return the simulated store that all ranks share."""
        return SimulatedStore(self.ask, "")

    def join(self, options: Any, backends: Mapping[str, str]) -> SimulatedGroup:
        """Create this rank's side of the group that was requested last."""
        return SimulatedGroup(self, self._group, options, backends)


class SimulatedGroup(ScriptGroup):
    """A process group of simulated ranks; `number` identifies it in the simulator."""

    def __init__(self, link: SimulatedLink, number: int, options: Any, backends: Mapping[str, str]) -> None:
        super().__init__(options, backends)
        self._link, self.number = link, number

    def issue(self, asked: TorchCall) -> SimulatedWork:
        """Issue a call in simulated time, and return its work."""
        if self._link.is_captured:
            raise RuntimeError(f"{asked.label}: expected no collective while a CUDA graph is captured")
        number, through = next(self._link.numbers), through_host(self._link, asked)

        def make() -> IssueCall:
            return IssueCall(
                number=number,
                verb=asked.verb,
                group=self.number,
                label=asked.label,
                inputs=[self._link.pack(each, asked.factor) for each in asked.inputs],
                outputs=[Packed.shape_of(each) for each in asked.targets],
                options=asked.options,
                stream=self._link.stream if through is None else through.stream,
                of_reducer=asked.of_reducer,
                library=asked.library,
            )

        refused = self._link.ask(make)
        if refused is not None:
            raise refused.error
        return SimulatedWork(self._link, number, asked, (through or self._link).wait)


class SimulatedWork(dist.Work):
    """A torch work of a call in simulated time."""

    def __init__(self, link: SimulatedLink, number: int, asked: TorchCall, wait: Callable[..., Any]) -> None:
        """Take the call; `wait` makes the script wait for it and returns its outputs."""
        super().__init__()
        self._link, self._number, self._asked, self._wait = link, number, asked, wait
        self._future: torch.futures.Future[Any] | None = None
        self._is_done = False

    def wait(self, timeout: Any = None) -> bool:
        """Wait in simulated time until the call is over, and fill its outputs."""
        if not self._is_done:
            self._is_done = True
            if self._asked.library or all(self._link.values_of(each) is not None for each in self._asked.inputs):
                self._link.polls.wait_beside(self._number)  # the host waits for such a call, not a stream alone
            outputs, found = self._asked.outputs, self._wait(self._number, is_cut=self._asked.is_async)
            with torch.no_grad(), self._link.busy():
                parts = [packed.tensor(torch.device("meta")) for packed in found]
                if len(parts) == 1 and outputs:  # all members' at once
                    parts = list(parts[0].reshape(-1).split_with_sizes([each.numel() for each in outputs]))
                for output, part in zip(outputs, parts, strict=False):
                    self._link.fill(output, part)
                if not parts and self._link.shadows is not None:  # nobody knows what the call gave
                    self._link.shadows.forget(outputs)
                shadows = self._link.shadows
                if shadows is not None and any(map(shadows.is_choice, self._asked.inputs)):
                    shadows.note_choices(outputs)
            self._link.computed.restart()
            if self._future is not None:
                self._link.promised.pop(self._number, None)
                self._future.set_result(self._asked.result)
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        """Return whether the call is over in simulated time; fill its outputs if so."""
        if not self._is_done and self._link.polls.is_over("call", self._number):
            self.wait()
        return self._is_done

    def is_success(self) -> bool:
        return self._is_done

    def result(self) -> Any:
        self.wait()
        return self._asked.result

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future that is done after a wait: in a backward pass at its end, where DDP waits in C++."""
        if self._future is None:
            self._future = torch.futures.Future()
            if self._is_done:
                self._future.set_result(self._asked.result)
            elif torch._C._current_autograd_node() is not None:
                self._link.promised[self._number] = self
                Variable._execution_engine.queue_callback(self.wait)
            else:
                self.wait()
        return self._future
