"""Error messages for a script's user: one sentence, followed by the script's stack frames.

A script that uses CUDA although no profile was named is refused: the prediction would silently be for CPUs.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from itertools import islice
from types import FrameType
from typing import Any

import torch

from scenarios.seam.errors import is_installed, is_ours_or_pythons, text_of
from scenarios.workloads.recording.events.notes import ScriptFailure
from scenarios.workloads.script.config import Script
from scenarios.workloads.script.process.simulated import SimulatedGroup, SimulatedLink

# Functions of torch.cuda and torch.accelerator by which a script detects or selects a GPU.
_OF_CUDA = ("is_available", "device_count", "set_device", "current_device", "get_device_name", "_lazy_init")
_OF_ACCELERATOR = ("is_available", "device_count", "current_accelerator", "set_device_index")
# How many lines of an exception's message are shown after its first.
_MOST_LINES = 20
_TORCHS = os.path.dirname(torch.__file__) + os.sep


def error_message(script: Script, error: BaseException) -> str:
    """Return the message for an exception: a sentence that begins with the script's line, and the frames."""
    first, *more = text_of(error).strip().splitlines() or [""]
    sentence = f"{place_of(script, error)}: {type(error).__name__}{': ' if first else ''}{first}"
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "triton":
        sentence += " (pip install triton: no GPU is needed, as its kernels are priced by the bytes of their arguments)"
    return "\n".join([sentence, *islice(more, _MOST_LINES), *_show_traceback(script, error)])


def tell_exit(script: Script, end: SystemExit) -> str:
    """Return the message for a script that called `sys.exit` with anything but 0."""
    what = f"exit code {end.code}" if isinstance(end.code, int) else str(end.code)
    sentence = f"{script.path} ended with {what} (sys.exit in {place_of(script, end)})"
    return "\n".join([sentence, *_show_traceback(script, end)])


def place_of(script: Script, error: BaseException) -> str:
    """Return "FILE:LINE", the innermost line of the user's own code; the script's path if there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    folder = os.path.realpath(script.path.parent) + os.sep
    own = [frame for frame in _frames(error) if _is_users(frame.filename, folder)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else os.fspath(script.path)


def _show_traceback(script: Script, error: BaseException) -> list[str]:
    if script.has_traceback:
        return "".join(traceback.format_exception(error)).splitlines()
    frames = _frames(error)
    lines = "".join(traceback.format_list(frames)).rstrip().splitlines()
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        first = (text_of(cause).strip().splitlines() or [""])[0]
        lines.append(f"  after {type(cause).__name__}{': ' if first else ''}{first} ({place_of(script, cause)})")
    return [*lines, "  (--traceback shows torch's frames, too)"] if lines else []


def _frames(error: BaseException) -> Sequence[traceback.FrameSummary]:
    """Return the frames that are neither torch's, this project's nor Python's, outermost call first."""
    found = traceback.extract_tb(error.__traceback__)
    return traceback.StackSummary.from_list(
        frame for frame in found if not (is_ours_or_pythons(frame.filename) or frame.filename.startswith(_TORCHS))
    )


def _is_users(filename: str, folder: str) -> bool:
    """Return whether a file is in the script's folder or in a package that is not installed."""
    return os.path.realpath(filename).startswith(folder) or not is_installed(filename)


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
    if frame is None or is_ours_or_pythons(name := frame.f_code.co_filename) or name.startswith(_TORCHS):
        return ""
    line, is_package = f"{os.path.basename(name)}:{frame.f_lineno}", is_installed(name)
    while is_package and frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return ""
        frame = frame.f_back
    return line
