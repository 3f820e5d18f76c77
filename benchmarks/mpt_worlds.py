"""`python -m benchmarks.mpt_worlds [MODEL ...]`: MPT of 1 to 70 billion parameters on 8 to 512 H100, predicted.

Each model with a vocabulary of 50,368 and of 50,432 words, which few of these worlds divide, on DGX H100s with
`--ranks alike`, by `data/published_mpt.py` with the micro-batch of llm-foundry's large worlds. Rows are kept in
`data/mpt_worlds.csv` as they are predicted, in place of those that are there; `--missing` leaves those out. `--write`
writes the table of docs/accuracy/published.md, with the published MFU of `data/published_mpt_worlds.csv`.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import subprocess
import time
from collections.abc import Hashable, Mapping
from contextlib import suppress
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from benchmarks import eager_steps
from reports.run import Run

ROOT = Path(__file__).parent.parent
DATA, TABLE = ROOT / "benchmarks" / "data", ROOT / "docs" / "accuracy" / "data" / "mpt_worlds.csv"
SCRIPT, PUBLISHED, PREDICTED = (
    DATA / each for each in ("published_mpt.py", "published_mpt_worlds.csv", "mpt_worlds.csv")
)
WORLDS, VOCABULARIES = (512, 256, 128, 64, 32, 16, 8), (50368, 50432)
SEQ, _GIB, _PEAK_FLOP_S = 2048, 1 << 30, 989.4e12
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_CELL = ["model", "ranks", "vocabulary"]
# Layers, hidden, heads, micro-batch, and the further arguments of the large worlds.
MODELS = {
    "1b": (24, 2048, 16, 12, ("--grad-op",)),
    "3b": (32, 2560, 20, 8, ("--grad-op",)),
    "7b": (32, 4096, 32, 6, ()),
    "13b": (40, 5120, 40, 16, ("--checkpoint",)),
    "30b": (48, 7168, 56, 8, ("--checkpoint",)),
    "70b": (80, 8192, 64, 8, ("--checkpoint",)),
}


def flops(model: str, vocabulary: int) -> float:
    """Return the FLOPs that llm-foundry counts for a micro-batch of one GPU: without recomputation."""
    layers, hidden, _, micro_batch, _ = MODELS[model]
    parameters = 12 * hidden**2 * layers + 2 * hidden * layers + (vocabulary + SEQ + 1) * hidden
    return 3.0 * micro_batch * (2 * parameters * SEQ + 4 * layers * hidden * SEQ**2)


def play(model: str, ranks: int, vocabulary: int, folder: Path) -> Run:
    """Predict a step of a cell by the script, in `folder`.

    Raises:
        subprocess.CalledProcessError: it cannot be predicted; what was said is on stderr.
    """
    layers, hidden, heads, micro_batch, further = MODELS[model]
    given = {"layers": layers, "hidden": hidden, "heads": heads, "seq": SEQ, "micro-batch": micro_batch}
    given |= {"grad-accum": 1, "vocabulary": vocabulary}
    script = [str(SCRIPT), *(word for name, value in given.items() for word in (f"--{name}", str(value))), *further]
    on = ["--profile", "dgx_h100", "--hosts", str(ranks // 8), "--gpus-per-host", "8", "--ranks", "alike"]
    return eager_steps.play(script, [*on, "--steps", "1", "--timeout", "3600 s"], folder)


def published_ms(model: str, ranks: int) -> float:
    """Return the published time of a step."""
    (row,) = pd.read_csv(PUBLISHED).query("model == @model and ranks == @ranks").to_dict("records")
    return float(1e3 * ranks * row["micro_batch"] * SEQ / row["tokens_per_s"])


def predict(model: str, ranks: int, vocabulary: int) -> dict[str, object]:
    """Return a row: the cell, step_ms, mfu, memory_gib, what the command took, and why it is not predicted."""
    row: dict[str, object] = dict(zip(_CELL, (model, ranks, vocabulary), strict=True))
    began_s, used_s = time.monotonic(), _children_s()
    with TemporaryDirectory() as folder:
        try:
            run = play(model, ranks, vocabulary, Path(folder) / "run")
        except subprocess.CalledProcessError as error:
            said = (error.stderr or "").strip()
            is_full = "OutOfMemoryError" in said
            why = "does not fit (OutOfMemoryError)" if is_full else said.rpartition("\n")[-1]
            row |= {"step_ms": float("nan"), "why": why}
        else:
            step_ms = eager_steps.step_ms(run)
            row |= {"step_ms": step_ms, "mfu": flops(model, vocabulary) / (step_ms / 1e3) / _PEAK_FLOP_S}
            row["memory_gib"] = eager_steps.torch_bytes(run, is_reserved=True) / _GIB
    return {**row, "wall_s": time.monotonic() - began_s, "cpu_s": _children_s() - used_s}


def _children_s() -> float:
    """Return the CPU time of all processes that commands have started, in s, when the last of them is over."""
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def read_kept() -> pd.DataFrame:
    """Return the rows that have been predicted before."""
    return pd.read_csv(PREDICTED) if PREDICTED.exists() else pd.DataFrame(columns=_CELL)


def table() -> str:
    """Return what is kept as CSV: a row per world, with both vocabularies' values if they differ."""
    rows = read_kept().merge(pd.read_csv(PUBLISHED), on=["model", "ranks"], how="left", suffixes=("", "_published"))
    rows = rows.assign(size=rows["model"].map(list(MODELS).index)).sort_values(["size", "ranks", "vocabulary"])
    lines = []
    for (_, ranks), same in rows.groupby(["size", "ranks"], sort=False):
        cells = [", ".join(dict.fromkeys(column)) for column in zip(*map(_cells, same.to_dict("records")), strict=True)]
        lines.append([same["model"].iloc[0], ranks, *(cell.replace("%", " %") for cell in cells)])
    heads = ["model", "ranks", "words", "step", "MFU", "published MFU", "reserved"]
    return pd.DataFrame(lines, columns=heads).to_csv(index=False)


def _cells(row: Mapping[Hashable, Any]) -> list[str]:
    published = "" if pd.isna(row["mfu_published"]) else f"{row['mfu_published']:.1%}"
    found = [f"{row['step_ms']:,.0f} ms", f"{row['mfu']:.1%}", published, f"{row['memory_gib']:.1f} GiB"]
    return [f"{row['vocabulary']:,}", *([row["why"], "", published, ""] if pd.isna(row["step_ms"]) else found)]


def main() -> None:
    """Predict the cells one by one, and keep and print each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; default: all")
    parser.add_argument("--ranks", type=int, nargs="+", default=WORLDS)
    parser.add_argument("--vocabulary", type=int, nargs="+", default=VOCABULARIES, choices=VOCABULARIES)
    parser.add_argument("--missing", action="store_true", help="only cells that have no row yet")
    parser.add_argument("--write", action="store_true", help="write the table of what is kept only")
    options = parser.parse_args()
    if options.write:
        TABLE.write_text(table(), encoding="utf-8")
        return
    if unknown := sorted(set(options.models).difference(MODELS)):
        parser.error(f"{', '.join(unknown)}: expected some of {', '.join(MODELS)}")
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)  # processes whose parents end become children of this one, and count
    for ranks, vocabulary, model in product(options.ranks, options.vocabulary, options.models or list(MODELS)):
        cell = model, ranks, vocabulary
        before = read_kept()
        same = (before[_CELL].astype(str) == [str(each) for each in cell]).all(axis=1)
        if options.missing and same.any():
            continue
        row = predict(*cell)
        pd.concat([before[~same], pd.DataFrame([row])]).to_csv(PREDICTED, index=False, float_format="%.4g")
        print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
