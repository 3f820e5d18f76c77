"""`python -m benchmarks.scale`: training steps of 64 to 131,072 GPUs, and what predicting them takes.

    python -m benchmarks.scale --out scale           # about 10 minutes, of which SimGrid takes 2
    python -m benchmarks.scale --gpus 16384 131072 --repeats 5 --no-all-to-all

Each time is that of the whole command, `python -m sim scenario.toml`: reading, placing the tables, playing the step,
storing and printing; memory is the most that its process had. Steps are those of scenarios/library/twrw_2048x8.toml
("few": 16 tables, each on one host), and of a model with a table of its own for each host, up to 512 ("many": rows, ids
and skew differ from table to table, so that few hosts have the same to do). At 16,384 GPUs the first is played with a
straggling GPU, a slow NIC and a leaf whose uplinks are oversubscribed, too; what the report says of them is printed.

The folder gets steps.csv, all_to_all.csv (one exchange alone, against SimGrid: `benchmarks.scale_all_to_all`) and,
where matplotlib is installed, scale.svg. Exponents are of time and memory over GPUs, least squares on logarithms.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import scale_all_to_all
from benchmarks.report import ROOT, run_python

LIBRARY = ROOT / "scenarios" / "library" / "twrw_2048x8.toml"
GPUS, HOST_GPUS = (64, 512, 4096, 16_384, 131_072), 8
FAULTY_GPUS = 16_384
MOST_TABLES = 512
FAULTS = {
    "straggling GPU": "host = 517\ngpu = 3\nspeed = 0.1",
    "slow NIC": "host = 1200\nnic = 5\nspeed = 0.02",
    "oversubscribed leaf": "leaf = 40\nspeed = 0.02",
}
MANY = """
program = "dlrm"
[run]
steps = 1
batch_size = 64
payload = "sizes"
fidelity = "links"
library = "nccl"
ranks = "alike"
[cluster]
profile = "dgx_h100"
hosts = {hosts}
network = {{kind = "leaf_spine", hosts_per_leaf = 32, oversubscription = 1.0}}
[model]
dense_features = 128
bottom = [512, 256, 16]
top = [512, 256, 1]
interaction = {{kind = "cat"}}
embedding_dim = 16
optimizer = {{kind = "adagrad", learning_rate = 0.01}}
[sharding]
types = ["table_row_wise"]
"""
TABLE = """
[[model.tables]]
name = "t{number}"
rows = {rows}
ids_per_sample = {ids}
ids = {{zipf = {exponent}, order = "shuffled"}}
"""
TITLES = {"seconds": "python -m sim, seconds", "mib": "its memory, MiB"}
TICKS = {"seconds": (2, 5, 10, 20, 60), "mib": (256, 512, 1024, 2048, 4096, 8192)}
COLUMNS = ("case", "gpus", "seconds", "mib", "step_ms", "hosts_played", "all_seconds")


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario file's text."""

    name: str
    gpus: int
    text: str


def few(gpus: int, fault: str = "") -> str:
    """The library's scenario on so many GPUs."""
    hosts = f"include = {json.dumps(str(LIBRARY))}\n[cluster]\nhosts = {gpus // HOST_GPUS}\n"
    return hosts + (f"[[cluster.faults]]\n{fault}\n" if fault else "")


def many(gpus: int) -> str:
    """A table a host; sizes by fixed rules that have no common period."""
    hosts = gpus // HOST_GPUS
    tables = (
        TABLE.format(
            number=number,
            rows=10_000 + 7919 * number % 4_000_000,
            ids=1 + 5 * number % 8,
            exponent=(0.6, 0.8, 1.05, 1.1, 1.2)[number % 5],
        )
        for number in range(min(hosts, MOST_TABLES))
    )
    return MANY.format(hosts=hosts) + "".join(tables)


def cases(sizes: Sequence[int]) -> Iterator[Case]:
    for gpus in sizes:
        yield Case("few", gpus, few(gpus))
        yield Case("many", gpus, many(gpus))
    if FAULTY_GPUS in sizes:
        for name, fault in FAULTS.items():
            yield Case(name, FAULTY_GPUS, few(FAULTY_GPUS, fault))


def measure(case: Case, repeats: int) -> tuple[dict[str, object], list[str]]:
    """A line of the table, and the report's sentences on stragglers."""
    times, memory = [], []
    report: dict[str, Any] = {}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            scenario = Path(folder) / "scenario.toml"
            scenario.write_text(case.text)
            taken = run_python("-m", "sim", str(scenario), "--out", f"{folder}/run", "--json")
        times.append(taken.seconds)
        memory.append(taken.mib)
        report = json.loads(taken.output)
    line: dict[str, object] = {
        "case": case.name,
        "gpus": case.gpus,
        "seconds": round(statistics.median(times), 2),
        "mib": round(statistics.median(memory)),
        "step_ms": round(report["median_step_ns"] / 1e6, 3),
        "hosts_played": len(report["host_counts"]),
        "all_seconds": " ".join(f"{time:.2f}" for time in times),
    }
    return line, [one["sentence"] for one in report["stragglers"]]


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Of the power of the size that is nearest to the values."""
    return statistics.linear_regression([math.log(one) for one in sizes], [math.log(one) for one in values]).slope


def exponents(lines: Sequence[dict[str, object]]) -> Iterator[str]:
    """Over all sizes, and of the last two alone, where what every command takes counts least."""
    for case in ("few", "many"):
        found = [line for line in lines if line["case"] == case]
        for unit in ("seconds", "mib") if len(found) > 1 else ():
            sizes, values = [float(str(one["gpus"])) for one in found], [float(str(one[unit])) for one in found]
            whole, last = exponent(sizes, values), exponent(sizes[-2:], values[-2:])
            yield f"{case}: {unit} grow with GPUs ** {whole:.2f}; from {sizes[-2]:,.0f} to {sizes[-1]:,.0f}: {last:.2f}"


def plot(lines: Sequence[dict[str, object]], path: Path) -> None:
    """Seconds and MiB over GPUs.

    Raises:
        ImportError: there is no matplotlib.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  (not needed for the figures)

    figure = Figure(figsize=(9, 4), layout="constrained")
    for axes, unit, bars in zip(figure.subplots(1, 2), ("seconds", "mib"), ((10, 60), (2048, 8192)), strict=True):
        for case in dict.fromkeys(str(line["case"]) for line in lines):
            found = [line for line in lines if line["case"] == case]
            marker = "o-" if len(found) > 1 else "x"
            axes.plot([line["gpus"] for line in found], [line[unit] for line in found], marker, label=case)
        axes.plot((FAULTY_GPUS, GPUS[-1]), bars, "_", markersize=24, color="black", label="what it may take")
        axes.set(xscale="log", yscale="log", xlabel="GPUs", title=TITLES[unit])
        axes.set_xticks(GPUS, [f"{gpus:,}" for gpus in GPUS], rotation=20)
        axes.set_yticks(TICKS[unit], [f"{tick:,}" for tick in TICKS[unit]])
        axes.minorticks_off()
        axes.grid(visible=True, alpha=0.3)
    figure.axes[0].legend(fontsize="small", loc="upper left")
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale")
    parser.add_argument("--gpus", type=int, nargs="+", default=GPUS, help="multiples of 8")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-all-to-all", action="store_true", help="leave out the exchange alone, and SimGrid")
    parser.add_argument("--out", type=Path, default=Path("scale"), metavar="FOLDER")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    lines = []
    print(" ".join(f"{column:>19}" for column in COLUMNS[:-1]))
    for case in cases(sorted(options.gpus)):
        line, sentences = measure(case, options.repeats)
        lines.append(line)
        print(" ".join(f"{line[column]!s:>19}" for column in COLUMNS[:-1]), flush=True)
        for sentence in sentences if case.name in FAULTS else ():
            print(f"    {sentence}")
    with (options.out / "steps.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(lines)
    print(*exponents(lines), sep="\n")
    try:
        plot(lines, options.out / "scale.svg")
    except ImportError:
        print("scale.svg left out: expected matplotlib (pip install matplotlib)", file=sys.stderr)
    if not options.no_all_to_all:
        scale_all_to_all.main(["--out", str(options.out / "all_to_all.csv")])


if __name__ == "__main__":
    main()
