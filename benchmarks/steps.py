"""`python -m benchmarks.steps`: whole steps on emulated hosts: the scenarios, and a validation's tables of them.

    python -m benchmarks.steps write DIR [--rates 100mbit,200mbit,500mbit,1gbit]
    python -m real validate DIR/step-*.toml --emulate --steps 30 --rounds 2 --draws 4 --out DIR/validated
    python -m benchmarks.steps show DIR/validated [DIR/validated...]

`write` wants the profiles DIR/RATE.toml, which `benchmarks.accuracy calibrate DIR` writes. The steps are PowerSGD on
gradients of 7.3 MB, compressed in four ways or not, and DLRM with eight tables, sharded in two. `show` prints the
errors, and which choice is the quicker: as predicted, and as measured.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.accuracy import RATES
from reports.analysis.statistics import errors

# What is said to differ, and what is said to be decided: the ratio of the times is at least this far from 1.
_DECISIVE = 0.1

_SCENARIO = """description = "{name}, for python -m benchmarks.steps"

program = "{program}"

[run]
steps = 30
{batch}library = "gloo"
payload = "values"
fidelity = "flows"
timeout = "60 s"

[cluster]
profile = "{rate}.toml"
hosts = {hosts}
gpus_per_host = {ranks}
"""
_POWERSGD = """
[gradients]
shapes = [[1024, 1024], [1024], [1024, 512], [512], [512, 512], [512, 128]]
backward_flops = "1 GFLOP"
"""
_COMPRESSION = """
[compression]
kind = "{kind}"
matrix_approximation_rank = {rank}
start_powerSGD_iter = 2
"""
_DLRM = """
[model]
dense_features = 13
bottom = [128, 64]
top = [128, 64, 1]
interaction = {{kind = "dot"}}
embedding_dim = 64

[sharding]
types = ["{sharding}"]
"""
_TABLE = """
[[model.tables]]
name = "t{index}"
rows = 20000
ids_per_sample = 4
ids = "uniform"
"""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is chosen: a compression or a sharding, and the world's shape."""

    program: str
    what: str
    rate: str
    world: str

    @property
    def name(self) -> str:
        """Of the scenario's file."""
        return f"step-{self.program}-{self.what}-{self.rate}-{self.world}"

    def text(self) -> str:
        """The scenario."""
        hosts, ranks = self.world.split("x")
        batch = "batch_size = 128\n" if self.program == "dlrm" else ""
        head = _SCENARIO.format(
            name=self.name, program=self.program, batch=batch, rate=self.rate, hosts=hosts, ranks=ranks
        )
        if self.program == "dlrm":
            return head + _DLRM.format(sharding=self.what) + "".join(_TABLE.format(index=index) for index in range(8))
        kind, _, rank = self.what.partition("-")
        return head + _POWERSGD + (_COMPRESSION.format(kind=kind, rank=rank) if rank else "")


SHARDINGS = ("table_row_wise", "row_wise")
COMPRESSIONS = ("none", "batched_powersgd-1", "batched_powersgd-2", "batched_powersgd-4", "layerwise_powersgd-2")
# hosts x ranks a host; on two cores, two ranks have one each.
WORLDS = {"100mbit": ("2x1",), "200mbit": ("2x2", "4x1"), "500mbit": ("2x2", "4x1"), "1gbit": ("2x1", "2x2")}


def choices(rates: Sequence[str]) -> Iterator[Choice]:
    """All of them."""
    for rate in rates:
        for world in WORLDS[rate]:
            for sharding in SHARDINGS:
                yield Choice("dlrm", sharding, rate, world)
            for compression in COMPRESSIONS:
                yield Choice("powersgd", compression, rate, world)


def pairs(names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Those that differ in one thing: in what is chosen, or in the world at the same rate."""
    known = [choice for choice in choices(RATES) if choice.name in names]
    for one, other in itertools.combinations(known, 2):
        is_alike = (one.program, one.rate) == (other.program, other.rate)
        if is_alike and (one.what == other.what or one.world == other.world):
            yield one.name, other.name


@dataclass(frozen=True, slots=True)
class Times:
    """Of one step, medians."""

    predicted_s: float
    measured_s: float

    @property
    def error(self) -> float:
        """Signed, relative to what was measured."""
        return self.predicted_s / self.measured_s - 1


def show(folders: Sequence[Path]) -> None:
    """Tables in Markdown."""
    found: dict[str, Times] = {}
    for folder in folders:
        for row in json.loads((folder / "validation.json").read_text())["scenarios"]:
            found[row["name"]] = Times(row["predicted"]["median_ns"] / 1e9, row["measured"]["median_ns"] / 1e9)
    names = sorted(found)
    print("| step | predicted | measured | error |\n|---|---|---|---|")
    for name in names:
        row = found[name]
        print(
            f"| {_short(name)} | {1e3 * row.predicted_s:.1f} ms | {1e3 * row.measured_s:.1f} ms"
            f" | {100 * row.error:+.1f} % |"
        )
    groups = {"all": names, "two ranks": [name for name in names if name.endswith("2x1")]}
    groups["four ranks on two cores"] = [name for name in names if not name.endswith("2x1")]
    for program in ("powersgd", "dlrm"):
        groups[program] = [name for name in names if program in name]
    print("\n| steps | number | signed median | median size | worst |\n|---|---|---|---|---|")
    for title, some in groups.items():
        if some:
            off = errors([found[name].error for name in some])
            print(
                f"| {title} | {len(some)} | {100 * off.signed_median:+.1f} % | {100 * off.median:.1f} %"
                f" | {100 * off.worst:+.1f} % |"
            )
    show_decisions(found)


def show_decisions(found: Mapping[str, Times]) -> None:
    """Of each pair, which is the quicker."""
    decisive = right = 0
    rows = []
    for one, other in pairs(found):
        predicted = found[one].predicted_s / found[other].predicted_s
        measured = found[one].measured_s / found[other].measured_s
        is_decisive, is_right = abs(measured - 1) > _DECISIVE, (predicted < 1) == (measured < 1)
        decisive += is_decisive
        right += is_decisive and is_right
        verdict = ("right" if is_right else "wrong") if is_decisive else "within 10 %"
        rows.append(f"| {_short(one)} | {_short(other)} | {predicted:.2f} | {measured:.2f} | {verdict} |")
    said = f"{decisive} differ by more than 10 % as measured, of which {right} are predicted right"
    print(f"\nOf {len(rows)} pairs, {said}.\n")
    print("| one | other | predicted ratio | measured ratio | |\n|---|---|---|---|---|", *rows, sep="\n")


def _short(name: str) -> str:
    return name.removeprefix("step-")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steps")
    parser.add_argument("what", choices=("write", "show"))
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--rates", default=",".join(RATES))
    options = parser.parse_args()
    if options.what == "show":
        show(options.folders)
        return
    for choice in choices(options.rates.split(",")):
        (options.folders[0] / f"{choice.name}.toml").write_text(choice.text())


if __name__ == "__main__":
    main()
