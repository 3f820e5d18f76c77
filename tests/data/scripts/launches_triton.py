"""Launches kernels of Triton: by themselves, autotuned, within an operator; some write integers."""

from functools import partial

import pytest
import torch
import triton
import triton.language as tl
import triton.testing
from torch.library import triton_op, wrap_triton


@triton.jit
def add(x_ptr, y_ptr, out_ptr, count, size: tl.constexpr):
    offsets = tl.program_id(0) * size + tl.arange(0, size)
    mask = offsets < count
    places = out_ptr + offsets
    total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    tl.store(places, total, mask=mask)


@triton.jit
def scatter(x_ptr, ids_ptr, lengths_ptr, out_ptr, size: tl.constexpr):
    """Rows go where the ids say, as those of a mixture of experts."""
    length = tl.load(lengths_ptr)
    for start in range(0, min(length, size)):
        row = tl.load(ids_ptr + start)
        value = tl.load(x_ptr + start).to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + row, tl.maximum(value, 0))


class lib:  # noqa: N801 - stands for a module of helpers
    @staticmethod
    def write(value, ptr):
        """Writes at what is not its first argument."""


@triton.jit
def by_attribute(x_ptr, out_ptr):
    lib.write(tl.load(x_ptr), out_ptr)


def store_twice(value, ptr):
    tl.store(ptr, 2 * value)


@triton.jit
def by_name(x_ptr, out_ptr):
    store_twice(tl.load(x_ptr), out_ptr)


@triton.jit
def by_method(x_ptr, out_ptr):
    places: tl.tensor = out_ptr + tl.load(x_ptr)
    for place in (places, places + 1):
        place.atomic_add(1)


def is_known(values):
    try:
        values.tolist()
    except RuntimeError:
        return False
    return True


@triton.autotune(configs=[triton.Config({"size": size}) for size in (128, 1024)], key=["count"])
@triton.jit
def double(x_ptr, out_ptr, count, size: tl.constexpr):
    offsets = tl.program_id(0) * size + tl.arange(0, size)
    tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets))


def added(x, y):
    out = torch.empty_like(x)
    add[lambda meta: (triton.cdiv(x.numel(), meta["size"]),)](x, y, out, x.numel(), size=1024)
    return out


@torch.library.custom_op("ours::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    double[(8,)](x, out, x.numel())
    return out


@triton_op("ours::with_itself", mutates_args=())
def with_itself(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(add)[lambda meta: (1024,)](x, x, out, x.numel(), size=1024)
    return out


doubled.register_fake(torch.empty_like)
weight = torch.zeros(1024, 1024, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
ids, sums = torch.arange(4, device="cuda"), torch.zeros(4, dtype=torch.int64, device="cuda")
rows, lengths = torch.zeros(4, dtype=torch.int64, device="cuda"), torch.full((1,), 4, device="cuda")
scatter[(1,)](ids, ids, lengths, rows, size=4)
assert ids.tolist() == [0, 1, 2, 3]
assert lengths.tolist() == [4]
assert not is_known(rows)
for kernel in (by_attribute, by_name, by_method):
    written = torch.zeros(4, dtype=torch.int64, device="cuda")
    kernel[(1,)](ids, written)
    assert ids.tolist() == [0, 1, 2, 3], kernel.__name__
    assert not is_known(written), kernel.__name__
launched = add[(1,)](ids, ids, sums, 4, size=4)
assert not hasattr(launched, "n_regs")
for refused in (partial(add.warmup, ids, ids, sums, 4, size=4, grid=(1,)), partial(getattr, launched, "n_regs")):
    with pytest.raises((RuntimeError, AttributeError), match="nothing is compiled"):
        refused()
milliseconds = triton.runtime.driver.active.get_benchmarker()(lambda: added(weight, weight))
assert 0.001 < milliseconds < 0.1, milliseconds  # 12 MiB of memory
for _ in range(3):
    with torch.no_grad():
        out = added(weight, weight)
        double[(8,)](weight, out, weight.numel())
        doubled(weight)
        with_itself(weight)
    weight.sum().backward()
    optimizer.step()
    add[(1,)](ids, ids, sums, 4, size=4)
    assert ids.tolist() == [0, 1, 2, 3]  # which the kernel reads alone
    assert not is_known(sums), "nobody computed them"
assert triton.runtime.driver.active.get_active_torch_device() == torch.device("cuda", 0)
