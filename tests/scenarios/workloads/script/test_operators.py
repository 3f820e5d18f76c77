"""The law of operators on CPU tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from scenarios.seam.host_work import NO_WORK, HostWork, total
from scenarios.workloads.script.host.operators import work_of

MANY = 1 << 23  # elements of 4 bytes that no cache holds


class Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.works = list[HostWork]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.works.append(work_of(func, args, kwargs or {}, result))
        return result


def count(call: Callable[[], Any]) -> HostWork:
    with Counting() as counting:
        call()
    return total(counting.works)


def test_bytes_are_those_that_are_read_and_written() -> None:
    x = torch.zeros(MANY)
    assert count(x.clone) == HostWork(cpu_bytes=8 * MANY)
    assert count(lambda: x + x) == HostWork(cpu_bytes=12 * MANY)
    assert count(lambda: torch.stack([x, x])) == HostWork(cpu_bytes=16 * MANY)
    assert count(lambda: torch.zeros(MANY)) == HostWork(cpu_bytes=4 * MANY)


def test_views_small_tensors_and_memory_without_values_take_nothing() -> None:
    x = torch.zeros(MANY)
    assert count(lambda: (x[1:], x.view(2, -1), torch.empty(MANY))) == NO_WORK
    assert count(lambda: torch.zeros(100).sort()) == NO_WORK


def test_a_product_takes_its_arithmetic_unless_it_is_thin() -> None:
    x = torch.zeros(1024, 1024)
    assert count(lambda: x @ x) == HostWork(cpu_flops=2 * 1024**3)
    row = torch.zeros(1, MANY)
    thin = count(lambda: row.T * row[:, :1])
    assert thin.cpu_flops == 0
    assert thin.cpu_bytes > 0


def test_cached_bytes_move_three_times_as_fast() -> None:
    assert count(torch.zeros(1 << 16).clone) == HostWork(cpu_bytes=round(8 * (1 << 16) / 3))


@pytest.mark.parametrize(
    ("call", "least"),
    [
        (lambda x: torch.rand(MANY), 32),
        (lambda x: x.bernoulli_(0.5), 136),
        (lambda x: x[x > 0], 60),
        (lambda x: torch.where(x > 0, x, x), 40),
        (lambda x: x.view(-1, 256).topk(5), 90),
        (lambda x: x.sort(), 40 * 23),
        (lambda x: x.view(-1, 256).sort(), 40 * 8),
    ],
)
def test_operators_slower_than_their_bytes_count_for_more(call: Callable[[torch.Tensor], Any], least: int) -> None:
    x = torch.zeros(MANY)
    found = count(lambda: call(x)).cpu_bytes / MANY
    assert least < found < least + 100


def test_values_count_for_nothing() -> None:
    one, other = torch.zeros(1 << 16), torch.rand(1 << 16)
    assert count(one.sort) == count(other.sort)
    assert count(one.unique).cpu_bytes == pytest.approx(count(other.unique).cpu_bytes, rel=0.1)
