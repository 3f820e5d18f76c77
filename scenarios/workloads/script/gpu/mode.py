"""Operators on a GPU that is not there: run without values, priced, computed where values count."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
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

from scenarios.modules.operators import is_composite, price, tensors_in, touched
from scenarios.seam.kernel import Kernel
from scenarios.workloads.script.gpu.fakes import finds_shapes_alone, tracing_key
from scenarios.workloads.script.gpu.flex_attention import FlexAttention
from scenarios.workloads.script.gpu.functional import Functional, is_functional
from scenarios.workloads.script.gpu.kernels import FUSED, as_laid_out
from scenarios.workloads.script.gpu.shadows import MOST_FLOATS, MOST_INTEGERS, OF_FLOATS, UNKNOWN, Shadows, is_meta
from scenarios.workloads.script.gpu.tensors import Transfers, pinned
from scenarios.workloads.script.gpu.values.counted import SENTENCE, even_counts
from scenarios.workloads.script.host.calls import uncounted
from scenarios.workloads.script.host.compiled import Call
from scenarios.workloads.script.process.process_group import users_line

_META = torch.device("meta")


class Meta(TorchFunctionMode):
    """Notes where a script itself asks for the meta device, of which it then gets real meta tensors.

    `indexed` gives "cuda" the number of the device that is meant, for which C++ would ask the driver.
    """

    def __init__(self, shadows: Shadows, indexed: Callable[[Any], torch.device]) -> None:
        super().__init__()
        self._shadows, self._indexed = shadows, indexed

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if self._shadows.now.is_honest:  # an operator's own code calls
            return func(*args, **kwargs)
        if func is torch.device and len(args) == 1 and isinstance(args[0], int):
            return self._indexed(args[0])
        wanted = kwargs.get("device")
        if wanted is not None:
            wanted = kwargs["device"] = self._indexed(wanted)
            if not isinstance(wanted, torch.device):
                return func(*args, **kwargs)
        if not (self._is_of_meta(args) if wanted is None else wanted.type == "meta"):
            return func(*args, **kwargs)
        with self._shadows.wanting_meta():
            return func(*args, **kwargs)

    def _is_of_meta(self, args: tuple[Any, ...]) -> bool:
        """Return whether a call's tensors are the script's own meta tensors, where C++ then makes others."""
        found = [each for each in args if isinstance(each, Tensor)]
        return bool(found) and all(is_meta(each) and not self._shadows.is_of_gpu(each) for each in found)


# After so many turns a loop on an unknown truth ends. Rejection sampling, as nn.init.trunc_normal_ draws, takes fewer.
MOST_TURNS = 20
# Files whose calls lie between the line that asks for a value and ours.
_BETWEEN = (__file__, "torch/_dynamo/eval_frame.py", "torch/_compile.py", "torch/overrides.py", "torch/_tensor.py")
_NOT_KNOWN = object()  # as what an operator gives, which may be None
_aten = torch.ops.aten
_PLAIN = Tensor.__torch_dispatch__
_COPIES = (_aten.copy_.default, _aten._to_copy.default)
_UNSCALE = _aten._amp_foreach_non_finite_check_and_unscale_.default
_MASKED = (_aten.index.Tensor, _aten.masked_select.default)
_INDEXING = (_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default, _aten._index_put_impl_.default)
_FILLS = (_aten.zero_.default, _aten.fill_.Scalar, _aten.fill_.Tensor)
_SPARSE = 5  # the place of _embedding_bag's argument
_COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isposinf", "isneginf"}
_OF_DATA = {"isnan", "isinf"}


class OnGpu(TorchDispatchMode):
    """Sends what is on "cuda" to the meta device; `launched(kernel, call)` is told of each kernel.

    `transfers` take what is copied from and to the CPU, and wait where the host does.
    `said(sentence)` is told once that a float was asked for whose value is not known. `on_cpu(func, args, kwargs)`
    calls an operator on tensors of the CPU. `dispatched()` is told of each operator, ahead of its kernel.

    Raises:
        RuntimeError: where a value decides that is not known; the message is one sentence.
    """

    supports_higher_order_operators = True

    def __init__(
        self,
        shadows: Shadows,
        functional: Functional,
        flex: FlexAttention,
        launched: Callable[[Kernel, Call], None],
        transfers: Transfers,
        said: Callable[[str], None],
        on_cpu: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any],
        dispatched: Callable[[], None],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._on_cpu, self._dispatched, self._transfers = on_cpu, dispatched, transfers
        self._shadows, self._launched, self._said = shadows, launched, said
        self._has_said, self._functional, self._flex = set[str](), functional, flex
        self._asking: tuple[tuple[int, int], int] = ((0, 0), 0)  # the line that asked last, how often in a row

    @uncounted
    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self._shadows.now.is_suspended or finds_shapes_alone(types):
            return func(*args, **(kwargs or {}))
        if (key := tracing_key()) is not None:
            return self._below(key, func, types, args, kwargs)
        if any(getattr(kind, "__torch_dispatch__", _PLAIN) is not _PLAIN for kind in types):
            return NotImplemented  # it comes by again as what the subclass makes of it
        self._dispatched()
        return self._dispatch(func, args, kwargs)

    def _dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """Return what an operator that is called for itself gives."""
        if isinstance(func, HigherOrderOperator):
            with self:
                if self._flex.is_fused(func):
                    return self._flex.call(func, args)
                return _run_inner(func, args, kwargs or {})
        kwargs = dict(kwargs or {})
        given = [tensor for tensor in tensors_in((args, kwargs)) if self._shadows.is_of_gpu(tensor)]
        wanted = kwargs.get("device")
        kind = None if wanted is None else torch.device(wanted).type
        # C++ makes tensors where others are, and those of the GPU are on the meta device.
        is_of_gpu = kind == "cuda" or (kind == "meta" and not self._shadows.now.wants_meta)
        if is_of_gpu:
            kwargs["device"] = _META
        if kind == "meta" and not is_of_gpu:
            result = func(*args, **kwargs)
            self._shadows.note_empty(tensors_in(result))
            return result
        if not (given or is_of_gpu):
            is_pinned = kwargs.pop("pin_memory", False)
            return pinned(self._on_cpu(func, args, kwargs)) if is_pinned else self._on_cpu(func, args, kwargs)
        made_of = self._made_of(func)
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
        """Return what one of torch's own modes makes of an operator, with this mode below it."""
        mode = torch._C._unset_dispatch_mode(key)
        assert mode is not None, "it is there"
        try:
            with self:
                return mode.__torch_dispatch__(*call)
        finally:
            torch._C._set_dispatch_mode(mode)

    def _made_of(self, func: Any) -> Callable[..., Any] | None:
        """What calls an operator's parts, of one that is made of others; None: it is one itself."""
        if is_functional(func):
            return lambda *args, **_: self._functional.call(func.overloadpacket.__name__, args)
        if is_composite(func):  # in inference mode, where autograd does not take it apart
            found: Callable[..., Any] = FUSED.get(func, func.decompose)
            return found
        return _written_in_python(func)

    def _on_gpu(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, leaves_gpu: bool) -> Any:
        if leaves_gpu and func not in _COPIES:  # takes a tensor's shape alone along
            return func(*args, **kwargs)
        if func is _aten._local_scalar_dense.default:
            return self._scalar(args[0])
        if func in _COPIES:
            return self._copy(func, args, kwargs, leaves_gpu=leaves_gpu)
        return self._run(func, args, kwargs)

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _is_sparse(func, args):
            raise RuntimeError("sparse tensors have no price: expected sparse=False, as embeddings have it")
        values = self._values(func, args, kwargs)
        if values is _NOT_KNOWN and (counts := even_counts(func, args, kwargs)) is not None:
            values = counts
            self._say(SENTENCE)
        try:
            result = as_laid_out(func, args, func(*args, **kwargs))
        except RuntimeError as error:  # sizes of what it gives depend on values, or nobody has said which
            if values is _NOT_KNOWN and not isinstance(error, NotImplementedError):
                raise
            masked = self._masked(func, args) if values is _NOT_KNOWN else values
            if masked is None:
                raise self._unknown(func) from error
            result = tree_map_only(Tensor, self._of_gpu, masked)
        made = tensors_in(result)
        self._shadows.adopt(made)
        if values is not _NOT_KNOWN:
            for tensor, value in zip(made, tensors_in(values), strict=True):
                self._shadows.keep(tensor, value)
        else:
            _, written = touched(func, args, kwargs, result)
            if not _is_view(func):
                self._shadows.forget(written)
            if func is _UNSCALE:  # gradients are finite
                self._shadows.keep(args[1], torch.zeros(args[1].shape, device="cpu"))
        kernel, _ = price(func, args, kwargs, result, on_gpu=True)
        if kernel is not None:
            self._launched(kernel, (func, args, kwargs, result))
        if _is_read(func, args, kwargs):
            self._transfers.wait()
        return result

    def _values(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what the operator gives of values that are known, unless it is data or a view."""
        tensors = tensors_in((args, kwargs))
        is_of_data = func.overloadpacket.__name__ in _OF_DATA
        if _is_view(func) or not (is_of_data or all(map(self._shadows.keeps, tensors))):
            return _NOT_KNOWN
        if not (tensors or self._shadows.has_all or _is_small(func, args, kwargs)):
            return _NOT_KNOWN
        found = {id(each): self._shadows.of(each) if is_meta(each) else each for each in tensors}
        if func in _FILLS and found[id(args[0])] is None:  # whatever it was
            found[id(args[0])] = _unknown_as(args[0])
        unknown = [each for each in tensors if found[id(each)] is None]
        if unknown:
            if not _is_comparison(func, unknown):
                return _NOT_KNOWN
            self._say()
            found.update(
                (id(each), torch.full(each.shape, UNKNOWN, dtype=each.dtype, device="cpu")) for each in unknown
            )
        own = {**kwargs, "device": torch.device("cpu")} if "device" in kwargs else kwargs
        own_args, own_kwargs = tree_map_only(Tensor, lambda each: found[id(each)], (args, own))
        try:
            return func(*own_args, **own_kwargs)
        except NotImplementedError:  # an operator of GPUs alone
            return _NOT_KNOWN

    def _masked(self, func: Any, args: tuple[Any, ...]) -> Tensor | None:
        """What a known mask leaves of unknown values, some others in their place; None: it is something else."""
        if func not in _MASKED or not self._shadows.is_of_gpu(args[0]):
            return None
        masks = [self._shadows.of(each) if self._shadows.is_of_gpu(each) else each for each in tensors_in(args[1])]
        if any(each is None for each in masks):
            return None
        known = iter(masks)
        some = torch.zeros((), dtype=args[0].dtype, device="cpu").expand(args[0].shape)
        made: Tensor = func(some, tree_map_only(Tensor, lambda _: next(known), args[1]))
        return made

    def _of_gpu(self, value: Tensor) -> Tensor:
        made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=_META)
        self._shadows.adopt([made])
        return made

    def _copy(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, leaves_gpu: bool) -> Any:
        """Between devices, or within the GPU."""
        target, source = (args[0], args[1]) if func is _aten.copy_.default else (None, args[0])
        if isinstance(source, UninitializedTensorMixin):  # of a lazy module, which refuses to say its shape
            source = source.data
            args = (source, *args[1:])
        is_blocking = not (args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
        if leaves_gpu or (target is not None and not self._shadows.is_of_gpu(target)):
            self._transfers.to_cpu(source, target, is_blocking=is_blocking)
            read = self._read(source)
            made = func(read, **kwargs) if target is None else target.copy_(read)
            return made if is_blocking or target is not None else pinned(made)
        comes_from_gpu = self._shadows.is_of_gpu(source)
        if self._shadows.is_empty(source):  # the sentence that `Module.to` expects, and explains
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        values = self._shadows.of(source) if comes_from_gpu else source
        if target is None:
            target = func(torch.empty_like(source, device=_META), **{**kwargs, "device": _META})
            self._shadows.adopt([target])
        if values is not None and not is_meta(values) and self._shadows.keeps(values):
            self._shadows.keep(target, values.expand(target.shape))
        else:
            self._shadows.forget([target])
        if not comes_from_gpu:
            self._transfers.to_gpu(source, is_blocking=is_blocking)
        elif (kernel := price(func, args, kwargs, target, on_gpu=True)[0]) is not None:
            self._launched(kernel, (func, args, kwargs, target))
        return target

    def _read(self, source: Tensor) -> Tensor:
        """The values of a tensor of the GPU, for the CPU."""
        values = self._shadows.of(source)
        if values is not None:
            return values
        if not source.is_floating_point():
            raise self._unknown(None)
        self._say()
        return _unknown_as(source)

    def _scalar(self, tensor: Tensor) -> Any:
        self._transfers.to_cpu(tensor, None, is_blocking=True)
        values = self._shadows.of(tensor)
        if values is not None:
            return values.item()
        if tensor.is_floating_point():
            self._say()
            return UNKNOWN
        if tensor.untyped_storage().nbytes() > tensor.element_size():
            raise self._unknown(None)
        where = users_line(sys._getframe().f_back)  # a number by itself is a metric, more likely than a size
        if tensor.dtype == torch.bool and self._turns() > MOST_TURNS:
            self._say(f"a loop in {where} ends after {MOST_TURNS} turns, as nothing computes the value that ends it")
            return False
        self._say(f"an integer that the script asks for in {where} is {UNKNOWN:g}, as nothing computes it")
        return bool(UNKNOWN) if tensor.dtype == torch.bool else int(UNKNOWN)

    def _turns(self) -> int:
        """Return how often in a row one line of one call has asked for an unknown truth, as a loop on a value does."""
        frame = sys._getframe()
        while frame.f_back is not None and frame.f_code.co_filename.endswith(_BETWEEN):
            frame = frame.f_back
        here = (id(frame), frame.f_lineno)
        self._asking = (here, self._asking[1] + 1 if self._asking[0] == here else 1)
        return self._asking[1]

    def _say(self, sentence: str = OF_FLOATS) -> None:
        if sentence not in self._has_said:
            self._has_said.add(sentence)
            self._said(sentence)

    def _unknown(self, func: Any) -> RuntimeError:
        if func is not None and torch.Tag.dynamic_output_shape not in func.tags:
            return RuntimeError(
                f"{func.name()} has no kernel for tensors without values: expected one of torch.library.register_fake"
            )
        what = "a value" if func is None else f"what {func.overloadpacket.__name__} gives"
        return RuntimeError(f"{what} decides how the script goes on, and is not known where nothing is computed")


def _is_sparse(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether an operator of torch's makes sparse tensors, or will in its backward pass; fbgemm's "sparse" are ids."""
    name = func.overloadpacket.__name__ if func.namespace == "aten" else ""
    return "sparse" in name or (name == "_embedding_bag" and len(args) > _SPARSE and bool(args[_SPARSE]))


def _run_inner(func: HigherOrderOperator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operator that is given others, by its general implementation."""
    if func.name() == "run_dtensor_rng_op":  # moves the state of random numbers, of which there are none
        _, _, inner, *rest = args
        return inner(*rest, **kwargs)
    general = func.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)
    if general is None:
        raise RuntimeError(f"operator {func.name()} has no price on simulated GPUs")
    return general(*args, **kwargs)


def _unknown_as(tensor: Tensor) -> Tensor:
    return torch.full(tensor.shape, UNKNOWN, dtype=tensor.dtype, device="cpu")


def _is_read(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a host waits for what an operator gives: a number, or how many elements."""
    if func in _INDEXING:  # by masks; one number in their places is written by a kernel
        is_filled = func is not _aten.index.Tensor and args[2].numel() == 1
        return not is_filled and any(each.dtype in (torch.bool, torch.uint8) for each in tensors_in(args[1]))
    return _has_size_of_values(func) and kwargs.get("output_size") is None


def _written_in_python(func: Any) -> Callable[..., Any] | None:
    """Return what a torch.library.custom_op calls on a GPU, of one that says nothing of what it gives by shapes."""
    made = OPDEFS.get(func._schema.name)
    if made is None or made._abstract_fn is not None or not func._schema.returns:
        return None
    found: Callable[..., Any] | None = made._backend_fns.get("cuda", made._backend_fns.get(None))
    return found


def _is_view(func: Any) -> bool:
    """Return whether an operator's result lies in a storage that exists already."""
    return bool(func.is_view) or func.overloadpacket is _aten.set_


@cache
def _has_size_of_values(func: Any) -> bool:
    return not {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}.isdisjoint(func.tags)


def _is_comparison(func: Any, unknown: Sequence[Tensor]) -> bool:
    """Whether an operator asks of floats what they are, of so few that it may decide how the script goes on."""
    name = func.overloadpacket.__name__
    most = MOST_INTEGERS if name in _OF_DATA else MOST_FLOATS
    return name in _COMPARISONS and all(each.is_floating_point() and each.numel() <= most for each in unknown)


def _is_small(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a tensor that is made of nothing may be of integers that count."""
    name, dtype = func.overloadpacket.__name__, kwargs.get("dtype")
    if dtype is None:
        return name == "arange" and not any(isinstance(each, float) for each in args)
    return not dtype.is_floating_point and "rand" not in name
