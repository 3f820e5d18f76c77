"""Tensors without values in place of a device's, for tracing modules.

The tensors are torch's fake CPU tensors, so that device-dependent behaviour (attention, autocast) is traced without a
GPU. The differences on a GPU are patched: attention is fused with its dropout, and autocast follows CUDA's rules.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode, UnsupportedOperatorException
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from scenarios.modules.cuda_autocast import cuda_autocast
from scenarios.no_compiler import without_compiler
from scenarios.seam.errors import ProgramError

_TORCH = Path(torch.__file__).parent


class _OfGpu(TorchFunctionMode):
    """A mode that replaces functions that differ on a GPU; `fake` patches calls from inside torch as well."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return (_attend if func is _attention else func)(*args, **(kwargs or {}))


_attention, _dropout = functional.scaled_dot_product_attention, functional.dropout


def _attend(query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Compute attention without dropout: a GPU's fused kernels contain it, but the CPU's would not be fused with it."""
    given = dict(zip(("attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"), args, strict=False)) | kwargs
    return _attention(query, key, value, **{**given, "dropout_p": 0.0})


def _drop(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Apply dropout as one operator."""
    return (
        torch.native_dropout(input, p, training)[0] if training and 0 < p < 1 else _dropout(input, p, training, inplace)
    )


@contextmanager
def fake(*, on_gpu: bool) -> Iterator[FakeTensorMode]:
    """Create tensors without values, on the CPU, while entered; with `on_gpu`, autocast for "cuda" applies to them."""
    with ExitStack() as stack:
        stack.enter_context(without_compiler())
        if on_gpu:
            stack.enter_context(mock.patch.object(torch.amp.autocast_mode.autocast, "__init__", _autocast))
            # Modules of torch call these functions by name, which the mode below does not see.
            stack.enter_context(mock.patch.object(functional, "scaled_dot_product_attention", _attend))
            stack.enter_context(mock.patch.object(functional, "dropout", _drop))
            stack.enter_context(_OfGpu())
            stack.enter_context(cuda_autocast())
        mode = stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        yield mode


_init = torch.amp.autocast_mode.autocast.__init__


def _autocast(self: Any, device_type: str, dtype: torch.dtype | None = None, *args: Any, **kwargs: Any) -> None:
    # Fake tensors are on the CPU, where autocast for "cuda" would do nothing.
    if device_type == "cuda":
        device_type, dtype = "cpu", dtype or torch.get_autocast_dtype("cuda")
    _init(self, device_type, dtype, *args, **kwargs)


def build_fake(make: Callable[[], Any]) -> Any:
    """Return the result of `make`, with parameters and buffers that have no values; call it inside `fake`.

    The module is built on the meta device, where modules can change their dtype, and its tensors are then replaced.
    """
    # Without the fake mode: a module's `.half()` or `.to` swaps parameters' data, which fake tensors refuse.
    with torch.utils._python_dispatch._disable_current_modes(), torch.device("meta"):
        try:
            built = make()
        except NotImplementedError as error:
            reason = " ".join(str(error).split())
            raise ProgramError(
                f"making the module{users_line(error)}: {reason}; expected a module that is not moved while it is made:"
                " its parameters are put onto the rank's device later"
            ) from error
    replaced: dict[int, Tensor] = {}  # by id, so that tied parameters stay tied
    for module in built.modules() if isinstance(built, nn.Module) else ():
        both: tuple[dict[str, Any], ...] = module._parameters, module._buffers
        for tensors in both:
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = replaced.setdefault(id(tensor), _fake_copy(tensor))
    return built


def _fake_copy(tensor: Tensor) -> Tensor:
    # With the strides: laws price products and copies by the layout of their operands.
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return nn.Parameter(copy, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else copy


@contextmanager
def explain_error(module: str) -> Iterator[None]:
    """Turn torch's error about an operator that cannot be traced into one sentence.

    Raises:
        ProgramError: an operator cannot be traced; names the operator and the user's line.
    """
    try:
        yield
    except UnsupportedOperatorException as error:
        raise ProgramError(
            f"module {module}: {getattr(error, 'func', error)}{users_line(error)}: expected operators that can run on"
            " tensors without values"
        ) from error


def users_line(error: BaseException | None = None) -> str:
    """Return " (mine.py:12)", the last line of code that is neither torch's nor ours, or ""."""
    frames = traceback.extract_stack() if error is None else traceback.extract_tb(error.__traceback__)
    ours = Path(__file__).parent
    for frame in reversed(frames):
        path = Path(frame.filename)
        if not (path.is_relative_to(_TORCH) or path.is_relative_to(ours)) and path.suffix == ".py":
            return f" ({path.name}:{frame.lineno})"
    return ""
