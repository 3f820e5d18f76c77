"""The law of operators on CPU tensors next to a GPU: bytes moved and flops of one core, from shapes alone.

Values have no influence, so that a script's steps repeat. `python -m benchmarks.cpu_operators` compares the law with a
machine's cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Any

import torch
from torch import Tensor

from scenarios.config.host_costs import Eager
from scenarios.modules.operators import price, tensors_in
from scenarios.seam.host_work import NO_WORK, HostWork

# Smaller operators take no more time than their dispatch.
_LEAST_ELEMENTS = 1024
_USUAL = Eager()
# Bytes that a core moves in the time of one flop: an operator takes the longer of moving and computing.
_BYTES_PER_FLOP = _USUAL.cpu_bytes_per_s / _USUAL.cpu_flops_per_s
# Operands below this size come from a core's caches, at three times the rate of memory.
_CACHE_BYTES, _CACHED_SHARE = 4 << 20, 1 / 3
# Cost per element on top of the bytes touched, in bytes that would move meanwhile (12 bytes per ns): random numbers
# are drawn one by one, masks branch, and interpolation gathers. Measured on one core of a Xeon with
# torch 2.13, 16 K to 4 M elements (`python -m benchmarks.cpu_operators`).
_BYTES_AN_ELEMENT = {
    name: size
    for size, names in {
        32: "rand rand_like uniform_ randint randint_like random_ randn randn_like normal_ normal",
        48: "randperm",
        136: "bernoulli bernoulli_ exponential_ multinomial",
        40: "where masked_fill masked_fill_",
        60: "nonzero masked_select masked_scatter",
        5: "gt ge lt le eq ne cumsum _softmax _log_softmax native_layer_norm native_batch_norm",
        16: "index gather take index_put_ index_put _index_put_impl_ max min argmax argmin bincount",
        90: "topk",
        36: "upsample_bilinear2d _upsample_bilinear2d_aa upsample_nearest2d grid_sampler_2d",
    }.items()
    for name in names.split()
}
# Sorting makes log2(row length) passes over all elements; cost per element and pass, in bytes.
_BYTES_A_PASS = 40
_SORTING = frozenset(
    {*("sort", "argsort", "msort", "median", "kthvalue", "mode"), *("unique", "_unique", "_unique2", "unique_dim")}
)


def work_of(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> HostWork:
    """Return a core's work for a call of an operator on CPU tensors, without its dispatch."""
    tensors = tensors_in((args, kwargs, result))
    if any(each.layout != torch.strided or each.is_nested for each in tensors):  # strides do not give their sizes
        return NO_WORK
    elements = max((each.numel() for each in tensors), default=0)
    if elements <= _LEAST_ELEMENTS and sum(each.numel() for each in tensors) <= _LEAST_ELEMENTS:
        return NO_WORK
    kernel, _ = price(func, args, kwargs, result, on_gpu=False)
    if kernel is None:
        return NO_WORK
    name = func.overloadpacket.__name__
    touched = kernel.bytes_read + kernel.bytes_written
    moved = touched * (_CACHED_SHARE if touched <= _CACHE_BYTES else 1) + elements * _bytes_an_element(name, tensors)
    if kernel.flops * _BYTES_PER_FLOP > moved:
        return HostWork(cpu_flops=round(kernel.flops))
    return HostWork(cpu_bytes=round(moved))


def _bytes_an_element(name: str, tensors: Sequence[Tensor]) -> float:
    if name in _SORTING:
        row = tensors[0].shape[-1] if tensors[0].dim() else 1
        return _BYTES_A_PASS * log2(max(row, 2))
    if name.startswith("index") and any(each.dtype == torch.bool for each in tensors):
        name = "masked_select"
    return _BYTES_AN_ELEMENT.get(name, 0)
