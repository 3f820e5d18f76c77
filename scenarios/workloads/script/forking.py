"""Starts the server process from which a script's ranks fork; it loads shared packages once. Loads no torch itself."""

from __future__ import annotations

import ast
import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from scenarios.config.scenario import Scenario
from scenarios.workloads.script.config import Script

# Packages whose import reads no rank, does not depend on GPUs (this module's test checks that), and keeps no reference
# to a function that a rank replaces later. Each rank imports all others by itself.
SHARED = frozenset({"fbgemm_gpu", "numpy", "pandas", "torch", "torchrec"})
# Modules that a package imports only at first use, in each rank: torch's compiler by an optimizer's first step (1 s,
# also where nothing is compiled), torch's TorchScript optimizers by TorchRec (0.2 s).
LATE = {"torch": "torch._dynamo", "torchrec": "torch.distributed.optim"}
# Modules of torch.distributed.checkpoint, in which each rank replaces `FileSystem` (20 ms to load each).
CHECKPOINTS = ("torch.distributed.checkpoint.filesystem", "torch.distributed.checkpoint._fsspec_filesystem")
# The environment variable that names the modules for the server to load.
MODULES = "TWINSTEP_MODULES"
# Ids of servers that have loaded torch's compiler and other needs of GPUs: forked from another server, each rank would
# load them by itself, with any module named triton next to the script.
_WITH_GPUS = set[int]()
# How many files of a script are searched for imports.
_MOST_FILES = 100


def start_loading(scenario: Scenario, script: Script) -> None:
    """Start the server, unless one runs that suits; it loads torch and the script's libraries in the background."""
    is_on_gpu = scenario.cluster.host.gpu.device.is_launched
    of_gpus = [f"{__package__}.gpu.play"] if is_on_gpu else []
    shared = shared_modules(script.path)
    late = [module for package, module in LATE.items() if any(each.split(".")[0] == package for each in shared)]
    loaded = [f"{__package__}.process.subprocess_player", *CHECKPOINTS, *of_gpus, *shared, *late]
    multiprocessing.get_context("forkserver").set_forkserver_preload(["twinstep", f"{__package__}.process.loaded"])
    # torch warns on each rank, from C++, such as of tensors without values, for which its reducer has no timer.
    quiet = {"TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR")}
    with without_main(), mock.patch.dict(os.environ, {MODULES: " ".join(loaded), **quiet}):
        server: Any = forkserver._forkserver
        if is_on_gpu and server._forkserver_pid not in _WITH_GPUS:
            _leave(server)
        forkserver.ensure_running()
        if is_on_gpu:
            _WITH_GPUS.add(server._forkserver_pid)


def _leave(server: Any) -> None:
    """Abandon this server, so that a new one starts; the old one ends, unawaited, after its last child."""
    with server._lock:
        if server._forkserver_pid is not None:
            os.close(server._forkserver_alive_fd)
            server._forkserver_address = server._forkserver_alive_fd = server._forkserver_pid = None


def shared_modules(script: Path) -> list[str]:
    """Return the modules of `SHARED` packages that a script, or its own files next to it, import at top level."""
    found, files, seen = dict[str, None](), [script], set[Path]()
    while files and len(seen) < _MOST_FILES:
        file = files.pop()
        if file in seen:
            continue
        seen.add(file)
        for name in _find_imports(file):
            top = name.partition(".")[0]
            if top in SHARED and not _files_of(top, script.parent):
                found[name] = None
            else:
                files += _files_of(name, script.parent)
    return list(found)


def _files_of(module: str, folder: Path) -> list[Path]:
    """Return the file of a module or package in the script's folder, where Python looks first."""
    path = folder.joinpath(*module.split("."))
    return [each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()]


def _find_imports(file: Path) -> Iterator[str]:
    """Yield the full names of the modules that a file imports at top level; nothing if the file cannot be parsed."""
    with suppress(OSError, SyntaxError, ValueError):
        for node in ast.parse(file.read_bytes()).body:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module


@contextmanager
def without_main() -> Iterator[None]:
    """Prevent child processes that start in this context from running this process's main module again."""
    main_module = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main_module
