"""`python -m benchmarks.eager_steps [NAME ...]`: eager training steps of an H200, predicted beside measured.

The ten scripts of `data/h200_steps.py` ran on one H200 (torch 2.11, TorchRec 1.6, one process, 30 steps, 2026-11-26);
`data/h200_steps.csv` has the median between CUDA events of a step, the sum of its kernels, and the most that torch had
allocated. Five of them are TorchRec's: they need `make .venv-benchmarks/.installed` and that environment's Python.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from reports.analysis.step_breakdown import steady_steps
from reports.run import Run
from reports.store import run_folder as store

DATA = Path(__file__).parent / "data"
SCRIPT, MEASURED = DATA / "h200_steps.py", DATA / "h200_steps.csv"
_ON = ("--profile", "hgx_h200", "--hosts", "1", "--gpus-per-host", "1", "--steps", "3")


def predicted(name: str, folder: Path) -> Run:
    """Return the predicted run of one of the scripts, whose files are in that folder.

    Raises:
        subprocess.CalledProcessError: it cannot be predicted; what was said is on stderr.
    """
    out = folder / name
    command = [sys.executable, "-m", "sim", *_ON, "--out", str(out), str(SCRIPT), name]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return store.load(out)


def step_ms(run: Run) -> float:
    """Return the median of a run's steady steps, in ms."""
    return float(steady_steps(run.steps)["step_ns"].median()) / 1e6


def compared(names: list[str]) -> pd.DataFrame:
    """Return a row for each script: name, measured_ms, predicted_ms, error (predicted / measured - 1)."""
    measured = pd.read_csv(MEASURED).set_index("name")["step_ms"]
    with TemporaryDirectory() as folder:
        rows = [(name, measured[name], step_ms(predicted(name, Path(folder)))) for name in names or measured.index]
    frame = pd.DataFrame(rows, columns=["name", "measured_ms", "predicted_ms"])
    return frame.assign(error=frame["predicted_ms"] / frame["measured_ms"] - 1)


def main() -> None:
    """Print each script's step, and the mean and the worst of the errors without their signs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="scripts; default: all ten")
    found = compared(parser.parse_args().names)
    print(found.to_string(index=False, formatters={"error": "{:+.1%}".format}, float_format="{:.2f}".format))
    print(f"mean {found['error'].abs().mean():.1%}, worst {found['error'].abs().max():.1%}")


if __name__ == "__main__":
    main()
