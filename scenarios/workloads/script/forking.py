"""Starts the process from which a script's ranks fork, which loads what they share once; loads no torch itself."""

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

# Packages that, while they are imported, ask for no rank, take no decision by what GPUs there are (the test of this
# module looks), and keep no function that a rank replaces later. Each rank imports any other by itself.
SHARED = frozenset({"fbgemm_gpu", "numpy", "pandas", "torch", "torchrec"})
# What a package imports where it is first used, in each rank 0.2 s later: torch's optimizers for TorchScript.
LATE = {"torchrec": "torch.distributed.optim"}
# The variable of the environment that names the modules to that process.
MODULES = "TWINSTEP_MODULES"
# Servers that have loaded what ranks with GPUs need, such as torch's compiler, which each rank of another server would
# load by itself, and with a Triton that it finds beside the script.
_WITH_GPUS = set[int]()
# Own files of a script that are searched for imports, at most.
_MOST_FILES = 100


def start_loading(scenario: Scenario, script: Script) -> None:
    """Start the process, unless one runs that has what GPUs need: it loads torch and the script's libraries while the
    caller does other work.
    """
    is_on_gpu = scenario.cluster.host.gpu.device.is_launched
    of_gpus = [f"{__package__}.gpu.play"] if is_on_gpu else []
    shared = shared_modules(script.path)
    late = [module for package, module in LATE.items() if any(each.split(".")[0] == package for each in shared)]
    loaded = [f"{__package__}.process.subprocess_player", *of_gpus, *shared, *late]
    multiprocessing.get_context("forkserver").set_forkserver_preload([f"{__package__}.process.loaded"])
    # torch's reducer warns on each rank, from C++, that it has no timer for tensors without values.
    quiet = {"TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR")} if is_on_gpu else {}
    with without_main(), mock.patch.dict(os.environ, {MODULES: " ".join(loaded), **quiet}):
        server: Any = forkserver._forkserver
        if is_on_gpu and server._forkserver_pid not in _WITH_GPUS:
            _leave(server)
        forkserver.ensure_running()
        if is_on_gpu:
            _WITH_GPUS.add(server._forkserver_pid)


def _leave(server: Any) -> None:
    """Have processes start from another server than this one, which ends once all that it has started have ended:
    nobody waits for it, as that may be later.
    """
    with server._lock:
        if server._forkserver_pid is not None:
            os.close(server._forkserver_alive_fd)
            server._forkserver_address = server._forkserver_alive_fd = server._forkserver_pid = None


def shared_modules(script: Path) -> list[str]:
    """Return the modules of `SHARED` packages that a script, and its own files beside it, import at their top level."""
    found, files, seen = dict[str, None](), [script], set[Path]()
    while files and len(seen) < _MOST_FILES:
        file = files.pop()
        if file in seen:
            continue
        seen.add(file)
        for name in _imported(file):
            top = name.partition(".")[0]
            if top in SHARED and not _files_of(top, script.parent):
                found[name] = None
            else:
                files += _files_of(name, script.parent)
    return list(found)


def _files_of(module: str, folder: Path) -> list[Path]:
    """Return the file of a module, or of its package, in the script's folder, where Python looks first."""
    path = folder.joinpath(*module.split("."))
    return [each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()]


def _imported(file: Path) -> Iterator[str]:
    """Yield the whole names of the modules that a file imports at its top level; none of a file with mistakes."""
    with suppress(OSError, SyntaxError, ValueError):
        for node in ast.parse(file.read_bytes()).body:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module


@contextmanager
def without_main() -> Iterator[None]:
    """Keep processes that start inside from running this one's main module anew, which may ask for the prediction."""
    main_module = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main_module
