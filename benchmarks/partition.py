"""Measures GreedyPerfPartitioner.partition: ours, and TorchRec's beside it where it is installed.

    python -m benchmarks.partition

Process CPU time, medians of alternating runs of both on equal proposals; it is checked that the ranks are equal. Every
shard has a Storage and a Perf of its own, as TorchRec's estimators give it. TorchRec beside torch 2.13 (CPU):

    pip install --no-deps fbgemm-gpu-cpu==1.8.0 torchrec==1.8.0
    pip install torchmetrics==1.0.3 tqdm pyre-extensions iopath tensordict
"""

from __future__ import annotations

import logging
import random
import statistics
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

from scenarios import planner

REPEATS = 7
GPUS_PER_HOST = 8
HBM_CAP = 10**12

ALL_KINDS = (
    "table_wise", "column_wise", "row_wise", "data_parallel", "table_row_wise", "table_column_wise", "grid_shard",
)  # fmt: skip

ShardRow = tuple[int, int, tuple[float, ...]]  # bytes of hbm and ddr, and the fields of its perf in ms


@dataclass(frozen=True, slots=True)
class Case:
    """One proposal, as plain values: kinds and shards of its tables, for `ranks` ranks with `hbm_cap` bytes each."""

    name: str
    ranks: int
    tables: Sequence[tuple[str, Sequence[ShardRow]]]
    hbm_cap: int = HBM_CAP

    @property
    def shards(self) -> int:
        return sum(len(rows) for _, rows in self.tables)


def mix(name: str, kinds: Sequence[str], tables: int = 1000, ranks: int = 512) -> Case:
    """Tables of these kinds in turn, of random sizes; a table's shards differ a little."""
    draw = random.Random(7)
    counts = {"row_wise": ranks, "data_parallel": ranks, "table_row_wise": GPUS_PER_HOST, "table_wise": 1}
    counts |= {"column_wise": 4, "table_column_wise": 4, "grid_shard": 2 * GPUS_PER_HOST}
    chosen = [kinds[index % len(kinds)] for index in range(tables)]
    return Case(name, ranks, [(kind, shard_rows(draw, counts[kind])) for kind in chosen])


def shard_rows(draw: random.Random, count: int) -> list[ShardRow]:
    size, perf = draw.randint(10**5, 10**8), [draw.uniform(0.01, 5.0) for _ in range(5)]
    return [(size - index % 3, 0, tuple(ms * (1 + index % 2 / 8) for ms in perf)) for index in range(count)]


def table_wise(name: str, tables: int, ranks: int, full: float = 0.0) -> Case:
    """One shard a table; `full` is the share of all memory that they take together, if it matters."""
    draw = random.Random(11)
    rows = [[(draw.randint(1, 10**8), 0, tuple(draw.uniform(0.01, 5.0) for _ in range(5)))] for _ in range(tables)]
    cap = int(sum(shards[0][0] for shards in rows) / (ranks * full)) if full else HBM_CAP
    return Case(name, ranks, [("table_wise", shards) for shards in rows], cap)


CASES = (
    mix("(a) 1,000 tables of all types, 512 ranks", ALL_KINDS),
    table_wise("(b) 10,000 table-wise shards, 128 ranks", 10_000, 128),
    table_wise("(c) the same, 98 % full", 10_000, 128, 0.98),
    table_wise("(d) 100,000 table-wise shards, 1,024 ranks", 100_000, 1024),
    mix("table-wise, row-wise and replicas", ("table_wise", "row_wise", "data_parallel")),
    mix("row-wise only", ("row_wise",), 200),
    mix("table-wise and column-wise", ("table_wise", "column_wise")),
    mix("table-row-wise and table-column-wise", ("table_row_wise", "table_column_wise")),
    mix("grid only", ("grid_shard",)),
    mix("all but uniform", ("table_wise", "column_wise", "table_row_wise", "table_column_wise", "grid_shard")),
)


def build(case: Case, words: Any) -> tuple[list[Any], Any]:
    """The proposal and the topology in the classes of `words`: ours or TorchRec's."""
    options = [option(index, kind, rows, words) for index, (kind, rows) in enumerate(case.tables)]
    return options, words.Topology(case.ranks, "cuda", hbm_cap=case.hbm_cap, local_world_size=GPUS_PER_HOST)


def option(index: int, kind: str, rows: Sequence[ShardRow], words: Any) -> Any:
    return words.ShardingOption(
        name=f"t{index}",
        tensor=None,
        module=("ebc", None),
        input_lengths=[1.0],
        batch_size=512,
        sharding_type=kind,
        partition_by=planner.ShardingType(kind).partition_by.value,
        compute_kernel="fused",
        shards=[words.Shard([1, 1], [0, 0], words.Storage(hbm, ddr), words.Perf(*perf)) for hbm, ddr, perf in rows],
        is_pooled=True,
    )


def once(proposal: list[Any], topology: Any, words: Any) -> float:
    """Seconds of process CPU time."""
    partitioner = words.GreedyPerfPartitioner()
    begin = time.process_time()
    partitioner.partition(proposal, topology)
    return time.process_time() - begin


def compare(case: Case, sides: Sequence[Any]) -> list[float]:
    """The median of each side; their ranks must be equal."""
    problems = [build(case, words) for words in sides]
    times: list[list[float]] = [[] for _ in sides]
    for _ in range(REPEATS):
        for mine, (proposal, topology), words in zip(times, problems, sides, strict=True):
            mine.append(once(proposal, topology, words))
    ranks = [[shard.rank for option in proposal for shard in option.shards] for proposal, _ in problems]
    assert all(other == ranks[0] for other in ranks), f"{case.name}: the ranks differ"
    return [statistics.median(mine) for mine in times]


def torchrec_words() -> Any:
    """TorchRec's classes under our names; None where it is not installed."""
    if find_spec("torchrec") is None:
        return None
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        modules = [import_module(f"torchrec.distributed.planner.{name}") for name in ("types", "partitioners")]
    return SimpleNamespace(**{name: value for module in modules for name, value in vars(module).items()})


def main() -> None:
    theirs = torchrec_words()
    if theirs is None:
        print("TorchRec is not installed: ours only. To compare, see the head of benchmarks/partition.py.")
    print(f"{'':<45} {'shards':>8} {'ours':>10} {'TorchRec':>10} {'faster':>7}")
    for case in CASES:
        medians = compare(case, [planner] if theirs is None else [planner, theirs])
        both = f" {1000 * medians[1]:>7.0f} ms {medians[1] / medians[0]:>6.1f}x" if theirs else ""
        print(f"{case.name:<45} {case.shards:>8} {1000 * medians[0]:>7.1f} ms{both}", flush=True)


if __name__ == "__main__":
    main()
