"""`python -m benchmarks.published_memory [ID ...]`: peak memory a GPU that others published, predicted by scripts.

Rows of `data/published_memory.csv` are Llama 3 as torchtitan trained it, whose logs have the most memory that torch's
allocator had reserved: tensors, cuBLAS's workspaces, and blocks that are free. What is predicted is kept in
`data/predicted_memory.csv`, and `--page` writes all of it as the table of docs/accuracy.md. A row takes some minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from benchmarks import eager_steps

DATA = Path(__file__).parent / "data"
PUBLISHED, SCRIPT = DATA / "published_memory.csv", DATA / "published_llama.py"
_GIB = 1 << 30


def predicted_gib(row: pd.Series, folder: Path) -> float:
    """Return the most memory that a row's fullest GPU is predicted to take, in GiB.

    Raises:
        subprocess.CalledProcessError: it cannot be predicted; what was said is on stderr.
    """
    on = ["--profile", row["profile"], "--hosts", str(row["hosts"]), "--gpus-per-host", str(row["gpus_per_host"])]
    on += ["--ranks", "alike", "--steps", "2", "--timeout", "1800 s"]
    run = eager_steps.played([str(SCRIPT), *row["arguments"].split()], on, folder / row["id"])
    return eager_steps.torch_bytes(run, is_reserved=True) / _GIB


def compared(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
    """Yield for each row its id, what it is, published_gib, predicted_gib and error."""
    with TemporaryDirectory() as folder:
        for _, row in rows.iterrows():
            found = predicted_gib(row, Path(folder))
            same = {name: row[name] for name in ("id", "what", "published_gib")}
            yield {**same, "predicted_gib": found, "error": found / row["published_gib"] - 1}


def main() -> None:
    """Print each row as it is predicted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("ids", nargs="*", metavar="ID", help="rows; default: all")
    options = parser.parse_args()
    rows = pd.read_csv(PUBLISHED)
    if unknown := sorted(set(options.ids).difference(rows["id"])):
        parser.error(f"{', '.join(unknown)}: expected ids of {PUBLISHED.name}")
    for row in compared(rows[rows["id"].isin(options.ids)] if options.ids else rows):
        print(
            "{id:10} {what:70} {published_gib:6.2f} GiB, predicted {predicted_gib:6.2f}, {error:+.1%}".format(**row),
            flush=True,
        )


if __name__ == "__main__":
    main()
