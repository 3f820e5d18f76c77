"""Measures block_bucketize: ours, and fbgemm's operator beside it where it is installed.

    python -m benchmarks.bucketize [--device cuda] [--threads N]

Medians of alternating runs of both on equal arguments; it is checked that all results are equal, and on CPU the time
is the process's own. Bytes are those that must move, each once: ids, weights and lengths in, and all results out;
"of a copy" compares their rate with that of a copy of 64 MiB. The operator beside torch 2.13 (CPU):

    pip install --no-deps fbgemm-gpu-cpu==1.8.0
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor

from scenarios.sparse import block_bucketize

REPEATS = 7
COPY_BYTES = 1 << 26
MIXES = [
    "", "weights", "sequence", "bucketize_pos", "weights sequence", "block_bucketize_pos", "skewed", "past the end",
]  # fmt: skip

Call = Callable[[], tuple[Tensor | None, ...]]


@dataclass(frozen=True, slots=True)
class Case:
    """`ids` in all, `pooling` a bag on average; the words of `mix` say what else there is."""

    dtype: torch.dtype = torch.int64
    ids: int = 1_000_000
    features: int = 26
    pooling: int = 10
    my_size: int = 8
    mix: str = ""

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return (
            f"{dtype:5} {self.ids:9,} {self.features:8} {self.pooling:7} {self.my_size:7}  {self.mix or 'ids only':20}"
        )


@dataclass(frozen=True, slots=True)
class Drawn:
    """A case's tensors."""

    lengths: Tensor
    ids: Tensor
    block_sizes: Tensor
    weights: Tensor | None
    bounds: list[Tensor] | None


def cases() -> Iterator[Case]:
    """Shapes with ids only, then what travels with them, then few ids."""
    shapes = itertools.product((torch.int64, torch.int32), (1, 8, 26, 100, 500, 1000), (1, 10, 100), (2, 4, 8, 16, 64))
    for dtype, features, pooling, my_size in shapes:
        yield Case(dtype, features=features, pooling=pooling, my_size=my_size)
    for dtype, mix in itertools.product((torch.int64, torch.int32), MIXES[1:]):
        yield Case(dtype, mix=mix)
    for dtype, features in itertools.product((torch.int64, torch.int32), (1, 26, 500)):
        yield Case(dtype, ids=10_000, features=features)


def draw(case: Case, device: torch.device) -> Drawn:
    """Tables of 90,000 to 110,000 rows; bags of 0 to twice the pooling."""
    torch.manual_seed(1)
    rows = torch.randint(90_000, 110_001, (case.features,))
    batch = max(1, case.ids // (case.features * case.pooling))
    lengths = torch.randint(0, 2 * case.pooling + 1, (case.features * batch,), dtype=torch.int32)
    sizes = lengths.view(case.features, batch).sum(1)
    share = torch.rand(int(sizes.sum()), dtype=torch.float64)
    if "skewed" in case.mix:
        share = share**4
    if "past the end" in case.mix:
        share = share * 1.2
    ids = (share * rows.repeat_interleave(sizes)).to(case.dtype)
    blocks = -(-rows // case.my_size)
    steps = torch.arange(case.my_size + 1)
    bounds = [(steps * each).minimum(total).to(device, case.dtype) for each, total in zip(blocks, rows, strict=True)]
    return Drawn(
        lengths.to(device),
        ids.to(device),
        blocks.to(case.dtype),
        torch.rand(ids.numel()).to(device) if "weights" in case.mix else None,
        bounds if "block_bucketize_pos" in case.mix else None,
    )


def ours(case: Case, drawn: Drawn) -> Call:
    def call() -> tuple[Tensor | None, ...]:
        done = block_bucketize(
            drawn.lengths,
            drawn.ids,
            drawn.block_sizes,
            case.my_size,
            weights=drawn.weights,
            bucketize_pos=case.mix == "bucketize_pos",
            sequence="sequence" in case.mix,
            block_bucketize_pos=drawn.bounds,
        )
        return done.lengths, done.values, done.weights, done.positions, done.unbucketize_permute

    return call


def theirs(case: Case, drawn: Drawn) -> Call:
    import fbgemm_gpu  # noqa: F401, PLC0415  (registers the operator)

    blocks = drawn.block_sizes.to(drawn.ids.device)

    def call() -> tuple[Tensor | None, ...]:
        found: tuple[Tensor | None, ...] = torch.ops.fbgemm.block_bucketize_sparse_features(
            drawn.lengths,
            drawn.ids,
            case.mix == "bucketize_pos",
            "sequence" in case.mix,
            blocks,
            case.my_size,
            weights=drawn.weights,
            block_bucketize_pos=drawn.bounds,
        )
        return found

    return call


def now_s(device: torch.device) -> float:
    """The process's own time on CPU."""
    if device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def medians_s(calls: list[Call], device: torch.device, repeats: int) -> list[float]:
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats + 1):
        for call, own in zip(calls, times, strict=True):
            begin = now_s(device)
            call()
            own.append(now_s(device) - begin)
    return [statistics.median(own[1:]) for own in times]


def moved_bytes(drawn: Drawn, results: tuple[Tensor | None, ...]) -> int:
    tensors = [drawn.lengths, drawn.ids, drawn.weights, *results]
    return sum(one.numel() * one.element_size() for one in tensors if one is not None)


def check_equal(mine: tuple[Tensor | None, ...], other: tuple[Tensor | None, ...]) -> None:
    for one, two in zip(mine, other, strict=True):
        assert (one is None) == (two is None)
        assert one is None or two is None or (one.dtype == two.dtype and torch.equal(one, two))


def row(case: Case, device: torch.device, copy_bytes_per_s: float, *, beside: bool) -> str:
    drawn = draw(case, device)
    calls = [ours(case, drawn), *([theirs(case, drawn)] if beside else [])]
    results = [call() for call in calls]
    if beside and device.type == "cpu":  # on a GPU the operator's order inside a bag is not fixed
        check_equal(*results)
    mine_s, *others_s = medians_s(calls, device, REPEATS if case.ids > 100_000 else 15 * REPEATS)
    share = moved_bytes(drawn, results[0]) / mine_s / copy_bytes_per_s
    text = f"{case}  {1e3 * mine_s:9.3f} ms  {share:6.1%} of a copy"
    return text + "".join(f"  {1e3 * other_s:9.3f} ms  {mine_s / other_s:6.2f}" for other_s in others_s)


def copy_rate(device: torch.device) -> float:
    """Bytes read and written a second by a copy."""
    source = torch.ones(COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    (copy_s,) = medians_s([lambda: (target.copy_(source),)], device, REPEATS)
    return 2 * COPY_BYTES / copy_s


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures block_bucketize beside fbgemm's operator.")
    parser.add_argument("--device", default="cpu", type=torch.device)
    parser.add_argument("--threads", default=1, type=int, help="torch's threads (default 1)")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    beside = find_spec("fbgemm_gpu") is not None
    if not beside:
        print("Ours only; to measure fbgemm's beside it: pip install --no-deps fbgemm-gpu-cpu==1.8.0")
    rate = copy_rate(given.device)
    print(f"{given.device}, {given.threads} thread(s); a copy moves {rate / 1e9:.1f} GB/s")
    print(
        "dtype       ids features pooling my_size  with                     ours                       fbgemm   ratio"
    )
    for case in cases():
        print(row(case, given.device, rate, beside=beside), flush=True)


if __name__ == "__main__":
    main()
