"""`python -m benchmarks.published_memory [ID ...] [--missing]`: peak memory of GPUs that others published, predicted.

Rows of `data/published_memory.csv` are Llama 3 as torchtitan trained it, whose logs have the most memory that torch's
allocator had reserved, and TorchRec's benchmark of its pipelines, which prints what was allocated, too; TorchRec's need
`make .venv-benchmarks/.installed` and that environment's Python. Each row is a script of our own or TorchRec's, played
on simulated GPUs; what comes of it is kept in `data/predicted_memory.csv`. `--write` puts all rows that are kept into
docs/accuracy/published.md. Rows that are one command are predicted together. A row takes some minutes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from benchmarks import eager_steps
from benchmarks.kernel_errors import parts

ROOT = Path(__file__).parent.parent
DATA, PAGE = ROOT / "benchmarks" / "data", ROOT / "docs" / "accuracy" / "published.md"
PUBLISHED, PREDICTED = DATA / "published_memory.csv", DATA / "predicted_memory.csv"
BEGIN = "<!-- benchmarks.published_memory -->"
KINDS = ("allocated", "reserved")
_GIB = 1 << 30
_PLAYED = ["profile", "hosts", "gpus_per_host", "options", "script"]  # rows that agree in these are one prediction
_STEPS, _TIMEOUT = "2", "1800 s"


def predict(row: pd.Series, folder: Path) -> dict[str, float]:
    """Return what torch is predicted to allocate and to reserve at most of a row's fullest GPU, in GiB.

    Raises:
        subprocess.CalledProcessError: it cannot be predicted; what was said is on stderr.
    """
    on = ["--profile", row["profile"], "--hosts", str(row["hosts"]), "--gpus-per-host", str(row["gpus_per_host"])]
    on += ["--steps", _STEPS, "--timeout", _TIMEOUT, *row["options"].split()]
    run = eager_steps.play(row["script"].format(data=DATA).split(), on, folder / row["id"])
    return {kind: eager_steps.torch_bytes(run, is_reserved=kind == "reserved") / _GIB for kind in KINDS}


def read_kept() -> pd.DataFrame:
    """Return what has been predicted before: id, allocated, reserved."""
    return pd.read_csv(PREDICTED) if PREDICTED.exists() else pd.DataFrame(columns=["id", *KINDS])


def compare() -> pd.DataFrame:
    """Return the rows with what is kept of them: PREDICTED's columns begin with predicted_, the errors' with error_."""
    rows = pd.read_csv(PUBLISHED).merge(
        read_kept().add_prefix("predicted_"), left_on="id", right_on="predicted_id", how="left"
    )
    for kind in KINDS:
        rows[f"error_{kind}"] = rows[f"predicted_{kind}"] / rows[f"{kind}_gib"] - 1
    return rows


def table(rows: pd.DataFrame) -> str:
    """Return the rows, as of `compare`, as a table of Markdown; a paragraph names those that are not predicted."""
    heads = [f"{kind}, published | predicted | error" for kind in KINDS]
    lines = [f"| row | what | {' | '.join(heads)} |", "|---|---|" + 3 * len(KINDS) * "---|"]
    is_predicted = rows[f"predicted_{KINDS[-1]}"].notna()
    for _, row in rows[is_predicted].iterrows():
        cells = [row["id"], row["what"]]
        for kind in KINDS:
            published, found, error = (row[name] for name in (f"{kind}_gib", f"predicted_{kind}", f"error_{kind}"))
            cells += [_size(published), _size(found), "" if pd.isna(error) else f"{error:+.1%}".replace("%", " %")]
        lines.append(f"| {' | '.join(cells)} |")
    others = rows[~is_predicted]
    reasons = others.groupby(others["why_not"].fillna("not run"), sort=False)["id"].agg(", ".join)
    return "\n".join([*lines, "", "Not predicted:", "", *(f"- {why}: {ids}" for why, ids in reasons.items())])


def _size(gib: float) -> str:
    return "" if pd.isna(gib) else f"{gib:.2f} GiB"


def main() -> None:
    """Predict the rows that are asked for, keep them, and print or write all of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("ids", nargs="*", metavar="ID", help="rows; default: all that can be predicted")
    parser.add_argument("--missing", action="store_true", help="only rows that are not kept yet")
    parser.add_argument("--write", action="store_true", help="write what is kept into docs/accuracy/published.md only")
    options = parser.parse_args()
    rows = pd.read_csv(PUBLISHED)
    if unknown := sorted(set(options.ids).difference(rows["id"])):
        parser.error(f"{', '.join(unknown)}: expected ids of {PUBLISHED.name}")
    for _, row in rows[rows["id"].isin(options.ids) & rows["script"].isna()].iterrows():
        print(f"{row['id']}: not predicted: {row['why_not']}", file=sys.stderr)
    played = rows[rows["script"].notna()]
    is_asked = played["id"].isin(options.ids or played["id"])
    if options.missing:
        is_asked &= ~played["id"].isin(read_kept()["id"])
    with TemporaryDirectory() as folder:
        for _, alike in () if options.write else played.groupby(_PLAYED, sort=False):
            if not is_asked[alike.index].any():
                continue
            found = alike[["id"]].assign(**predict(alike.iloc[0], Path(folder)))
            before = read_kept()
            made = pd.concat([before[~before["id"].isin(found["id"])], found])
            made.sort_values("id").to_csv(PREDICTED, index=False, float_format="%.2f")
    made_table = table(compare())
    if options.write:
        before_table, _, after = parts(PAGE.read_text(encoding="utf-8"), BEGIN)
        PAGE.write_text(f"{before_table}\n{made_table}\n{after}", encoding="utf-8")
    print(made_table)


if __name__ == "__main__":
    main()
