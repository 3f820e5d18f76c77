"""The residual table of docs/explanation/kernels.md: how far off measured operators are predicted, by family.

    python -m benchmarks.kernel_errors            # prints the table
    python -m benchmarks.kernel_errors --write    # and puts it into docs/explanation/kernels.md

The rows are those of `python -m reports published tests/data/published/kernels/*.csv --profile hgx_h200`.
"""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from twinstep.reporting.cli import main as reports

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "kernels.md"
FOLDER = ROOT / "tests" / "data" / "published" / "kernels"
BEGIN, END = "<!-- benchmarks.kernel_errors -->", "<!-- end -->"
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
    """Return the errors as Markdown."""
    lines = [
        "| family | rows | mean | median | 95th percentile | signed median | mean of the law alone |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        mean, median, p95, law = (f"{100 * row[name]:.1f} %" for name in _PERCENT)
        signed = f"{100 * row['signed_median']:+.1f} %"
        lines.append(f"| {row['group']} | {row['rows']:,} | {mean} | {median} | {p95} | {signed} | {law} |")
    return "\n".join(lines)


def parts(page: str, begin: str = BEGIN) -> tuple[str, str, str]:
    """Return what stands before the table behind this mark, the table, and what stands behind it."""
    before, rest = page.split(begin)
    inside, after = rest.split(END, 1)
    return before + begin, inside.strip("\n"), END + after


def main() -> None:
    made = table(errors())
    if "--write" in sys.argv[1:]:
        before, _, after = parts(PAGE.read_text(encoding="utf-8"))
        PAGE.write_text(f"{before}\n{made}\n{after}", encoding="utf-8")
    print(made)


if __name__ == "__main__":
    main()
