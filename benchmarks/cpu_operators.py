"""`python -m benchmarks.cpu_operators`: operators on CPU tensors on one core of this machine, beside their law.

The law is that of scripts on simulated GPUs (`scenarios/workloads/script/host/operators.py`), with the usual core of
`[cluster.gpu.eager]`. The line at the end has this machine's `cpu_rate`, `cpu_flops` and `loop`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pandas as pd
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from scenarios.config.host_costs import LOOP_TURNS, Eager
from scenarios.seam.host_work import HostWork, total
from scenarios.workloads.script.host.calls import turn_ns
from scenarios.workloads.script.host.operators import work_of

SIZES = (1 << 14, 1 << 18, 1 << 22)
REPEATS = 7


def operators(size: int) -> dict[str, Callable[[], Any]]:
    """Return calls on some `size` elements, by name."""
    x, y, ids = torch.randn(size), torch.randn(size), torch.randint(1000, (size,))
    mask, image = torch.randint(2, (size,)).bool(), torch.randint(255, (size,), dtype=torch.uint8)
    rows, wide, weight = torch.randn(size // 64, 64), torch.randn(size // 256, 256), torch.randn(256, 256)
    places, samples = torch.randint(size // 64, (size // 64,)), list(x.split(size // 64))
    return {
        "add": lambda: x + y,
        "copy": x.clone,
        "stack": lambda: torch.stack(samples),
        "to float": image.float,
        "to half": x.half,
        "exp": x.exp,
        "compare": lambda: x > y,
        "sum": x.sum,
        "softmax": lambda: wide.softmax(1),
        "layer_norm": lambda: torch.nn.functional.layer_norm(wide, (256,)),
        "cumsum": lambda: x.cumsum(0),
        "transposed": lambda: wide.t().contiguous(),
        "argmax": lambda: wide.argmax(1),
        "topk": lambda: wide.topk(5, 1),
        "rand": lambda: torch.rand(size),
        "randn": lambda: torch.randn(size),
        "randint": lambda: torch.randint(1000, (size,)),
        "bernoulli": lambda: torch.empty(size).bernoulli_(0.5),
        "sort": x.sort,
        "unique": ids.unique,
        "bincount": ids.bincount,
        "rows by index": lambda: rows[places],
        "masked": lambda: x[mask],
        "nonzero": mask.nonzero,
        "where": lambda: torch.where(mask, x, y),
        "matmul": lambda: wide @ weight,
    }


class _Counting(TorchDispatchMode):
    """A sum of the law over operators that run inside."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.works, self.count = list[HostWork](), 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.works.append(work_of(func, args, kwargs or {}, result))
        self.count += 1
        return result


def measured_ns(call: Callable[[], Any]) -> int:
    """Return the CPU time of the quickest of some calls."""
    times = []
    for _ in range(REPEATS):
        began_ns = time.thread_time_ns()
        call()
        times.append(time.thread_time_ns() - began_ns)
    return min(times)


def compare() -> pd.DataFrame:
    """Return a row an operator and size: name, elements, measured_us, law_us, ratio (law over measured)."""
    usual, rows = Eager(), []
    for size in SIZES:
        for name, call in operators(size).items():
            with _Counting() as counting:
                call()
            law_ns = usual.takes_ns(total(counting.works)) + counting.count * usual.dispatch_ns
            rows.append((name, size, measured_ns(call) / 1e3, law_ns / 1e3))
    frame = pd.DataFrame(rows, columns=["operator", "elements", "measured_us", "law_us"])
    return frame.assign(ratio=frame["law_us"] / frame["measured_us"])


def main() -> None:
    """Print the operators, how far off the law is in the median, and this machine's own figures."""
    torch.set_num_threads(1)
    found = compare()
    print(found.to_string(index=False, float_format="{:.2f}".format))
    off = found["ratio"].where(found["ratio"] >= 1, 1 / found["ratio"])
    print(
        f"law and measurement differ by a factor of {off.median():.2f} in the median, {off.quantile(0.9):.1f} in 90 %"
    )
    size = SIZES[-1]
    x, m = torch.randn(size), torch.randn(1024, 1024)
    moved, products = 8 * size / measured_ns(x.clone), 2 * 1024**3 / measured_ns(lambda: m @ m)
    loop_us = LOOP_TURNS * turn_ns() / 1e3
    print(f"this machine: cpu_rate {moved:.1f} GB/s, cpu_flops {products:.0f} GFLOP/s, loop {loop_us:.0f} us")


if __name__ == "__main__":
    main()
