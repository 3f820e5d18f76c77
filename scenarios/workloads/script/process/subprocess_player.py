"""A rank's process: runs the user's script as torchrun would, with simulated process groups."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed import rpc

from scenarios.workloads.recording.events.notes import RecordMetric, ScriptEnd, ScriptFailure
from scenarios.workloads.script.config import Script
from scenarios.workloads.script.gpu.cuda.properties import SeenGpu, install_smi
from scenarios.workloads.script.host.calls import passes_through
from scenarios.workloads.script.host.loading import LeftOut, watch_loaders, watch_queues
from scenarios.workloads.script.host.on_cpu import OnCpu
from scenarios.workloads.script.meeting.guard import NO_RPC
from scenarios.workloads.script.meeting.launchers import install_agents, install_spawn, run_as_main, watch_commands
from scenarios.workloads.script.meeting.pools import install_pools
from scenarios.workloads.script.meeting.processes import Processes
from scenarios.workloads.script.meeting.rank_warnings import show_once
from scenarios.workloads.script.meeting.seats import Seats
from scenarios.workloads.script.meeting.store import simulate_stores
from scenarios.workloads.script.process.children import answer_into, stand_alone
from scenarios.workloads.script.process.errors import error_message, place_of, refuse_cuda, tell_exit
from scenarios.workloads.script.process.gradients import watch_gradients
from scenarios.workloads.script.process.groups import install
from scenarios.workloads.script.process.labels import Labels
from scenarios.workloads.script.process.marks import Marks, Replaced
from scenarios.workloads.script.process.saved_files import keep_apart
from scenarios.workloads.script.process.simulated import SimulatedLink
from scenarios.workloads.script.process.torchrec_plan import use_plan
from scenarios.workloads.script.requests import ScriptLink
from scenarios.workloads.script.users_lines import users_line

_exit = os._exit


def main(connection: Connection, script: Script, env: Mapping[str, str], folder: Path, gpu: SeenGpu | None) -> None:
    """Run the script in the simulator, on a simulated GPU if `gpu` is given.

    Output goes to stderr, and saved files to `folder`.
    """
    stand_alone()
    os.environ.update(env)
    os.dup2(2, 1)
    torch.set_num_threads(1)
    torch.autograd.set_multithreading_enabled(False)
    show_once(folder, env["RANK"])
    answer_into(folder / f"rank-{env['RANK']}-stands")
    if "numpy" in sys.modules:  # loaded before the fork: reseed, so that ranks draw different numbers, as usual
        sys.modules["numpy"].random.seed()
    link = SimulatedLink(connection)
    link.clock.install()
    on_cpu = LeftOut(link) if gpu is None else OnCpu(link)

    def end(by_optimizer: bool) -> None:
        on_cpu.end_step()
        if not by_optimizer:  # a hook of the optimizer's step comes before the step's last kernels
            link.end_step()

    with suppress(EOFError, BrokenPipeError), ExitStack() as stack:  # raised if the simulator is gone
        if gpu is not None:
            from scenarios.workloads.script.gpu.play import on_gpu  # noqa: PLC0415  (loads torch's compiler)

            stack.enter_context(on_gpu(gpu, link))
            install_smi(folder / f"rank-{env['RANK']}-bin", gpu)
        else:
            Labels(link.computed.turn)
        if isinstance(on_cpu, OnCpu):
            watch_loaders(link, on_cpu)
        watch_queues(link)
        rpc.init_rpc = partial(_refuse_rpc, link)
        if script.is_on_default and gpu is None:
            refuse_cuda(link)
        watch_gradients(link)
        simulate_stores(link.ask)
        keep_apart(folder, link.filing)
        play(script, link, before=end)
    _exit(0)


def play(script: Script, link: ScriptLink, before: Callable[[bool], None] = lambda _: None) -> None:
    """Run the script to its end, with calls of torch.distributed through `link`; call `before` at ends of steps."""
    seats = Seats(link)
    processes = Processes(seats)
    install(link, seats, processes)
    install_spawn(seats)
    install_pools(seats)
    install_agents(seats)
    watch_commands(seats)
    marks = Marks(link, script.step_every, _record_losses(link), before)
    processes.watch()
    _watch_exit(link, script, marks, processes)
    how = "at its last line"
    try:
        if script.plan is not None:
            use_plan(script.plan.path)
        run_as_main([*(["-m", script.module] if script.module else [os.fspath(script.path)]), *script.args])
        processes.run()
    except SystemExit as end:
        if end.code not in (None, 0):
            link.ask(ScriptFailure(tell_exit(script, end)))
        how = f"by sys.exit in {place_of(script, end)}"
    except BaseException as error:
        link.ask(ScriptFailure(error_message(script, error)))
    link.ask(ScriptEnd({"how": how, "children": processes.helpers, **marks.as_counts()}))


def _refuse_rpc(link: ScriptLink, *_: Any, **__: Any) -> None:
    line = users_line(sys._getframe().f_back)
    link.ask(ScriptFailure(f"{line}: {NO_RPC}"))


def _watch_exit(link: ScriptLink, script: Script, marks: Marks, processes: Processes) -> None:
    """Replace `os._exit`, so that a call from the user's code first reports the script's end."""
    own = os.getpid()

    def end(status: int) -> NoReturn:
        line = users_line(sys._getframe().f_back)
        if os.getpid() == own and line:
            if status:
                link.ask(ScriptFailure(f"{script.path}: its process ended with code {status} (os._exit in {line})"))
            link.ask(ScriptEnd({"how": f"by os._exit in {line}", "children": processes.helpers, **marks.as_counts()}))
        _exit(status)

    os._exit = end


def _record_losses(link: ScriptLink) -> Replaced:
    """Record the tensor on which `backward` is called as the loss."""
    backward = torch.Tensor.backward
    inside: list[torch.Tensor] = []

    @passes_through
    def record(self: torch.Tensor, *args: Any, **more: Any) -> None:
        # A torch function mode calls this a second time for the same tensor.
        has_values = not (self.is_meta or isinstance(self, FakeTensor))
        is_loss = has_values and self.numel() == 1 and not any(each is self for each in inside)
        if is_loss and (known := link.values_of(self)) is not None:
            link.ask(RecordMetric("loss", known.detach()))
        inside.append(self)
        try:
            backward(self, *args, **more)  # type: ignore[no-untyped-call]
        finally:
            inside.pop()

    return Replaced(torch.Tensor, "backward", record)
