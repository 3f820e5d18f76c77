"""What an operator gives where the values that decide are known: computed on the CPU beside a simulated GPU."""

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
    MOST_INTEGERS,
    UNKNOWN,
    Shadows,
    filled,
    is_data,
    is_meta,
)
from scenarios.workloads.script.gpu.values.jagged import IN_PLACE_OF

NOT_KNOWN = object()  # as what an operator gives, which may be None
_aten = torch.ops.aten
_MASKED = (_aten.index.Tensor, _aten.masked_select.default)
_COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isposinf", "isneginf"}
_OF_DATA = {"isnan", "isinf"}
# What writes all elements of its first argument, or draws from it, whatever it was.
_FILLS = {"zero_", "fill_", "random_", "bernoulli_", "multinomial"}
# What takes the shape alone of its first argument.
_LIKE = {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "randint_like", "rand_like"}
# What gives values although it is given unknown ones.
_TAKE_UNKNOWN = _COMPARISONS | _FILLS | _LIKE
_EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
# What is drawn by value. Normal numbers are data, of which nothing is known.
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
# Masks of a batch's words or samples are made of as many uniform numbers.
_MOST_DRAWN = 1 << 20
# Libraries of operators on ids, whose integers do not depend on floats: weights go where ids go.
_OF_IDS = frozenset({"fbgemm"})
# Of those what moves bags of ids by (places, lengths, ids, ...), and gives lengths that do not depend on the ids.
_MOVES_BAGS = frozenset({"fbgemm::permute_1D_sparse_data", "fbgemm::permute_2D_sparse_data"})


class ValueComputer:
    """A computer of the integers, truths and few floats that operators on a GPU would give.

    `guessed()` is called where a comparison takes floats for `UNKNOWN`. `generator()` returns that of the current GPU,
    from which the script's random numbers are drawn.
    """

    def __init__(self, shadows: Shadows, guessed: Callable[[], None], generator: Callable[[], torch.Generator]) -> None:
        self._shadows, self._guessed, self._generator = shadows, guessed, generator

    def may_decide(self, func: Any, result: Any) -> bool:
        """Return whether the values that an operator gives may be kept; `result` as in `of`."""
        name = func.overloadpacket.__name__
        is_any_kept = result is None or any(self._may_be_kept(name, each) for each in tensors_in(result))
        return is_any_kept and not is_view(func)

    def of(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        """Return the values that an operator gives, meta tensors for unknown ones; `NOT_KNOWN` if all are unknown.

        `result` is what the operator gives without values, None if its size depends on values; `may_decide` is true.
        """
        name, given = func.overloadpacket.__name__, tensors_in((args, kwargs))
        made = tensors_in(result)
        if not self._shadows.has_all and name in _EMPTY:  # zeros, as their parts may be written one by one
            return filled(made[0], 0) if made and not is_data(made[0]) else NOT_KNOWN
        if not (given or self._shadows.has_all or name in _DRAWN or "rand" not in name):
            return NOT_KNOWN
        takes_unknown = func.namespace in _OF_IDS or name in _TAKE_UNKNOWN
        if not takes_unknown and any(is_meta(each) and not self._shadows.knows(each) for each in given):
            return NOT_KNOWN
        found = {id(each): self._shadows.of(each) if is_meta(each) else each for each in given}
        if given and (name in _LIKE or (name in _FILLS and found[id(given[0])] is None)):
            found[id(given[0])] = filled(given[0], UNKNOWN).clone()
        unknown = [each for each in given if found[id(each)] is None]
        if unknown and func.namespace in _OF_IDS:
            return self._beside_floats(func, args, kwargs, found, made)
        if unknown and not _is_comparison(name, unknown):
            return NOT_KNOWN
        if unknown:
            self._guessed()
            found.update((id(each), filled(each, UNKNOWN)) for each in unknown)
        return self._call(func, args, kwargs, found)

    def note(self, func: Any, values: Any, given: Iterable[Tensor], made: Iterable[Tensor]) -> None:
        """Keep the values that `of` has found for tensors that an operator has made of those `given`."""
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

    def masked(self, func: Any, args: tuple[Any, ...]) -> Tensor | None:
        """Return what a known mask leaves of unknown values, some others in their place; None if nothing is known."""
        if func not in _MASKED or not self._shadows.is_of_gpu(args[0]):
            return None
        masks = [self._shadows.of(each) if self._shadows.is_of_gpu(each) else each for each in tensors_in(args[1])]
        if any(each is None for each in masks):
            return None
        known = iter(masks)
        made: Tensor = func(filled(args[0], 0), tree_map_only(Tensor, lambda _: next(known), args[1]))
        return made

    def _may_be_kept(self, name: str, tensor: Tensor) -> bool:
        return self._shadows.keeps(tensor) or (name in _DRAWN and tensor.numel() <= _MOST_DRAWN)

    def _beside_floats(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], found: dict[int, Any], made: Sequence[Tensor]
    ) -> Any:
        """Return the integers that an operator gives beside floats, or too many ids, whose number alone is known."""
        floats = [each for each in tensors_in((args, kwargs)) if found[id(each)] is None]
        if made and all(map(is_data, made)):
            return NOT_KNOWN
        if not all(map(is_data, floats)):
            return self._lengths(func, args, found, made)
        values = self._call(func, args, kwargs, {**found, **{id(each): filled(each, 0) for each in floats}})
        return tree_map_only(Tensor, lambda each: each.to("meta") if is_data(each) else each, values)

    def _lengths(self, func: Any, args: tuple[Any, ...], found: dict[int, Any], made: Sequence[Tensor]) -> Any:
        """Return the lengths of bags of unknown ids that are moved."""
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
        except NotImplementedError:  # an operator of GPUs alone
            return NOT_KNOWN

    @contextmanager
    def _drawing(self, func: Any, kwargs: dict[str, Any]) -> Iterator[None]:
        """Draw inside by where the GPU's generator stands; that of the CPU stays as it is, as beside a real GPU."""
        own = self._generator_of(func, kwargs)
        if own is None or (self._shadows.has_all and kwargs.get("generator") is None):
            yield
            return
        if "generator" in kwargs:
            kwargs["generator"] = None
        usual = torch.default_generator
        before = usual.get_state()
        usual.manual_seed(own.here())
        try:
            yield
        finally:
            usual.set_state(before)

    def advance(self, func: Any, kwargs: dict[str, Any], made: Sequence[Tensor]) -> None:
        """Move a GPU's generator behind what an operator has drawn of it, whether or not that is known."""
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
    """Return whether an operator's result lies in a storage that exists already, whose values stay as they are."""
    return bool(func.is_view) or func.overloadpacket is _aten.set_ or torch.Tag.inplace_view in func.tags


def _is_comparison(name: str, unknown: Sequence[Tensor]) -> bool:
    """Return whether an operator asks of floats what they are, of so few that it may decide how the script goes on."""
    most = MOST_INTEGERS if name in _OF_DATA else MOST_FLOATS
    return name in _COMPARISONS and all(each.is_floating_point() and each.numel() <= most for each in unknown)
