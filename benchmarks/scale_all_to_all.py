"""`python -m benchmarks.scale_all_to_all`: one uneven all-to-all, every pair a flow, ours and SimGrid's.

    python -m benchmarks.scale_all_to_all --out scale.csv
    python -m benchmarks.scale_all_to_all --ranks 64 128 --simgrid-up-to 64

All ranks enter at once on idle DGX H100s (profiles/dgx_h100.toml), 8 to a host. Ours is the whole of `simulate`:
splits, calls, NCCL's plan, routes, sharing, spans, in a process of its own; that this loads torch, numba and what numba
has compiled is not counted as time, but as memory. SimGrid (Debian's libsimgrid-dev, 3.32) gets the same flows on the
same links, as a program in C++ (benchmarks/baselines/simgrid_exchange.cpp) that g++ compiles first; its time is the
whole process. Its model is that of fair shares alone: CM02 with factors of 1, no latency, no TCP window, no
cross-traffic. So what NCCL's start takes is subtracted from our time before the two are compared: `difference` is that
of when the last rank is through, `moved` the mean over ranks of how far apart their ends are, as shares of the whole.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.baselines.cases import calls
from benchmarks.report import ROOT, run_process, run_python
from scenarios.config.load import load, load_profile
from scenarios.config.scenario import CollectiveCalls, Exchange, Scenario
from scenarios.workloads.build import build
from scenarios.workloads.collective.splits import Splits
from sim.engine.fabric import Fabric
from sim.nccl import plan as nccl
from sim.nccl.costs import costs_of
from sim.run import simulate

SOURCE = ROOT / "benchmarks" / "baselines" / "simgrid_exchange.cpp"
LIKE = ROOT / "scenarios" / "library" / "all_to_all_4x2.toml"
WARM_UP = 32  # ranks; their flows stand in arrays
RANKS = (16, 32, 64, 128, 512, 1024)
SIMGRID_UP_TO = 128
PROFILE, GPUS, SEED = "dgx_h100", 8, 11
EXCHANGE = Exchange(size_bytes=64 << 20, splits="random", skew=0.0)
OPTIONS = (
    "--log=root.thresh:error",
    *(
        f"--cfg=network/{option}"
        for option in (
            "model:CM02",
            "latency-factor:1",
            "bandwidth-factor:1",
            "weight-S:0",
            "TCP-gamma:0",
            "crosstraffic:no",
        )
    ),
)


class AbsentError(Exception):
    """SimGrid's headers, or a compiler, are not installed."""


@dataclass(frozen=True, slots=True)
class Played:
    """What one simulator took, and when each rank was through, in s after the flows began."""

    time_s: float
    memory_mib: float
    ends_s: list[float]


def scenario(ranks: int) -> Scenario:
    """One step of the exchange between so many ranks."""
    like = load(LIKE, {"payload": "sizes", "fidelity": "flows", "steps": 1, "seed": SEED})
    cluster = dataclasses.replace(load_profile(PROFILE), hosts=ranks // GPUS)
    return dataclasses.replace(
        like.with_run(library="nccl"), cluster=cluster, workload=CollectiveCalls(exchange=EXCHANGE)
    )


def phase(made: Scenario) -> nccl.Phase:
    """What NCCL makes of it: the flows, and what comes before them."""
    ranks = made.cluster.world_size
    splits = Splits(EXCHANGE, ranks, SEED)
    size = splits.dtype.itemsize
    matrix = [[size * count for count in splits.of_rank(0, rank)[0]] for rank in range(ranks)]
    fabric, costs = Fabric(made.cluster), costs_of(made.cluster)
    hosts, gpus = ([of(rank) for rank in range(ranks)] for of in (fabric.host, fabric.gpu))
    plan = nccl.plan(calls("all_to_all", EXCHANGE.size_bytes, ranks, matrix), hosts, costs, gpus)
    return plan.phases[0]


def ours(ranks: int) -> Played:
    """In a process of its own, for its memory."""
    taken = run_python("-m", "benchmarks.scale_all_to_all", "--one", str(ranks))
    found = json.loads(taken.output)
    return Played(found["time_s"], taken.mib, found["ends_s"])


def one(ranks: int) -> None:
    """What such a process does."""
    small = scenario(WARM_UP)
    simulate(small, build(small))
    made = scenario(ranks)
    program = build(made)
    began = time.perf_counter()
    recording = simulate(made, program)
    time_s = time.perf_counter() - began
    spans = sorted((span for span in recording.spans if span.label == "exchange"), key=lambda span: span.rank)
    flows_ns = max(span.start_ns for span in spans) + phase(made).latency_ns if ranks <= SIMGRID_UP_TO else 0
    json.dump({"time_s": time_s, "ends_s": [(span.end_ns - flows_ns) / 1e9 for span in spans]}, sys.stdout)


def compile_program(folder: Path) -> Path:
    """SimGrid's program.

    Raises:
        AbsentError: it cannot be compiled.
    """
    program = folder / "simgrid_exchange"
    try:
        subprocess.run(
            ["g++", "-O2", "-std=c++17", str(SOURCE), "-o", str(program), "-lsimgrid"],
            check=True,
            capture_output=True,
            text=True,
        )
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise AbsentError(
            "SimGrid left out: expected g++ and SimGrid's headers (Debian: g++, libsimgrid-dev)"
        ) from error
    return program


def simgrid(program: Path, ranks: int) -> Played:
    """The same flows on the same links."""
    made = scenario(ranks)
    played, fabric = phase(made), Fabric(made.cluster)
    numbers: dict[str, int] = {}
    rates: list[float] = []
    lines = []
    for source, target, size_bytes in played.transfers:
        links = fabric.path(source, target, played.relays.get((source, target))).links
        for link in links:
            if link.name not in numbers:
                numbers[link.name] = len(rates)
                rates.append(link.per_s)
        crossed = [numbers[link.name] for link in links]
        lines.append(f"{source} {target} {size_bytes!r} {len(crossed)} {' '.join(map(str, crossed))}")
    given = "\n".join([f"{ranks} {len(rates)} {len(lines)}", *map(repr, rates), *lines])
    taken = run_process(str(program), *OPTIONS, given=given)
    ends_s = [0.0] * ranks
    for (source, target, _), end_s in zip(played.transfers, map(float, taken.output.split()), strict=True):
        for rank in (source, target):
            ends_s[rank] = max(ends_s[rank], end_s)
    return Played(taken.seconds, taken.mib, ends_s)


def row(ranks: int, mine: Played, theirs: Played | None) -> dict[str, object]:
    """A line of the table; times in s, what is compared in shares."""
    found: dict[str, object] = {
        "ranks": ranks,
        "flows": ranks * (ranks - 1),
        "ours_s": round(mine.time_s, 3),
        "ours_mib": round(mine.memory_mib),
    }
    if theirs is None:
        return found
    whole_s = max(theirs.ends_s)
    moved = [abs(one - other) / whole_s for one, other in zip(mine.ends_s, theirs.ends_s, strict=True)]
    return found | {
        "simgrid_s": round(theirs.time_s, 3),
        "simgrid_mib": round(theirs.memory_mib),
        "faster": round(theirs.time_s / mine.time_s, 1),
        "difference": f"{max(mine.ends_s) / whole_s - 1:.2e}",
        "moved": f"{sum(moved) / len(moved):.2e}",
    }


COLUMNS = ("ranks", "flows", "ours_s", "ours_mib", "simgrid_s", "simgrid_mib", "faster", "difference", "moved")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale_all_to_all")
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS, help="multiples of 8")
    parser.add_argument("--simgrid-up-to", type=int, default=SIMGRID_UP_TO, metavar="RANKS")
    parser.add_argument("--out", type=Path, metavar="FILE.csv")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        one(options.one)
        return
    print(" ".join(f"{column:>13}" for column in COLUMNS))
    with tempfile.TemporaryDirectory() as folder:
        program: Path | None = None
        try:
            program = compile_program(Path(folder))
        except AbsentError as error:
            print(error, file=sys.stderr)
        rows = []
        for ranks in options.ranks:
            with_simgrid = program is not None and ranks <= options.simgrid_up_to
            theirs = simgrid(program, ranks) if program is not None and with_simgrid else None
            rows.append(row(ranks, ours(ranks), theirs))
            print(" ".join(f"{rows[-1].get(column, ''):>13}" for column in COLUMNS), flush=True)
    if options.out:
        with options.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
