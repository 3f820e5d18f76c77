"""CUDA graphs of a simulated GPU, recorded on capture; and torch.compile, which compiles nothing here.

Code under torch.compile runs operator by operator, priced as the kernels that a compiler would generate.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from scenarios.do_nothing import do_nothing
from scenarios.seam.kernel import together
from scenarios.workloads.recording.events.work import Launched, LaunchKernel
from scenarios.workloads.script.host.compiled import Compiled
from scenarios.workloads.script.process.simulated import SimulatedLink

# torch's module of backends that run code operator by operator.
_EAGER = "torch._dynamo.backends.debugging"


def graphs(link: SimulatedLink) -> dict[str, Any]:
    """Return torch.cuda's names for graphs, and patch torch.compile.

    torch's own make_graphed_callables captures and replays by these names.
    """
    _patch_compile(link.compiled)
    return {
        "CUDAGraph": _graph_class(link),
        "graph": _Capture,
        "graph_pool_handle": lambda: (0, 0),
        "is_current_stream_capturing": lambda: link.is_captured,
    }


def _graph_class(link: SimulatedLink) -> type:
    """Return the class that torch.cuda calls CUDAGraph."""

    class CUDAGraph:
        """A graph of captured kernels; `replay` launches all at once."""

        def __init__(self, keep_graph: bool = False) -> None:
            self._launched: list[LaunchKernel] = []
            self._outside: list[Launched] | None = None

        def capture_begin(self, *_: Any, **__: Any) -> None:
            assert link.launched is not None, "there is a GPU"
            link.compiled.flush()
            self._outside, link.launched, link.is_captured = link.launched, [], True
            link.has_own_code, link.as_compiled = True, None

        def capture_end(self) -> None:
            assert link.launched is not None, "there is a GPU"
            assert self._outside is not None, "it has begun"
            link.compiled.flush()
            self._launched, link.launched, link.is_captured = _at_once(link.launched), self._outside, False

        def replay(self) -> None:
            assert link.launched is not None, "there is a GPU"
            link.compiled.flush()
            # On the stream that replays, which need not be the one that captured.
            link.launched += [replace(each, stream=link.stream) for each in self._launched]

        def reset(self) -> None:
            self._launched = []

        def pool(self) -> tuple[int, int]:
            return 0, 0

        instantiate = enable_debug_mode = debug_dump = register_generator_state = do_nothing

    return CUDAGraph


class _Capture:
    """A context manager that captures a graph: torch.cuda's `graph`."""

    def __init__(self, cuda_graph: Any, pool: Any = None, stream: Any = None, **_: Any) -> None:
        self._graph = cuda_graph

    def __enter__(self) -> None:
        self._graph.capture_begin()

    def __exit__(self, *_: object) -> None:
        self._graph.capture_end()


def _patch_compile(compiled: Compiled) -> None:
    """Make torch.compile return its argument, whose operators count as `compiled`."""
    modules = weakref.WeakSet[torch.nn.Module]()

    def compile(model: Any = None, **options: Any) -> Any:
        if model is None:
            return lambda found: compile(found, **options)
        backend = options.get("backend")
        if options.get("disable") or backend == "eager" or getattr(backend, "__module__", "") == _EAGER:
            return model
        if isinstance(model, torch.nn.Module):
            modules.add(model)
            return model
        return _as_compiled(model, compiled)

    def begin(module: torch.nn.Module, _: Any) -> None:
        if module in modules:
            compiled.enter()

    def end(module: torch.nn.Module, _: Any, outputs: Any) -> None:
        if module in modules:
            compiled.leave(outputs)

    register_module_forward_pre_hook(begin)
    # Also if the forward raises: else all later operators would count as compiled.
    register_module_forward_hook(end, always_call=True)
    torch.compile = compile
    torch.compiler.cudagraph_mark_step_begin = lambda: None  # for graphs within compiled code, which are not simulated
    torch.nn.Module.compile = lambda module, *_, **options: compile(module, **options) and None  # type: ignore[method-assign]


def _as_compiled(function: Callable[..., Any], compiled: Compiled) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **more: Any) -> Any:
        compiled.enter()
        outputs = None
        try:
            outputs = function(*args, **more)
        finally:
            compiled.leave(outputs)
        return outputs

    return run


def _at_once(launched: list[Launched]) -> list[LaunchKernel]:
    """Combine captured kernels into one with a single launch; streams and events within a graph are omitted."""
    kernels = [each.kernel for each in launched if isinstance(each, LaunchKernel)]
    parts = [replace(each, launches=int(place == 0)) for place, each in enumerate(kernels)]
    return [LaunchKernel(0, together(parts), "CUDA graph")] if parts else []
