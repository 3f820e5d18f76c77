"""Results of operators whose values may decide: computed on the CPU, alongside a simulated GPU, or assumed counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from scenarios.modules.operators import tensors_in
from scenarios.workloads.script.gpu.cuda.generators import GpuGenerator, of_gpu
from scenarios.workloads.script.gpu.known_values import (
    MOST_FLOATS,
    UNKNOWN,
    Shadows,
    fill_shape,
    is_data,
    is_meta,
)
from scenarios.workloads.script.gpu.values.jagged import IN_PLACE_OF

NOT_KNOWN = object()  # None may be an operator's result
EVENLY = "unknown values (such as a router's experts) are counted as if they were spread evenly over all bins"
_aten = torch.ops.aten
_MASKED = (_aten.index.Tensor, _aten.masked_select.default)
_COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isposinf", "isneginf"}
# Checks of data of any size, such as those of detect_anomaly; their results are kept up to this size.
_OF_DATA, _MOST_CHECKED = {"isnan", "isinf"}, 1 << 28
# Operators that overwrite all elements of their first argument, or draw by it, whatever its values.
_FILLS = {"zero_", "fill_", "random_", "bernoulli_", "multinomial"}
# Operators that use only the shape of their first argument.
_LIKE = {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "randint_like", "rand_like"}
# Operators with known results of unknown arguments.
_TAKE_UNKNOWN = _COMPARISONS | _FILLS | _LIKE
_EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
# Random operators that are computed. Normal numbers are data, which stay unknown.
_DRAWN = {
    "randint",
    "randint_like",
    "randperm",
    "random_",
    "multinomial",
    "bernoulli",
    "bernoulli_",
    "rand",
    "rand_like",
}
# Random results up to this size are kept: masks of a batch's words or samples are made of uniform numbers.
_MOST_DRAWN = 1 << 20
# Libraries of operators on ids, whose integer results do not depend on floats: weights move along with ids.
_OF_IDS = frozenset({"fbgemm"})
_BLOCKS = "fbgemm::block_bucketize_sparse_features"
# Operators of fbgemm that move bags, by (places, lengths, ids, ...): the resulting lengths do not depend on the ids.
_MOVES_BAGS = frozenset({"fbgemm::permute_1D_sparse_data", "fbgemm::permute_2D_sparse_data"})


class ValueComputer:
    """A computer of the integers, booleans and few floats that operators on a GPU would return.

    `guessed()` is called where a comparison takes unknown floats for `UNKNOWN`. `generator()` returns the current GPU's
    generator, from which the script's random numbers are drawn.
    """

    def __init__(self, shadows: Shadows, guessed: Callable[[], None], generator: Callable[[], torch.Generator]) -> None:
        self._shadows, self._guessed, self._generator = shadows, guessed, generator

    def may_decide(self, func: Any, result: Any) -> bool:
        """Return whether values of an operator's result may be kept; `result` as in `of`."""
        name = func.overloadpacket.__name__
        is_any_kept = result is None or any(self._may_be_kept(name, each) for each in tensors_in(result))
        return is_any_kept and not is_view(func)

    def of(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        """Return the values of an operator's result, meta tensors for unknown ones; `NOT_KNOWN` if all are unknown.

        `result` is the result without values, None if its size depends on values. `may_decide` must be true.
        """
        name, given = func.overloadpacket.__name__, tensors_in((args, kwargs))
        made = tensors_in(result)
        if not self._shadows.has_all and name in _EMPTY:  # zeros, so that partial writes keep them known
            return fill_shape(made[0], 0) if made and not is_data(made[0]) else NOT_KNOWN
        if not (given or self._shadows.has_all or name in _DRAWN or "rand" not in name):
            return NOT_KNOWN
        takes_unknown = func.namespace in _OF_IDS or name in _TAKE_UNKNOWN
        if not takes_unknown and any(is_meta(each) and not self._shadows.knows(each) for each in given):
            return NOT_KNOWN
        found = {id(each): self._shadows.of(each) if is_meta(each) else each for each in given}
        if given and (name in _LIKE or (name in _FILLS and found[id(given[0])] is None)):
            found[id(given[0])] = fill_shape(given[0], UNKNOWN).clone()
        unknown = [each for each in given if found[id(each)] is None]
        if unknown and func.namespace in _OF_IDS:
            return self._beside_floats(func, args, kwargs, found, made)
        if unknown and not _is_comparison(name, unknown):
            return NOT_KNOWN
        if unknown:
            self._guessed()
            found.update((id(each), fill_shape(each, UNKNOWN)) for each in unknown)
        return self._call(func, args, kwargs, found)

    def note(self, func: Any, values: Any, given: Iterable[Tensor], made: Iterable[Tensor]) -> None:
        """Keep the values that `of` has found for an operator's results `made` of the tensors `given`."""
        name = func.overloadpacket.__name__
        own = [each for each in given if is_meta(each)]
        is_guess = any(
            self._shadows.is_guess(each) or (name in _COMPARISONS and self._shadows.of(each) is None) for each in own
        )
        for tensor, value in zip(made, tensors_in(values), strict=True):
            if is_meta(value) or not self._may_be_kept(name, value):
                self._shadows.forget([tensor])
            else:
                self._shadows.keep(tensor, value, is_guess=is_guess, is_small=True)

    def mask(self, func: Any, args: tuple[Any, ...]) -> Tensor | None:
        """Return arbitrary values, as many as a known mask leaves of unknown ones; None if the mask is unknown."""
        if func not in _MASKED or not self._shadows.is_of_gpu(args[0]):
            return None
        masks = [self._shadows.of(each) if self._shadows.is_of_gpu(each) else each for each in tensors_in(args[1])]
        if any(each is None for each in masks):
            return None
        known = iter(masks)
        made: Tensor = func(fill_shape(args[0], 0), tree_map_only(Tensor, lambda _: next(known), args[1]))
        return made

    def _may_be_kept(self, name: str, tensor: Tensor) -> bool:
        most = _MOST_DRAWN if name in _DRAWN else _MOST_CHECKED if name in _OF_DATA else 0
        return self._shadows.keeps(tensor) or tensor.numel() <= most

    def _beside_floats(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], found: dict[int, Any], made: Sequence[Tensor]
    ) -> Any:
        """Return an operator's integer results if its floats, or too many ids, are unknown."""
        floats = [each for each in tensors_in((args, kwargs)) if found[id(each)] is None]
        if made and all(map(is_data, made)):
            return NOT_KNOWN
        if not all(map(is_data, floats)):
            return self._lengths(func, args, found, made)
        values = self._call(func, args, kwargs, {**found, **{id(each): fill_shape(each, 0) for each in floats}})
        return tree_map_only(Tensor, lambda each: each.to("meta") if is_data(each) else each, values)

    def _lengths(self, func: Any, args: tuple[Any, ...], found: dict[int, Any], made: Sequence[Tensor]) -> Any:
        """Return the results of an operator that reorders bags of unknown ids: their lengths are known."""
        if func._schema.name not in _MOVES_BAGS or not made or len(args) < 2:
            return NOT_KNOWN
        places, lengths = (found[id(each)] for each in args[:2])
        return NOT_KNOWN if places is None or lengths is None else (lengths[places], *made[1:])

    def _call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], found: dict[int, Any]) -> Any:
        own = {**kwargs, "device": torch.device("cpu")} if "device" in kwargs else kwargs
        own_args, own_kwargs = tree_map_only(Tensor, lambda each: found[id(each)], (args, own))
        try:
            with self._drawing(func, own_kwargs):
                return IN_PLACE_OF.get(func._schema.name, func)(*own_args, **own_kwargs)
        except NotImplementedError:  # an operator without a CPU kernel
            return NOT_KNOWN

    @contextmanager
    def _drawing(self, func: Any, kwargs: dict[str, Any]) -> Iterator[None]:
        """Draw random numbers by the GPU's generator within the context; the CPU's state stays, as with a real GPU."""
        own = self._generator_of(func, kwargs)
        if own is None or (self._shadows.has_all and kwargs.get("generator") is None):
            yield
            return
        if "generator" in kwargs:
            # A GPU's generator would fail on the CPU; the default one is seeded below in its place.
            kwargs["generator"] = None
        usual = torch.default_generator
        before = usual.get_state()
        # From seed and offset: the n-th draw of a generator has the same numbers in every run.
        usual.manual_seed(own.here())
        try:
            yield
        finally:
            usual.set_state(before)

    def advance(self, func: Any, kwargs: dict[str, Any], made: Sequence[Tensor]) -> None:
        """Advance a GPU's generator by an operator's random numbers, known or not."""
        if made and (own := self._generator_of(func, kwargs)) is not None:
            own.advance(made[0].numel())

    def _generator_of(self, func: Any, kwargs: dict[str, Any]) -> GpuGenerator | None:
        if not _draws(func):
            return None
        own = kwargs.get("generator")
        return of_gpu(self._generator() if own is None else own)


@cache
def _draws(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags


@cache
def is_view(func: Any) -> bool:
    """Return whether an operator's result lies in an existing storage, whose values it does not change."""
    return bool(func.is_view) or func.overloadpacket is _aten.set_ or torch.Tag.inplace_view in func.tags


def _is_comparison(name: str, unknown: Sequence[Tensor]) -> bool:
    """Return whether an operator compares floats, few enough for a script to branch on the result."""
    most = _MOST_CHECKED if name in _OF_DATA else MOST_FLOATS
    return name in _COMPARISONS and all(each.is_floating_point() and each.numel() <= most for each in unknown)


def draw_at_once(shadows: Shadows) -> None:
    """Make `nn.init.trunc_normal_` draw once; torch 2.13 redraws in a loop while a number lies outside."""
    if shadows.has_all:
        return
    module: Any = torch.nn.init
    usual = module._no_grad_trunc_normal_

    def draw(
        tensor: Tensor, mean: float, std: float, a: float, b: float, generator: torch.Generator | None = None
    ) -> Tensor:
        if not tensor.is_cuda:
            found: Tensor = usual(tensor, mean, std, a, b, generator)
            return found
        with torch.no_grad():
            return tensor.normal_(mean, std, generator=generator)

    module._no_grad_trunc_normal_ = draw


def even_bags(
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    made: Sequence[Tensor],
    known: Callable[[Tensor], Tensor | None],
) -> tuple[Tensor, ...] | None:
    """Return fbgemm's bucketized bags with evenly split lengths; None for other operators or unknown lengths.

    fbgemm sends each id to the rank that has its row. All ranks are assumed to get the same number of ids of a bag, up
    to one more for ranks in turn; the ids stay unknown. `known` returns a tensor's values.
    """
    if func._schema.name != _BLOCKS or not made:
        return None
    given = dict(zip((each.name for each in func._schema.arguments), args, strict=False)) | kwargs
    lengths, ranks = known(given["lengths"]), given["my_size"]
    if lengths is None:
        return None
    # The bag's number shifts who gets one more, else rank 0 would get all remainders.
    turns = (torch.arange(ranks).view(-1, 1) - torch.arange(lengths.numel())) % ranks
    counts = lengths // ranks + (turns < lengths % ranks)
    return counts.view(-1).to(lengths.dtype), *made[1:]


def even_counts(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Return even counts for `histc`, or `bincount` with a minimum length, of unknown values; None for other operators.

    The first bins have one more if the number of values is not divisible.
    """
    given, *rest = args if args else (None,)
    if func is _aten.histc.default:
        bins, dtype = rest[0] if rest else kwargs.get("bins", 100), given.dtype
    elif func is _aten.bincount.default and not (rest and rest[0] is not None) and kwargs.get("weights") is None:
        bins, dtype = rest[1] if len(rest) > 1 else kwargs.get("minlength", 0), torch.int64
    else:
        return None
    if not bins:
        return None
    each, more = divmod(given.numel(), bins)
    counts = torch.full((bins,), each, dtype=dtype, device="cpu")
    counts[:more] += 1
    return counts
