"""`python -m benchmarks.eager_steps [NAME ...]`: eager training steps of an H200, predicted beside measured.

Ten scripts of `data/h200_steps.py` ran on one H200 (torch 2.11, TorchRec 1.6, one process, 30 steps, 2026-11-26);
`data/h200_steps.csv` has the median between CUDA events of a step, the sum of its kernels, and the most that torch had
allocated (`torch.cuda.max_memory_allocated`). Memory alone was measured of GPT-2 under torch.compile and with
activation checkpoints, and again of gpt2_fsdp2, on an H200 on 2026-11-27. Five scripts are TorchRec's: they need
`make .venv-benchmarks/.installed` and that environment's Python. With `--traces FOLDER` each script that has a trace
there, NAME.json.gz, is predicted with its kernels.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from reports.analysis.step_breakdown import steady_steps, timed_steps
from reports.run import Run
from reports.store import run_folder as store
from scenarios.seam.trace import CACHED

DATA = Path(__file__).parent / "data"
SCRIPT, MEASURED = DATA / "h200_steps.py", DATA / "h200_steps.csv"
_MIB = 1 << 20
_COLUMNS = (
    *("measured_ms", "predicted_ms", "error", "measured_kernels_ms", "predicted_kernels_ms", "kernels_error"),
    *("measured_mib", "predicted_mib", "memory_error"),
)
# TorchRec keeps what it has computed of a batch: steps over the four batches settle after the third.
_ON = ("--profile", "hgx_h200", "--hosts", "1", "--gpus-per-host", "1", "--steps", "8")


def predict(name: str, folder: Path, trace: Path | None = None) -> Run:
    """Return the predicted run of one of the scripts, whose files are in that folder; errors as `play`.

    `trace`: a profiler's trace of it, whose kernels it is predicted with.
    """
    kernels = () if trace is None else ("--kernels", str(trace))
    return play([str(SCRIPT), name], (*_ON, *kernels), folder / name)


def play(script: Sequence[str], on: Sequence[str], out: Path, *, inside: Path | None = None) -> Run:
    """Return the predicted run of a script with its arguments; `on` are options of `python -m sim`.

    The script runs in the folder `inside`, by default this process's.

    Raises:
        subprocess.CalledProcessError: it cannot be predicted; what was said is on stderr.
    """
    command = [sys.executable, "-m", "sim", *on, "--out", str(out), *script]
    ended = subprocess.run(
        command, check=False, cwd=inside, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    sys.stderr.write(ended.stderr)
    ended.check_returncode()
    return store.load(out)


def torch_bytes(run: Run, *, is_reserved: bool = False) -> float:
    """Return the most that torch has allocated on a GPU, or reserved: without NCCL's buffers."""
    memory = run.memory[run.memory["part"] != "communication buffers"]
    rows = memory if is_reserved else memory[memory["phases"] != CACHED]
    return float(rows.groupby("rank")["size_bytes"].sum().max()) if len(rows) else 0.0


def step_ms(run: Run) -> float:
    """Return the step time of a run, in ms."""
    return float(timed_steps(run)["step_ns"].median()) / 1e6


def recorded_step_ms(run: Run) -> float:
    """Return what a step of a run takes while every call is recorded, in ms."""
    return float(steady_steps(run.steps)["step_ns"].median()) / 1e6


def compare(names: list[str], traces: Path | None = None) -> pd.DataFrame:
    """Return a row for each script: its name, steps and peak memory, each measured and predicted with its error.

    An error is predicted / measured - 1, nan where nothing was measured. With a folder of `traces`, only the scripts
    that have one there are predicted, with its kernels.
    """
    measured = pd.read_csv(MEASURED).set_index("name")
    files = {name: None if traces is None else traces / f"{name}.json.gz" for name in names or measured.index}
    with TemporaryDirectory() as folder:
        there = {name: file for name, file in files.items() if file is None or file.exists()}
        runs = ((name, predict(name, Path(folder), file)) for name, file in there.items())
        rows = [(name, step_ms(run), torch_bytes(run) / _MIB, _kernels_ms(run)) for name, run in runs]
    columns = ["name", "predicted_ms", "predicted_mib", "predicted_kernels_ms"]
    frame = pd.DataFrame(rows, columns=columns).set_index("name")
    frame["measured_ms"], frame["measured_mib"] = measured["step_ms"], measured["peak_bytes"] / _MIB
    frame["measured_kernels_ms"] = measured["kernels_ms"]
    for unit, error in (("ms", "error"), ("kernels_ms", "kernels_error"), ("mib", "memory_error")):
        frame[error] = frame[f"predicted_{unit}"] / frame[f"measured_{unit}"] - 1
    return frame[list(_COLUMNS)].reset_index()


def _kernels_ms(run: Run) -> float:
    """Return the sum of a step's kernels, in ms."""
    return float((run.kernels["predicted_us"] * run.kernels["count"]).sum()) / 1e3


def main() -> None:
    """Print each script's step and memory, and the mean and the worst of the errors without their signs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="scripts; default: all")
    parser.add_argument("--traces", type=Path, metavar="FOLDER", help="of NAME.json.gz, with whose kernels to predict")
    options = parser.parse_args()
    found = compare(options.names, options.traces)
    shown = dict.fromkeys(["error", "kernels_error", "memory_error"], "{:+.1%}".format)
    print(found.to_string(index=False, formatters=shown, float_format="{:.2f}".format))
    for what, column in (("steps", "error"), ("kernels", "kernels_error"), ("memory", "memory_error")):
        errors = found[column].abs()
        print(f"{what}: mean {errors.mean():.1%}, worst {errors.max():.1%}")


if __name__ == "__main__":
    main()
