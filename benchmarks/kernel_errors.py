"""The residual table of docs/explanation/kernels.md: how far off measured operators are predicted, by family.

    python -m benchmarks.kernel_errors            # prints the table
    python -m benchmarks.kernel_errors --write    # and writes it where the page has it from

The rows are those of `python -m reports published tests/data/published/kernels/*.csv --profile hgx_h200`.
"""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from twinstep.reporting.cli import main as reports

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "explanation" / "data" / "operator_errors.csv"
FOLDER = ROOT / "tests" / "data" / "published" / "kernels"
HEAD = ["family", "rows", "mean", "median", "95th percentile", "signed median", "mean of the law alone"]
# The profile of rows that name no GPU.
PROFILE = "hgx_h200"
_PERCENT = ("mean", "median", "p95", "law_mean")


def errors() -> list[dict[str, Any]]:
    """Return the errors of each family, as `reports.published.errors` has them."""
    with redirect_stdout(StringIO()) as out:
        code = reports(["published", *map(str, sorted(FOLDER.glob("*.csv"))), "--profile", PROFILE, "--json"])
    assert code == 0, code
    found: list[dict[str, Any]] = json.loads(out.getvalue())["by_family"]
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """Return the errors as CSV."""
    lines = []
    for row in rows:
        mean, median, p95, law = (f"{100 * row[name]:.1f} %" for name in _PERCENT)
        lines.append([row["group"], f"{row['rows']:,}", mean, median, p95, f"{100 * row['signed_median']:+.1f} %", law])
    return pd.DataFrame(lines, columns=HEAD).to_csv(index=False)


def main() -> None:
    made = table(errors())
    if "--write" in sys.argv[1:]:
        TABLE.write_text(made, encoding="utf-8")
    print(made)


if __name__ == "__main__":
    main()
