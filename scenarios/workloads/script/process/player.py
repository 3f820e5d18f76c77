"""A rank's process: runs the user's script as torchrun would, with process groups of ours."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from scenarios.workloads.script.gpu.pretend import SeenGpu
from scenarios.workloads.script.process.children import stand_alone
from scenarios.workloads.script.process.gradients import watch_gradients
from scenarios.workloads.script.process.labels import Labels
from scenarios.workloads.script.process.process_group import Link, install
from scenarios.workloads.script.process.saved import keep_apart
from scenarios.workloads.script.process.simulated import SimulatedLink
from scenarios.workloads.script.process.torchrec_plan import LookUps, plan_found


def main(
    connection: Connection,
    path: str,
    args: Sequence[str],
    env: Mapping[str, str],
    folder: Path,
    gpu: SeenGpu | None,
) -> None:
    """Run the script in the simulator, on a GPU that is not there if one is given; what it prints goes to stderr, and
    what it saves to `folder`.
    """
    stand_alone()
    os.environ.update(env)
    os.dup2(2, 1)
    torch.set_num_threads(1)
    torch.autograd.set_multithreading_enabled(False)
    link = SimulatedLink(connection)
    link.clock.install()
    with suppress(EOFError, BrokenPipeError), ExitStack() as stack:  # of the simulator, which is gone
        if gpu is not None:
            from scenarios.workloads.script.gpu.play import on_gpu  # noqa: PLC0415  (loads torch's compiler)

            stack.enter_context(on_gpu(gpu, link))
        else:
            Labels(link.turn)
        watch_gradients(link)
        keep_apart(folder, link.shadows)
        play(path, args, link)
    os._exit(0)


def play(path: str, args: Sequence[str], link: Link) -> None:
    """Run the script to its end, with calls of torch.distributed by way of `link`."""
    sys.argv, sys.path = [path, *args], [str(Path(path).resolve().parent), *sys.path]
    install(link)
    _tell_steps(link)
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            link.ask("error", f"{path} ended with exit code {end.code}")
    except BaseException as error:
        link.ask("error", _sentence(path, error))
    link.ask("end")


def _tell_steps(link: Link) -> None:
    """A step is over when the optimizer that was the first to step does so again; losses are what `backward` is of."""
    first: weakref.ref[Any] | None = None  # once it is gone with its states, the next to step is the first
    look_ups = LookUps(getattr(link, "shadows", None)) if os.environ["RANK"] == "0" else None  # all have the same plan

    def stepped(optimizer: Any, *_: Any) -> None:
        nonlocal first
        if first is None and look_ups is not None:
            look_ups.end()
            if (found := plan_found(look_ups)) is not None:
                link.ask("plan", found)
        if first is None or first() is None:
            first = weakref.ref(optimizer)
        if optimizer is first():
            link.ask("step")

    register_optimizer_step_post_hook(stepped)
    backward = torch.Tensor.backward

    inside: list[torch.Tensor] = []

    def recorded(self: torch.Tensor, *args: Any, **more: Any) -> None:
        # A mode calls it a second time.
        has_values = not (self.is_meta or isinstance(self, FakeTensor))
        is_loss = has_values and self.numel() == 1 and not any(each is self for each in inside)
        if is_loss and (known := link.known(self)) is not None:
            link.ask("record", ("loss", float(known.detach())))
        inside.append(self)
        try:
            backward(self, *args, **more)  # type: ignore[no-untyped-call]
        finally:
            inside.pop()

    torch.Tensor.backward = recorded  # type: ignore[method-assign]


def _sentence(path: str, error: BaseException) -> str:
    """Where in the script it was raised, and what."""
    frames = traceback.extract_tb(error.__traceback__)
    folder = str(Path(path).resolve().parent)
    own = [frame for frame in frames if os.path.realpath(frame.filename).startswith(folder)]
    where = f"{own[-1].filename}:{own[-1].lineno}: " if own else f"{path}: "
    said = str(error).strip().splitlines()
    return f"{where}{type(error).__name__}{': ' + said[0] if said else ''}"
