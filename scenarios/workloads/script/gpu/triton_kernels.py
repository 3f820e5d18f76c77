"""Triton's kernels on a simulated GPU, which nothing compiles or runs: each is priced by the bytes of its arguments."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from scenarios.modules.operators import size_bytes, tensors_in
from scenarios.seam.arguments import dtype_name
from scenarios.seam.kernel import Kernel
from scenarios.workloads.script.gpu.cuda.properties import SeenGpu
from scenarios.workloads.script.gpu.shadows import Shadows

# Where Triton has the classes whose `run` launches a kernel, and the driver that it asks for the GPU.
_MODULES = {"triton.runtime.jit": "JITFunction", "triton.runtime.autotuner": "Autotuner"}
_DRIVER = "triton.runtime.driver"
_SENTENCE = "kernels of Triton are priced by the bytes of their arguments, each once"
_STORES = ("store", "atomic_")


class TritonKernels:
    """Launches of kernels that `@triton.jit` has made; `launched(kernel)` is told of each outside of operators, whose
    own price those inside have. Tensors that a kernel may write have values that are not known afterwards.
    """

    def __init__(
        self, shadows: Shadows, gpu: SeenGpu, launched: Callable[[Kernel], None], said: Callable[[str], None]
    ) -> None:
        self._shadows, self._gpu, self._launched, self._say = shadows, gpu, launched, said

    def watch(self) -> None:
        """Have Triton launch here, now or where it is imported."""
        for name in (*_MODULES, _DRIVER):
            if name in sys.modules:
                self.patch(sys.modules[name])
        sys.meta_path.insert(0, _Imports(self.patch))

    def patch(self, module: ModuleType) -> None:
        """Patch one of Triton's modules, once it is loaded."""
        found: Any = module
        if module.__name__ == _DRIVER:
            found.driver.set_active(_driver(self._gpu))
            return
        kind = getattr(module, _MODULES[module.__name__])
        kind.run = self._run if kind.__name__ == "JITFunction" else _first_config
        kind.warmup = lambda *_, **__: None

    def launch(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Launch a kernel with what it is given."""
        now = self._shadows.now
        if now.is_honest or now.is_suspended:
            return
        names = dict(zip(function.arg_names, args, strict=False)) | kwargs
        given = {name: list(_tensors(value)) for name, value in names.items()}
        tensors = {id(each): each for found in given.values() for each in found if self._shadows.is_of_gpu(each)}
        if not tensors:
            return
        may_write = _written(function)
        written = [each for name, found in given.items() if may_write is None or name in may_write for each in found]
        self._shadows.forget([each for each in written if id(each) in tensors])
        moved = {False: 0, True: 0}
        for each in tensors.values():
            moved[any(each is one for one in written)] += size_bytes(each)
        largest = max(tensors.values(), key=size_bytes)
        self._say(_SENTENCE)
        self._launched(
            Kernel(
                kind="elementwise",
                bytes_read=float(moved[False]),
                bytes_written=float(moved[True]),
                dtype=dtype_name(largest),
            )
        )

    @property
    def _run(self) -> Callable[..., None]:
        def run(function: Any, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> None:
            if not warmup:
                self.launch(function, args, kwargs)

        return run


class _Imports(MetaPathFinder):
    """Patches modules of Triton where they are imported."""

    def __init__(self, patch: Callable[[ModuleType], None]) -> None:
        self._patch = patch

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the usual spec, with a loader that patches what it has loaded; None: of any other module."""
        spec = PathFinder.find_spec(name, path, target) if name in (*_MODULES, _DRIVER) else None
        if spec is None or spec.loader is None:
            return None
        run, loader = spec.loader.exec_module, spec.loader

        def execute(module: ModuleType) -> None:
            run(module)
            self._patch(module)

        mock.patch.object(loader, "exec_module", execute).start()
        return spec


def _first_config(tuner: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an autotuned kernel with its first configuration: what others would take cannot be told."""
    return tuner.fn.run(*args, **{**kwargs, **tuner.configs[0].all_kwargs()})


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors of an argument, that of a descriptor of one among them."""
    yield from tensors_in(getattr(value, "base", None) if not isinstance(value, Tensor) else value)
    if not isinstance(value, Tensor):
        yield from tensors_in(value)


def _driver(gpu: SeenGpu) -> Any:
    """Return what Triton asks for the current GPU, and what it can do."""
    major, minor = gpu.capability
    properties: Any = torch.cuda.get_device_properties(0)
    utils = SimpleNamespace(
        get_device_properties=lambda device: {
            "multiprocessor_count": properties.multi_processor_count,
            "max_shared_mem": properties.shared_memory_per_block_optin,
            "max_num_regs": properties.regs_per_multiprocessor,
            "warpSize": properties.warp_size,
        }
    )
    return SimpleNamespace(
        utils=utils,
        get_current_device=torch.cuda.current_device,
        set_current_device=torch.cuda.set_device,
        get_active_torch_device=lambda: torch.device("cuda", torch.cuda.current_device()),
        get_device_interface=lambda: torch.cuda,
        get_current_stream=lambda device: torch.cuda.current_stream().cuda_stream,
        get_current_target=lambda: SimpleNamespace(backend="cuda", arch=major * 10 + minor, warp_size=32),
        is_active=lambda: True,
    )


@cache
def _written(function: Any) -> frozenset[str] | None:
    """Return which parameters' memory a kernel may write, by the names in its stores, in calls of other functions, and
    what they are made of; None where its source cannot be read.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function.fn)))
    except (OSError, TypeError, SyntaxError):
        return None
    made_of: dict[str, set[str]] = {}
    stored: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in {one for target in targets for one in _names(target)}:
                made_of.setdefault(name, set()).update(_names(node.value))
        elif isinstance(node, ast.Call) and _called(node).startswith(_STORES):
            stored |= _names(node.func) | _names(node.args[0]) if node.args else _names(node)
        elif isinstance(node, ast.Call) and isinstance(
            node.func, ast.Name
        ):  # another kernel's function, which may store
            stored |= _names(node)
    while any(not made_of.get(name, set()) <= stored for name in tuple(stored)):
        stored |= {each for name in tuple(stored) for each in made_of.get(name, ())}
    return frozenset(stored & set(function.arg_names))


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
