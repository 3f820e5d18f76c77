"""Operators on a simulated GPU: run without values, priced, and computed where values decide."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._library.custom_ops import OPDEFS
from torch._ops import HigherOrderOperator
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from scenarios.modules.operators import TORCHS, is_composite, price, tensors_in, touched_tensors
from scenarios.workloads.script.gpu.fakes import finds_shapes_alone, tracing_key
from scenarios.workloads.script.gpu.flex_attention import FlexAttention
from scenarios.workloads.script.gpu.functional import Functional, is_functional
from scenarios.workloads.script.gpu.kernels import FUSED, as_laid_out
from scenarios.workloads.script.gpu.known_values import META, Shadows, is_meta
from scenarios.workloads.script.gpu.repeated import Repeated, key_of
from scenarios.workloads.script.gpu.tensors import HostCopies, mark_pinned
from scenarios.workloads.script.gpu.values.choices import note_choices
from scenarios.workloads.script.gpu.values.computed import (
    EVENLY,
    NOT_KNOWN,
    ValueComputer,
    even_bags,
    even_counts,
    is_view,
)
from scenarios.workloads.script.gpu.values.sparse import Sparse, move_arguments
from scenarios.workloads.script.gpu.values.value_reads import ValueReads, unknown_sizes
from scenarios.workloads.script.host.calls import passes_through, without_counting
from scenarios.workloads.script.process.simulated import SimulatedLink


class Meta(TorchFunctionMode):
    """A torch function mode that creates real meta tensors where the script itself uses the meta device.

    `indexed` adds the current GPU's number to "cuda"; C++ would query the driver for it.
    """

    def __init__(self, shadows: Shadows, indexed: Callable[[Any], torch.device]) -> None:
        super().__init__()
        self._shadows, self._indexed = shadows, indexed

    @passes_through
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if self._shadows.now.is_honest:  # called within an operator's own code
            return func(*args, **kwargs)
        # Its C++ needs a driver's allocator, before any operator runs.
        if func is torch.tensor and kwargs.pop("pin_memory", False):
            return mark_pinned(func(*args, **kwargs))
        if func is torch.device and len(args) == 1 and isinstance(args[0], int):
            return self._indexed(args[0])
        wanted = kwargs.get("device")
        if wanted is not None:
            wanted = kwargs["device"] = self._indexed(wanted)
            if not isinstance(wanted, torch.device):
                return func(*args, **kwargs)
            if func is torch.sparse_coo_tensor and wanted.type == "cuda":  # its C++ queries the driver
                args, wanted = move_arguments(args, kwargs), None
            elif self._shadows.is_of_gpu(kwargs["out"]) if isinstance(kwargs.get("out"), Tensor) else False:
                kwargs.pop("device")  # C++ would compare it with the meta device, on which `out` is
        if not (self._is_of_meta(args) if wanted is None else wanted.type == "meta"):
            return func(*args, **kwargs)
        with self._shadows.wanting_meta():
            return func(*args, **kwargs)

    def _is_of_meta(self, args: tuple[Any, ...]) -> bool:
        """Return whether a call's tensors are the script's own meta tensors, so that C++ creates more of them."""
        found = [each for each in args if isinstance(each, Tensor)]
        return bool(found) and all(is_meta(each) and not self._shadows.is_of_gpu(each) for each in found)


_aten = torch.ops.aten
# Operators that read a comparison within their C++, where a meta tensor has no values.
_READS: dict[Any, Callable[..., Any]] = {
    _aten.allclose.default: lambda *args, **kwargs: torch.isclose(*args, **kwargs).all().item(),
    _aten.equal.default: lambda one, other: one.shape == other.shape and (one == other).all().item(),
}
_PLAIN = Tensor.__torch_dispatch__
_IN_HOST = {f"fbgemm::new_{kind}_tensor" for kind in ("managed", "vanilla_managed", "host_mapped", "unified")}
_COPIES = (_aten.copy_.default, _aten._to_copy.default)
_UNSCALE = _aten._amp_foreach_non_finite_check_and_unscale_.default
_INDEXING = (_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default, _aten._index_put_impl_.default)


class OnGpu(TorchDispatchMode):
    """A dispatch mode that runs operators on "cuda" on the meta device, and launches their kernels.

    Raises:
        RuntimeError: an unknown value decides what happens next; the message is one sentence.
    """

    supports_higher_order_operators = True

    def __init__(
        self,
        link: SimulatedLink,
        shadows: Shadows,
        functional: Functional,
        flex: FlexAttention,
        transfers: HostCopies,
        computed: ValueComputer,
        asked: ValueReads,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._link, self._shadows, self._functional, self._flex = link, shadows, functional, flex
        self._transfers, self._computed, self._asked = transfers, computed, asked
        self._sparse = Sparse(shadows, lambda: self)
        self._repeated = Repeated()

    @without_counting
    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self._shadows.now.is_suspended or finds_shapes_alone(types):
            return func(*args, **(kwargs or {}))
        if (key := tracing_key()) is not None:
            return self._below(key, func, types, args, kwargs)
        if any(getattr(kind, "__torch_dispatch__", _PLAIN) is not _PLAIN for kind in types):
            return NotImplemented  # the subclass handles the call, and its inner operators come here
        self._link.count_dispatch()
        return self._dispatch(func, args, kwargs)

    def _dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """Run an operator and return its result."""
        if isinstance(func, HigherOrderOperator):
            with self:
                is_fused = self._flex.is_fused(func)
                return self._flex.call(func, args) if is_fused else _run_inner(func, args, kwargs or {})
        kwargs = dict(kwargs or {})
        place = _place_of_device(func)
        if place is not None and place < len(args):
            names = [each.name for each in func._schema.arguments]
            args, kwargs = args[:place], {**dict(zip(names[place:], args[place:], strict=False)), **kwargs}
        tensors = tensors_in((args, kwargs))
        given = [tensor for tensor in tensors if self._shadows.is_of_gpu(tensor)]
        wanted = kwargs.get("device")
        kind = None if wanted is None else torch.device(wanted).type
        # C++ creates tensors on the device of its operands: for GPU tensors that is the meta device.
        is_of_gpu = kind == "cuda" or (kind == "meta" and not self._shadows.now.wants_meta)
        if is_of_gpu:
            kwargs["device"] = META
        if kind == "meta" and not is_of_gpu:
            result = func(*args, **kwargs)
            self._shadows.note_empty(tensors_in(result))
            return result
        if not (given or is_of_gpu):
            is_pinned, made = kwargs.pop("pin_memory", False), self._link.on_cpu(func, args, kwargs)
            return mark_pinned(made) if is_pinned else made
        if self._sparse.takes(func, args, tensors):
            return self._sparse.call(func, args, kwargs)
        made_of = self._find_composite(func)
        if made_of is not None:
            with self:
                return made_of(*args, **kwargs)
        leaves_gpu = wanted is not None and not is_of_gpu
        now = self._shadows.now
        before = now.is_honest, now.index
        now.is_honest, now.index = True, torch.device(wanted).index if wanted is not None and kind == "cuda" else None
        if now.index is None and given:
            now.index = self._shadows.index_of(given[0])
        try:
            return self._on_gpu(func, args, kwargs, leaves_gpu=leaves_gpu)
        finally:
            now.is_honest, now.index = before

    def _below(self, key: Any, *call: Any) -> Any:
        """Call a mode of torch's own for an operator, with this mode below it."""
        # Unset while it runs: it would get its own operators again.
        mode = torch._C._unset_dispatch_mode(key)
        assert mode is not None, "it is there"
        try:
            with self:
                return mode.__torch_dispatch__(*call)
        finally:
            torch._C._set_dispatch_mode(mode)

    def _find_composite(self, func: Any) -> Callable[..., Any] | None:
        """Return a function that calls the parts of a composite operator; None if the operator is not composite."""
        if is_functional(func):
            return lambda *args, **_: self._functional.call(func, args)
        if is_composite(func):  # in inference mode autograd does not decompose it
            found: Callable[..., Any] = FUSED.get(func, func.decompose)
            return found
        return _READS.get(func) or _written_in_python(func)

    def _on_gpu(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, leaves_gpu: bool) -> Any:
        if leaves_gpu and func not in _COPIES:  # uses only the shape of its GPU tensor
            return func(*args, **kwargs)
        if func is _aten._local_scalar_dense.default:
            self._transfers.to_cpu(args[0], None, is_blocking=True)
            return self._asked.number(args[0])
        if func in _COPIES:
            return self._copy(func, args, kwargs, leaves_gpu=leaves_gpu)
        return self._run(func, args, kwargs)

    def _counts(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        if func.namespace == "fbgemm":
            return even_bags(func, args, kwargs, tensors_in(result), self._shadows.of)
        return even_counts(func, args, kwargs)

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result, failed = None, None
        known = self._repeated.find(key := key_of(func, args, kwargs))
        try:
            result = as_laid_out(func, args, func(*args, **kwargs)) if known is None else known.again(args)
        except RuntimeError as error:  # the result's sizes depend on values, or no fake kernel is registered
            failed = error
        decides = self._computed.may_decide(func, result) if known is None else known.decides
        values = self._computed.of(func, args, kwargs, result) if decides else NOT_KNOWN
        if values is NOT_KNOWN and (counts := self._counts(func, args, kwargs, result)) is not None:
            values = counts
            self._asked.say(EVENLY)
        if failed is not None:
            result = self._in_its_place(failed, func, args, values)
        made = tensors_in(result)
        self._shadows.adopt(made, is_in_host=_is_in_host(func))
        self._computed.advance(func, kwargs, made)
        if values is not NOT_KNOWN:
            self._computed.note(func, values, tensors_in((args, kwargs)), made)
        else:
            self._forget(func, args, kwargs, result)
            note_choices(self._shadows, func, tensors_in((args, kwargs)), made)
        kernel, is_known = price(func, args, kwargs, result, on_gpu=True) if known is None else (known.kernel, True)
        if known is None and key is not None and failed is None:
            self._repeated.note(key, tensors_in((args, kwargs)), result, args[0] if args else None, kernel, decides)
        if kernel is not None:
            if not is_known and func.namespace not in TORCHS:
                self._asked.say(f"{func.name()} is priced by the bytes of its arguments and results")
            self._link.launch(kernel, (func, args, kwargs, result))
        if _is_read(func, args, kwargs):
            self._transfers.wait()
        return result

    def _in_its_place(self, failed: RuntimeError, func: Any, args: tuple[Any, ...], values: Any) -> Any:
        """Return the result of an operator that fails without values: from its `values`, or of a known mask's size."""
        if values is NOT_KNOWN and not isinstance(failed, NotImplementedError):
            raise failed
        masked = self._computed.mask(func, args) if values is NOT_KNOWN else values
        if masked is None:
            raise unknown_sizes(func) from failed
        return tree_map_only(Tensor, self._of_gpu, masked)

    def _forget(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Forget the values that an operator has overwritten with unknown ones."""
        if not is_view(func):
            self._shadows.forget(touched_tensors(func, args, kwargs, result)[1])
        if func is _UNSCALE:  # assume finite gradients
            self._shadows.keep(args[1], torch.zeros(args[1].shape, device="cpu"))

    def _of_gpu(self, value: Tensor) -> Tensor:
        made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=META)
        self._shadows.adopt([made])
        return made

    def _copy(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, leaves_gpu: bool) -> Any:
        """Copy a tensor within the GPU, or from or to the CPU."""
        target, source = (args[0], args[1]) if func is _aten.copy_.default else (None, args[0])
        if not isinstance(source, Tensor):  # a number
            return self._run(_aten.fill_.Scalar, args[:2], {})
        if isinstance(source, UninitializedTensorMixin):  # a lazy module's parameter refuses to give its shape
            source = source.data
            args = (source, *args[1:])
        is_blocking = not (args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
        if leaves_gpu or (target is not None and not self._shadows.is_of_gpu(target)):
            self._transfers.to_cpu(source, target, is_blocking=is_blocking)
            read = self._asked.tensor(source)
            made = func(read, **kwargs) if target is None else target.copy_(read)
            return made if is_blocking or target is not None else mark_pinned(made)
        comes_from_gpu = self._shadows.is_of_gpu(source)
        if self._shadows.is_empty(source):  # `Module.to` recognizes this message, and explains it
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        values = self._shadows.of(source) if comes_from_gpu else source
        is_guess = comes_from_gpu and self._shadows.is_guess(source)
        if target is None:
            target = func(torch.empty_like(source, device=META), **{**kwargs, "device": META})
            self._shadows.adopt([target])
        if values is not None and not is_meta(values) and self._shadows.keeps(values):
            self._shadows.keep(target, values.expand(target.shape), is_guess=is_guess)
        else:
            self._shadows.forget([target])
            note_choices(self._shadows, func, [source], [target])
        if not comes_from_gpu:
            self._transfers.to_gpu(source, is_blocking=is_blocking)
        elif (kernel := price(func, args, kwargs, target, on_gpu=True)[0]) is not None:
            self._link.launch(kernel, (func, args, kwargs, target))
        return target


def _run_inner(func: HigherOrderOperator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a higher-order operator by its generic implementation."""
    if func.name() == "run_dtensor_rng_op":  # only sets random states around `inner`, which have no effect here
        _, _, inner, *rest = args
        return inner(*rest, **kwargs)
    general = func.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)
    if general is None:
        raise RuntimeError(f"operator {func.name()} has no price on simulated GPUs")
    return general(*args, **kwargs)


def _is_read(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether the host waits for an operator's result, as its size depends on values."""
    if func in _INDEXING:  # only masks need a wait, unless a kernel fills in one number
        is_filled = func is not _aten.index.Tensor and args[2].numel() == 1
        return not is_filled and any(each.dtype in (torch.bool, torch.uint8) for each in tensors_in(args[1]))
    return _has_size_of_values(func) and kwargs.get("output_size") is None


def _written_in_python(func: Any) -> Callable[..., Any] | None:
    """Return the CUDA function of a torch.library.custom_op that has results but no fake kernel; else None."""
    made = OPDEFS.get(func._schema.name)
    if made is None or made._abstract_fn is not None or not func._schema.returns:
        return None
    found: Callable[..., Any] | None = made._backend_fns.get("cuda", made._backend_fns.get(None))
    return found


@cache
def _is_in_host(func: Any) -> bool:
    """Return whether an operator allocates memory of the host that a GPU can read: fbgemm's "UVM"."""
    return func.namespace == "fbgemm" and func._schema.name in _IN_HOST


@cache
def _place_of_device(func: Any) -> int | None:
    """Return the index of the argument `device`, which operators of libraries other than aten may take by position."""
    if func.namespace == "aten":  # takes it by keyword
        return None
    arguments = [each.name for each in func._schema.arguments]
    return arguments.index("device") if "device" in arguments else None


@cache
def _has_size_of_values(func: Any) -> bool:
    return not {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}.isdisjoint(func.tags)
