"""Refuses a script that uses CUDA although no profile was named: the prediction would silently be for CPUs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

import torch

from scenarios.seam.errors import is_installed, is_ours
from scenarios.workloads.recording.events.notes import ScriptFailure
from scenarios.workloads.script.process.simulated import SimulatedGroup, SimulatedLink

# Functions of torch.cuda and torch.accelerator by which a script detects or selects a GPU.
_OF_CUDA = ("is_available", "device_count", "set_device", "current_device", "get_device_name", "_lazy_init")
_OF_ACCELERATOR = ("is_available", "device_count", "current_accelerator", "set_device_index")
_TORCHS = os.path.dirname(torch.__file__) + os.sep


def refuse_cuda(link: SimulatedLink) -> None:
    """End the script with a sentence at its first use of CUDA; torch's own internal queries are ignored."""

    def refuse(sentence: str) -> None:
        link.ask(ScriptFailure(sentence))

    def watch(module: Any, name: str, what: str) -> None:
        function = getattr(module, name, None)
        if function is None:
            return

        def call_watched(*args: Any, **more: Any) -> Any:
            line = _line_of_script(sys._getframe().f_back, is_anywhere=name == "_lazy_init")
            if line:
                refuse(_sentence(line, what))
            return function(*args, **more)

        setattr(module, name, call_watched)

    for name in _OF_CUDA:
        watch(torch.cuda, name, "a GPU" if name == "_lazy_init" else f"torch.cuda.{name}")
    for name in _OF_ACCELERATOR:
        watch(torch.accelerator, name, f"torch.accelerator.{name}")
    join = link.join

    def join_without_nccl(options: Any, backends: Mapping[str, str]) -> SimulatedGroup:
        if set(backends.values()) == {"nccl"}:
            refuse(_sentence(_line_of_script(sys._getframe(), is_anywhere=True), "backend nccl"))
        return join(options, backends)

    link.join = join_without_nccl  # type: ignore[method-assign]


def _sentence(line: str, what: str) -> str:
    return (
        f"{line}: the script asks for CUDA ({what}), and no --profile says which GPUs to predict: expected --profile"
        " with a name or a file, such as dgx_h100 or p6_b200, or --profile cpu_local for this machine's CPUs"
    )


def _line_of_script(frame: FrameType | None, *, is_anywhere: bool) -> str:
    """Return "FILE:LINE" of the caller; "" if torch calls for itself, or a package only during its import.

    `is_anywhere`: torch calls on behalf of the code that called torch.
    """
    while is_anywhere and frame is not None and is_installed(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None or is_ours(name := frame.f_code.co_filename) or name.startswith(_TORCHS):
        return ""
    line, is_package = f"{os.path.basename(name)}:{frame.f_lineno}", is_installed(name)
    while is_package and frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return ""
        frame = frame.f_back
    return line
