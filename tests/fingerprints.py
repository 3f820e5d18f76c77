"""Fingerprints of predictions: what a change of layout must not change.

`python -m tests.fingerprints` compares every case with `data/fingerprints.json` and prints what differs; with `--write`
it writes the file anew. A case is a ready scenario in one payload and fidelity. Payload "values" is left out where
tables or gradients with values take more memory or time than a test has; "alike" is a folded cluster.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from scenarios.config.load import load
from scenarios.seam.trace import Recording, Span
from scenarios.workloads.build import build
from sim.run import simulate

LIBRARY = Path(__file__).parent.parent / "scenarios" / "library"
FILE = Path(__file__).parent / "data" / "fingerprints.json"
# Of a span; `launch_ns`, behind them, only says what a computation's time is made of.
_SPAN_CELLS = [field.name for field in fields(Span)].index("launch_ns")
# Losses go through the processor's own matrix products; all else is arithmetic of integers and IEEE doubles.
METRIC_TOLERANCE = 1e-5

_SIZES = (
    *("all_reduce_4x1_200mbit", "all_to_all_4x2", "criteo_dlrm_2x4", "criteo_dlrm_2x4_straggler", "criteo_dlrm_8x8"),
    *("criteo_small_2x2", "mlperf_dcnv2", "powersgd_16x1_10g", "powersgd_4x2_3g", "twrw_2x2"),
)
_VALUES = ("all_reduce_4x1_200mbit", "all_to_all_4x2", "criteo_small_2x2", "twrw_2x2")
_FOLDED = ("criteo_dlrm_8x8", "twrw_2048x8")


@dataclass(frozen=True, slots=True)
class Case:
    """One scenario of the library, and how it is played."""

    name: str
    payload: str
    fidelity: str
    ranks: str = "each"

    @property
    def key(self) -> str:
        """Its name in the file."""
        return f"{self.name} {self.payload} {self.fidelity}" + (" alike" if self.ranks == "alike" else "")

    def play(self) -> Recording:
        """Its prediction."""
        given = {"payload": self.payload, "fidelity": self.fidelity, "ranks": self.ranks}
        scenario = load(LIBRARY / f"{self.name}.toml", given)
        return simulate(scenario, build(scenario))


CASES = (
    *(Case(name, "sizes", fidelity) for name in _SIZES for fidelity in ("flows", "links")),
    *(Case(name, "values", fidelity) for name in _VALUES for fidelity in ("flows", "links")),
    *(Case(name, "sizes", "links", "alike") for name in _FOLDED),
)


def fingerprint(recording: Recording) -> dict[str, Any]:
    """Hashes of spans and links, to the ns and to twelve digits of bytes; of each metric how many and their mean."""
    metrics: dict[str, list[float]] = {}
    for metric in recording.metrics:
        metrics.setdefault(metric.name, []).append(metric.value)
    return {
        "spans": _hash(astuple(span)[:_SPAN_CELLS] for span in recording.spans),
        "links": _hash(map(astuple, recording.links)),
        "metrics": {name: [len(values), sum(values) / len(values)] for name, values in sorted(metrics.items())},
    }


def differences(found: dict[str, Any], kept: dict[str, Any]) -> list[str]:
    """Which parts of two fingerprints differ; metrics within `METRIC_TOLERANCE`, relative."""
    differing = [part for part in ("spans", "links") if found[part] != kept[part]]
    ours, theirs = found["metrics"], kept["metrics"]
    is_same = ours.keys() == theirs.keys() and all(
        ours[name][0] == theirs[name][0]
        and abs(ours[name][1] - theirs[name][1]) <= METRIC_TOLERANCE * abs(theirs[name][1])
        for name in ours
    )
    return differing if is_same else [*differing, "metrics"]


def _hash(rows: Iterable[Sequence[object]]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        cells = (format(cell, ".12g") if isinstance(cell, float) else str(cell) for cell in row)
        digest.update(("\t".join(cells) + "\n").encode())
    return digest.hexdigest()[:16]


def main(arguments: Sequence[str]) -> int:
    """0: all are as they were, or were written; 1: some differ."""
    found = {}
    for case in CASES:
        found[case.key] = fingerprint(case.play())
        print(case.key, file=sys.stderr, flush=True)
    if "--write" in arguments:
        FILE.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    kept = json.loads(FILE.read_text())
    differing = {key: parts for key in found if (parts := differences(found[key], kept[key]))}
    for key, parts in differing.items():
        print(f"{key}: {', '.join(parts)} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
