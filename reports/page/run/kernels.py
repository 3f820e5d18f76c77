"""The most expensive kernels of a prediction on GPUs."""

from __future__ import annotations

from reports.page.blocks import Section, Table
from reports.run import Run
from reports.terminal import kernels as found
from reports.terminal import text


def kernels(run: Run) -> Section:
    """List the kernels that take most of a step, so that a GPU's owner sees which prediction to check."""
    by = found.shares(run)
    if by is None:
        return Section("kernels", "Kernels", absent="Only a prediction on GPUs lists its kernels.")
    count = len(run.kernels)
    said = ", ".join(f"{name} {text.percent(share)}" for name, share in by.items())
    note = (
        "Of the first simulated rank, in the mean over its steps without the first; times are those of an idle GPU,"
        f" without launches. Shares are of the time of all kernels of a step. By what prices them: {said}."
    )
    note += f" The other {count - found.MOST_SHOWN:,} are in kernels.csv." if count > found.MOST_SHOWN else ""
    total_us = float((run.kernels["predicted_us"] * run.kernels["count"]).sum())
    title = f"The {found.MOST_SHOWN} most expensive kernels" if count > found.MOST_SHOWN else "Kernels"
    table = Table(title, found.COLUMNS, found.rows(run), left=3, note=note, raw={"us": total_us})
    return Section("kernels", "Kernels", [table])
