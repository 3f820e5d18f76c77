"""`python -m benchmarks.published_scripts [ID ...]`: training steps that others published, predicted by scripts.

73 whole steps of `data/published_steps.csv` (MPT by FSDP on 8 A100, Llama 3 by FSDP2 on 8 H100, ResNet-50 and
BERT-large on A100 and V100), each by the script of its family beside it, on the profile of its GPU. MPT's attention is
FlashAttention 1, as in June 2023. Of steps that accumulate gradients over more than two micro-batches, those of one and
of two say what a further one takes.
All take one to two hours; `--every N` takes each N-th row of a family.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from benchmarks import eager_steps
from reports.run import Run

DATA = Path(__file__).parent / "data"
MEASURED = DATA / "published_steps.csv"
_SCRIPTS = {
    "MPT": "published_mpt.py",
    "Llama 3": "published_llama.py",
    "ResNet-50": "published_resnet.py",
    "BERT": "published_bert.py",
}
# What a family's measurements differ in from the profile of their GPU: FlashAttention's version; torchtitan's H100.
_SETTINGS = {
    "MPT": ["gpu.flash_attention=1"],
    "Llama 3": ["gpu.memory=95GiB", "gpu.memory_rate=2.4TB/s", "gpu.watts=500"],
}
# Micro-batches of the steps that are played.
_MOST_PLAYED = 2


def predict(row: pd.Series, folder: Path) -> tuple[float, Run]:
    """Return the predicted step of a row, in ms, and the run of its most micro-batches.

    Raises:
        subprocess.CalledProcessError: it cannot be predicted; what was said is on stderr.
    """
    micro_batches = int(row["grad_accum"])
    played = [micro_batches] if micro_batches <= _MOST_PLAYED else [1, _MOST_PLAYED]
    on = ["--profile", row["profile"], "--hosts", str(row["hosts"]), "--gpus-per-host", str(row["gpus_per_host"])]
    on += ["--steps", "1" if row["family"] == "MPT" else "2", "--timeout", "600 s"]
    for setting in _SETTINGS.get(row["family"], []):
        on += ["--set", f"cluster.{setting}"]
    if row["hosts"] * row["gpus_per_host"] > 1:
        on += ["--ranks", "alike"]
    script = str(DATA / _SCRIPTS[row["family"]])
    runs = [
        eager_steps.play([script, *_arguments(row, count)], on, folder / f"{row['id']}-{count}") for count in played
    ]
    first_ms, last_ms = (eager_steps.step_ms(run) for run in (runs[0], runs[-1]))
    return first_ms + (micro_batches - played[0]) * (last_ms - first_ms), runs[-1]


def _arguments(row: pd.Series, micro_batches: int) -> list[str]:
    batch = str(row["micro_batch"])
    if row["family"] == "ResNet-50":
        return ["--batch", batch, "--precision", row["precision"]]
    if row["family"] == "Llama 3":
        return ["--early", "--batch", batch, *(["--compile"] if "compiled" in row["precision"] else [])]
    given = ["--micro-batch", batch, "--grad-accum", str(micro_batches)]
    if row["family"] == "BERT":
        return [*given, "--precision", row["precision"]]
    sizes = [word for name in ("layers", "hidden", "heads", "seq") for word in (f"--{name}", str(int(row[name])))]
    return [*given, *sizes, *(["--checkpoint"] if row["is_checkpointed"] else [])]


def choose(ids: list[str], every: int) -> pd.DataFrame:
    """Return the rows with these ids, or each `every`-th of each family."""
    rows = pd.read_csv(MEASURED)
    if ids:
        return rows[rows["id"].isin(ids)]
    return rows[rows.groupby("family").cumcount() % every == 0]


def compare(rows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield for each row its id, family, what it is, measured_ms, predicted_ms (nan: not predicted) and error."""
    with TemporaryDirectory() as folder:
        for _, row in rows.iterrows():
            try:
                found, _ = predict(row, Path(folder))
            except subprocess.CalledProcessError:
                found = float("nan")
            words = (row["model"], row["gpus_per_host"], row["gpu"], row["precision"])
            yield {
                "id": row["id"],
                "family": row["family"],
                "what": ", ".join(map(str, words)),
                "measured_ms": row["step_ms"],
                "predicted_ms": found,
                "error": found / row["step_ms"] - 1,
            }


def main() -> None:
    """Print each row as it is predicted, and the mean of the errors' sizes by family."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("ids", nargs="*", metavar="ID", help="rows; default: all")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th row of a family")
    options = parser.parse_args()
    rows = choose(options.ids, options.every)
    if unknown := sorted(set(options.ids).difference(rows["id"])):
        parser.error(f"{', '.join(unknown)}: expected ids of {MEASURED.name}")
    found: list[dict[str, Any]] = []
    for row in compare(rows):
        found.append(row)
        print(
            "{id:12} {what:50} {measured_ms:10.1f} ms, predicted {predicted_ms:10.1f}, {error:+.1%}".format(**row),
            flush=True,
        )
    frame = pd.DataFrame(found)
    sizes = frame.assign(error=frame["error"].abs()).groupby("family")["error"]
    print(sizes.agg(["size", "count", "mean", "max"]).to_string(float_format="{:.1%}".format))
    print(f"all: {frame['error'].abs().mean():.1%}; size: rows, count: those predicted")


if __name__ == "__main__":
    main()
