"""What kernels of a prediction on GPUs take, and by what they are priced: for the headline, pages and scripts."""

from __future__ import annotations

from reports.run import Run
from reports.terminal import text
from reports.terminal.rows import cells

MOST_SHOWN = 20
COLUMNS = ["operator", "shapes", "priced by", "time of one", "calls", "share"]
# A smaller share has no digit of its own.
_LEAST_SHARE = 0.0005


def shares(run: Run) -> dict[str, float] | None:
    """Return the share of the kernels' time of a step by what prices them, the largest first; None without kernels."""
    if not len(run.kernels):
        return None
    found = run.kernels.groupby("priced_by")["share"].sum().sort_values(ascending=False, kind="stable")
    return {str(name): float(share) for name, share in found.items()}


def without_a_law(run: Run) -> str:
    """Return the line that says what share of a step's kernel time a roofline prices; "" if none."""
    share = (shares(run) or {}).get("roofline", 0.0)
    if not share:
        return ""
    said = text.percent(share) if share >= _LEAST_SHARE else f"under {text.percent(2 * _LEAST_SHARE)}"
    return f"kernels without a law, priced by a roofline: {said} of a step's kernel time"


def rows(run: Run) -> list[list[str]]:
    """Return the kernels that take most of a step, under `COLUMNS`."""
    top = run.kernels.head(MOST_SHOWN)
    top = top.assign(time_ns=1e3 * top["predicted_us"], calls_per_step=top["count"])
    return cells(top, ["operator", "shapes", "priced_by", "time_ns", "calls_per_step", "share"])
