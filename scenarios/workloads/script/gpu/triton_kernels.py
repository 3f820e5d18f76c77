"""Triton's kernels on a simulated GPU: priced by the bytes of their arguments, neither compiled nor run."""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from scenarios.modules.operators import size_bytes, tensors_in
from scenarios.seam.arguments import dtype_name
from scenarios.seam.kernel import Kernel
from scenarios.workloads.script.gpu.cuda.properties import SeenGpu
from scenarios.workloads.script.gpu.imported import change_imported
from scenarios.workloads.script.gpu.known_values import Shadows

_CACHE_INTEGERS = 1 << 26
_SENTENCE = "kernels of Triton are priced by the bytes of their arguments, each once"
_NO_VALUES = "kernels of Triton have no values on simulated GPUs: expected --play record"
_NOT_COMPILED = (
    "nothing is compiled of a Triton kernel on simulated GPUs, so its registers and shared memory are not known"
)
# Packages whose functions write memory only if their names say so: `store`, `atomic_*`, and names with these parts.
_NO_HELPERS, _MAY_STORE = ("triton", "builtins"), ("store", "asm", "extern")


class TritonKernels:
    """A launcher of kernels made by `@triton.jit`. Tensors that a kernel may write have unknown values afterwards.

    `launched(kernel)` is called for each kernel outside of operators; kernels within an operator are part of its price.
    """

    def __init__(
        self, shadows: Shadows, gpu: SeenGpu, launched: Callable[[Kernel], None], said: Callable[[str], None]
    ) -> None:
        self._shadows, self._gpu, self._launched, self._say = shadows, gpu, launched, said

    def watch(self) -> None:
        """Patch Triton now, or when it is imported."""
        change_imported(
            {
                "triton.runtime.jit": lambda found: self._patch(found.JITFunction, self._run),
                "triton.runtime.autotuner": lambda found: self._patch(found.Autotuner, _first_config),
                "triton.runtime.driver": lambda found: found.driver.set_active(_driver(self._gpu)),
            }
        )

    @staticmethod
    def _patch(kind: Any, run: Callable[..., Any]) -> None:
        """Patch a class of Triton's whose `run` launches a kernel."""
        kind.run, kind.warmup = run, _refuse

    def launch(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Launch a kernel with its arguments.

        Raises:
            RuntimeError: all tensors are to have values.
        """
        now = self._shadows.now
        names = dict(zip(function.arg_names, args, strict=False)) | kwargs
        given = {name: list(_tensors(value)) for name, value in names.items()}
        everything = [each for found in given.values() for each in found]
        is_of_shapes = now.is_honest or now.is_suspended
        if self._shadows.has_all and not (is_of_shapes and all(each.is_meta for each in everything)):
            raise RuntimeError(_NO_VALUES)
        tensors = {id(each): each for each in everything if self._shadows.is_of_gpu(each)}
        if is_of_shapes or not tensors:
            return
        may_write = _find_written(function)
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
    def _run(self) -> Callable[..., Any]:
        def run(function: Any, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> Any:
            if warmup:
                _refuse()
            self.launch(function, args, kwargs)
            return _Launched()

        return run


class _Launched:
    """The result of a launch; Triton's would describe the compiled kernel."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name}: {_NOT_COMPILED}")


def _refuse(*_: Any, **__: Any) -> Any:
    """Raise RuntimeError: there is no compiled kernel to query."""
    raise RuntimeError(f"warmup: {_NOT_COMPILED}")


def _first_config(tuner: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an autotuned kernel with its first configuration, as the times of others are unknown."""
    return tuner.fn.run(*args, **{**kwargs, **tuner.configs[0].all_kwargs()})


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in an argument, including the tensor of a descriptor."""
    yield from tensors_in(getattr(value, "base", None) if not isinstance(value, Tensor) else value)
    if not isinstance(value, Tensor):
        yield from tensors_in(value)


def _driver(gpu: SeenGpu) -> Any:
    """Return a driver for Triton that describes the current GPU."""
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
        # The buffer that `triton.testing.do_bench` writes between launches to flush L2: 256 MiB.
        get_empty_cache_for_benchmark=lambda: torch.empty(_CACHE_INTEGERS, dtype=torch.int32, device="cuda"),
        clear_cache=lambda cache: cache.zero_(),
        get_benchmarker=lambda: import_module("triton.testing").do_bench,
    )


@cache
def _find_written(function: Any) -> frozenset[str] | None:
    """Return the names of the parameters whose memory a kernel may write; None if its source cannot be read.

    Written are the names in its stores and in calls of other functions, and all names that these were computed from.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function.fn)))
    except (OSError, TypeError, SyntaxError):
        return None
    made_of: dict[str, set[str]] = {}
    stored: set[str] = set()
    around = {**vars(builtins), **function.fn.__globals__, **inspect.getclosurevars(function.fn).nonlocals}
    for node in ast.walk(tree):
        targets, value = _targets_and_value(node)
        for name in {one for target in targets for one in _names(target)} if value else ():
            made_of.setdefault(name, set()).update(_names(value))
        if isinstance(node, ast.Call):
            stored |= _names_stored(node, around)
    # Until nothing is added: an address may be computed from names that are themselves computed.
    while any(not made_of.get(name, set()) <= stored for name in tuple(stored)):
        stored |= {each for name in tuple(stored) for each in made_of.get(name, ())}
    return frozenset(stored & set(function.arg_names))


def _targets_and_value(node: ast.AST) -> tuple[list[ast.expr], Any]:
    """Return the target expressions and the value of an assignment or a loop."""
    if isinstance(node, ast.Assign):
        return node.targets, node.value
    if isinstance(node, ast.AugAssign | ast.AnnAssign):
        return [node.target], node.value
    return ([node.target], node.iter) if isinstance(node, ast.For) else ([], None)


def _names_stored(call: ast.Call, around: dict[str, Any]) -> set[str]:
    """Return the names of what a call may write: a store's address, all names in a call of a function that may store.

    Calls of builtins write nothing. `around` maps global and closure names to their values.
    """
    called, function = _name_called(call), call.func
    root: ast.expr = function
    while isinstance(root, ast.Attribute):
        root = root.value
    found = around.get(root.id) if isinstance(root, ast.Name) else None
    module = found.__name__ if isinstance(found, ModuleType) else getattr(found, "__module__", None) or ""
    if found is None and isinstance(function, ast.Attribute) and (called in ("load", "to") or _is_store(called)):
        return _names(function.value) if _is_store(called) else set()  # methods of Triton's own tensors
    if module.partition(".")[0] not in _NO_HELPERS:
        return _names(call)
    if _is_store(called):
        return _names(call.args[0] if call.args else call)
    return _names(call) if any(part in called for part in _MAY_STORE) else set()


def _is_store(called: str) -> bool:
    return called == "store" or called.startswith("atomic_")


def _name_called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _names(node: ast.AST) -> set[str]:
    """Return the names in an expression that may lead to an address: not names within loads or dtypes."""
    if isinstance(node, ast.Name):
        return {node.id}
    if (isinstance(node, ast.Call) and _name_called(node) == "load") or (
        isinstance(node, ast.Attribute) and node.attr == "dtype"
    ):
        return set()
    return {name for each in ast.iter_child_nodes(node) for name in _names(each)}
