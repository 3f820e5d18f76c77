"""`python -m benchmarks.accuracy`: collectives on emulated hosts, measured and predicted, over many cases. As root.

    python -m benchmarks.accuracy calibrate DIR [--rates 100mbit,200mbit,500mbit,1gbit]
    python -m benchmarks.accuracy measure DIR [--rates ...] [--worlds 2x1,4x1,2x2]
    python -m benchmarks.accuracy predict DIR [--markdown]

`calibrate` writes DIR/RATE.toml, and what its probes took to DIR/RATE.json. `measure` plays every case at a rate and on
a world (hosts x ranks a host) in one launch, and keeps all times in DIR/RATE-WORLD.json. `predict` simulates the same
with RATE.toml, shows errors, and writes DIR/cases.json for `benchmarks.side_by_side`. A time is a step's: from its
first rank's start to its last rank's end. The first steps of a case are dropped on both sides.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from real.calibration.play import KEEP, read_kept
from real.emulate.cli import read_rate
from real.emulate.cluster import emulate_hosts
from real.emulate.fabric import EmulatedFabric
from real.launch.launcher import job_of, launch
from reports.analysis.statistics import Sample, errors, sample
from scenarios.config.load import load, load_profile
from scenarios.config.scenario import CollectiveCalls, Scenario, TimedCollective
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording
from scenarios.workloads.collective.program import CollectiveProgram
from sim.run import simulate
from twinstep.calibration.cli import calibrate

RATES = ("100mbit", "200mbit", "500mbit", "1gbit")
WORLDS = ("2x1", "4x1", "2x2")
SIZES = (4 << 10, 64 << 10, 256 << 10, 2 << 20, 8 << 20)
OPS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "all_to_all random")
WARM_UP = 3
DRAWS = 12
# How long the calls of one case may take, about, and how many there are at least and at most.
_CASE_S, _LEAST, _MOST = 3.0, 12, 60
_SKEW = 0.5
_SCENARIO = Path(__file__).parent.parent / "scenarios" / "library" / "all_to_all_4x2.toml"


@dataclass(frozen=True, slots=True)
class Case:
    """One call, so many times."""

    op: str
    size_bytes: int
    steps: int

    def collective(self) -> TimedCollective:
        """As a scenario says it."""
        op, *splits = self.op.split()
        skew = _SKEW if splits else 0.0
        return TimedCollective(op=op, size_bytes=self.size_bytes, splits="random" if splits else "even", skew=skew)  # type: ignore[arg-type]


def cases(bytes_per_s: float) -> list[Case]:
    """All of them, each as often as there is time for."""
    made = []
    for op in OPS:
        for size_bytes in SIZES:
            once_s = 2 * size_bytes / bytes_per_s + 0.004
            made.append(Case(op, size_bytes, WARM_UP + min(max(int(_CASE_S / once_s), _LEAST), _MOST)))
    return made


class Cases(Program):
    """All cases after one another. Their steps have the same numbers: what belongs together follows from the order."""

    def __init__(self, scenario: Scenario, most: int | None = None) -> None:
        self._programs = [
            CollectiveProgram(
                dataclasses.replace(
                    scenario.with_run(steps=steps(case, most)), workload=CollectiveCalls(collective=case.collective())
                )
            )
            for case in cases(scenario.cluster.host.nics.link.bytes_per_s)
        ]

    async def __call__(self, rank: Rank) -> None:
        for program in self._programs:
            await program(rank)


def steps(case: Case, most: int | None) -> int:
    """Of a case, no more than these beside the warm-up; but all of one whose steps differ."""
    return case.steps if most is None or case.collective().splits == "random" else min(case.steps, WARM_UP + most)


def build(scenario: Scenario) -> Cases:
    """For `Job.program`."""
    return Cases(scenario)


def times_s(recording: Recording, counts: Sequence[int]) -> list[list[float]]:
    """Of each case, without its first steps."""
    by_rank: dict[int, list[tuple[int, int]]] = {}
    for span in sorted(recording.spans, key=lambda span: (span.rank, span.sequence)):
        if span.kind == "step":
            by_rank.setdefault(span.rank, []).append((span.start_ns, span.end_ns))
    whole = [
        (max(end for _, end in ranks) - min(start for start, _ in ranks)) / 1e9
        for ranks in zip(*by_rank.values(), strict=True)
    ]
    taken = iter(whole)
    return [[next(taken) for _ in range(count)][WARM_UP:] for count in counts]


def scenario_of(profile: Path | None, rate: str, world: str) -> Scenario:
    """One collective on a world (hosts x ranks a host) at a rate; None: the profile of a ready scenario."""
    hosts, ranks = map(int, world.split("x"))
    scenario = load(_SCENARIO, {})
    cluster = scenario.cluster if profile is None else load_profile(str(profile))
    host = dataclasses.replace(
        cluster.host,
        gpus=ranks,
        nics=dataclasses.replace(
            cluster.host.nics, link=dataclasses.replace(cluster.host.nics.link, bytes_per_s=read_rate("rate", rate))
        ),
    )
    return dataclasses.replace(
        scenario.with_run(timeout_s=120.0),
        program="collective",
        cluster=dataclasses.replace(cluster, hosts=hosts, host=host),
    )


def _calibrate(folder: Path, rates: Sequence[str]) -> None:
    for rate in rates:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            code = calibrate(["--out", str(folder / f"{rate}.toml"), "--nic", rate, "--json"], simulate)
        if code:
            raise SystemExit(code)
        (folder / f"{rate}.json").write_text(said.getvalue())


def _measure(folder: Path, rates: Sequence[str], worlds: Sequence[str]) -> None:
    for rate, world in _each(rates, worlds):
        scenario = scenario_of(None, rate, world)
        hosts = scenario.cluster.hosts
        with (
            tempfile.TemporaryDirectory() as own,
            emulate_hosts(EmulatedFabric(hosts=hosts, nic_bytes_per_s=read_rate("rate", rate))) as on,
        ):
            out = Path(own, "run")
            launch(job_of(scenario, out, program="benchmarks.accuracy:build", writer=KEEP, check="never"), hosts=on)
            recording = read_kept(out)
        counts = [case.steps for case in cases(scenario.cluster.host.nics.link.bytes_per_s)]
        (folder / f"{rate}-{world}.json").write_text(json.dumps(times_s(recording, counts)))
        print(f"{rate} {world}: measured", flush=True)


def _predict_one(folder: Path, rate: str, world: str) -> list[list[float]]:
    """Times of all draws, by case."""
    scenario = scenario_of(folder / f"{rate}.toml", rate, world).with_run(payload="sizes")
    found: list[list[float]] = []
    program = Cases(scenario, most=5)
    counts = [steps(case, 5) for case in cases(scenario.cluster.host.nics.link.bytes_per_s)]
    for draw in range(1, DRAWS + 1):
        drawn = times_s(simulate(scenario, program, draw), counts)
        found = drawn if not found else [before + more for before, more in zip(found, drawn, strict=True)]
    return found


def _predict(folder: Path, rates: Sequence[str], worlds: Sequence[str], *, markdown: bool) -> None:
    places = [(rate, world) for rate, world in _each(rates, worlds) if (folder / f"{rate}-{world}.json").exists()]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        predicted = list(pool.map(_predict_one, [folder] * len(places), *zip(*places, strict=True)))
    rows = []
    for (rate, world), times in zip(places, predicted, strict=True):
        measured = json.loads((folder / f"{rate}-{world}.json").read_text())
        for case, ours, theirs in zip(cases(read_rate("rate", rate)), times, measured, strict=True):
            rows.append(Row(rate, world, case, sample(ours), sample(theirs)))
    _show(rows, markdown=markdown)
    (folder / "cases.json").write_text(json.dumps(_side_by_side(folder, rows), indent=1))


@dataclass(frozen=True, slots=True)
class Row:
    """One case at one place."""

    rate: str
    world: str
    case: Case
    ours: Sample
    measured: Sample

    @property
    def error(self) -> float:
        """Signed, relative to what was measured."""
        return self.ours.median / self.measured.median - 1

    @property
    def is_inside(self) -> bool:
        """Whether the measured median lies in the predicted 80 %."""
        return self.ours.low <= self.measured.median <= self.ours.high

    @property
    def is_steady(self) -> bool:
        """Whether an error says much: 64 KiB and more, and repeats that spread no more than 15 %."""
        return self.case.size_bytes >= 64 << 10 and self.measured.spread <= 0.15


def _show(rows: Sequence[Row], *, markdown: bool) -> None:
    console = Console(width=110)
    whole = Table("rate", "world", "op", "size", "predicted", "80 %", "measured", "80 %", "error", "")
    for row in rows:
        marks = ("inside" if row.is_inside else "outside") if not row.is_steady else ""
        whole.add_row(
            row.rate,
            row.world,
            row.case.op,
            f"{row.case.size_bytes >> 10} KiB",
            *(
                cell
                for one in (row.ours, row.measured)
                for cell in (_ms(one.median), f"{_ms(one.low)}-{_ms(one.high)}")
            ),
            f"{100 * row.error:+.1f} %",
            marks,
        )
    if markdown:
        _print_matrix(rows)
    else:
        console.print(whole)
    groups: dict[str, list[Row]] = {"all": [row for row in rows if row.case.size_bytes >= 64 << 10]}
    groups["steady"] = [row for row in rows if row.is_steady]
    for name in ("rate", "world"):
        for value in dict.fromkeys(getattr(row, name) for row in rows):
            groups[f"steady, {value}"] = [row for row in groups["steady"] if getattr(row, name) == value]
    for op in OPS:
        groups[f"steady, {op}"] = [row for row in groups["steady"] if row.case.op == op]
    print("\n| cases | number | signed median | median size | 95th percentile | worst |\n|---|---|---|---|---|---|")
    for name, some in groups.items():
        if some:
            off = errors([row.error for row in some])
            print(
                f"| {name} | {len(some)} | {100 * off.signed_median:+.1f} % | {100 * off.median:.1f} % |"
                f" {100 * off.p95:.1f} % | {100 * off.worst:+.1f} % |"
            )
    loose = [row for row in rows if not row.is_steady]
    inside = sum(row.is_inside for row in loose)
    narrow = sum(row.ours.high - row.ours.low <= 2 * (row.measured.high - row.measured.low) for row in loose)
    print(
        f"\nBelow 64 KiB or with repeats that spread more: {len(loose)} cases, {inside} measured medians inside the"
        f" predicted 80 %, {narrow} intervals at most twice as wide as the measured one."
    )


def _print_matrix(rows: Sequence[Row]) -> None:
    """Signed errors by operation and size (down), world and rate (across).

    Where repeats spread, it is in parentheses, and ! says that the measured median is outside the predicted 80 %.
    """
    places = list(dict.fromkeys((row.world, row.rate) for row in rows))
    print("| operation | size | " + " | ".join(f"{world} {rate}" for world, rate in places) + " |")
    print("|---|---|" + "---|" * len(places))
    for op, size_bytes in dict.fromkeys((row.case.op, row.case.size_bytes) for row in rows):
        by_place = {
            (row.world, row.rate): row for row in rows if (row.case.op, row.case.size_bytes) == (op, size_bytes)
        }
        cells = []
        for place in places:
            row = by_place[place]
            error = f"{100 * row.error:+.1f}"
            cells.append(error if row.is_steady else f"({error}){'' if row.is_inside else ' !'}")
        print(f"| {op} | {size_bytes >> 10} KiB | " + " | ".join(cells) + " |")


def _side_by_side(folder: Path, rows: Sequence[Row]) -> dict[str, Any]:
    rates = list(dict.fromkeys(row.rate for row in rows))
    made = []
    for row in rows:
        if row.case.size_bytes < 64 << 10:
            continue
        collective = row.case.collective()
        hosts, ranks = map(int, row.world.split("x"))
        case: dict[str, Any] = {
            "op": collective.op,
            "size_bytes": collective.size_bytes,
            "hosts": hosts,
            "ranks_per_host": ranks,
            "nic_bytes_per_s": read_rate("rate", row.rate),
            "measured_s": row.measured.median,
            "ours_s": row.ours.median,
        }
        if collective.splits == "random":
            seed = scenario_of(None, row.rate, row.world).run.seed
            drawn = list(range(WARM_UP, row.case.steps))
            case |= {"splits": "random", "skew": _SKEW, "seed": seed, "steps": drawn}
        made.append(case)
    return {
        "cases": made,
        "messages": {f"{read_rate('rate', rate):g}": _messages(folder / f"{rate}.json") for rate in rates},
        "profiles": {f"{read_rate('rate', rate):g}": f"{rate}.toml" for rate in rates},
    }


def _messages(path: Path) -> list[tuple[int, float]]:
    """One way: half a ping, and of longer messages what is left without the word that answers."""
    probes = json.loads(path.read_text())["probes"]
    (word_s,) = [probe["measured_s"] / 2 for probe in probes if probe["probe"] == "ping"]
    longer = [(probe["size_bytes"], probe["measured_s"] - word_s) for probe in probes if probe["probe"] == "message"]
    return [(4, word_s), *longer]


def _each(rates: Sequence[str], worlds: Sequence[str]) -> Iterator[tuple[str, str]]:
    return ((rate, world) for rate in rates for world in worlds)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy")
    parser.add_argument("what", choices=("calibrate", "measure", "predict"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rates", default=",".join(RATES))
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rates, worlds = options.rates.split(","), options.worlds.split(",")
    match options.what:
        case "calibrate":
            _calibrate(options.folder, rates)
        case "measure":
            _measure(options.folder, rates, worlds)
        case _:
            _predict(options.folder, rates, worlds, markdown=options.markdown)


if __name__ == "__main__":
    main()
