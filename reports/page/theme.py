"""The colours of pages, in the light and the dark theme.

Parts and operations have one colour in both, of middle lightness, so that a page printed from the dark is legible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np

from reports.analysis import by_role

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

# The parts of a step.
COMPUTE = "#3d7fc4"
EXPOSED = "#e0662f"
HIDDEN = "#efb48c"
WAIT = "#c9a227"
IDLE = "#9aa3ad"
SKEW = "#6b7480"
# The parts of a step that add up to it, by their columns.
PARTS = {"compute_ns": COMPUTE, "transfer_ns": EXPOSED, "wait_ns": WAIT, "idle_ns": IDLE, "skew_ns": SKEW}
# The classes of a critical path: computed in cool colours, sent in warm ones.
WHATS = {
    **{by_role.DENSE: "#3d7fc4", by_role.LOOK_UPS: "#2f9e9e", by_role.TABLE_UPDATES: "#3f9463"},
    **{by_role.OPTIMIZER: "#7467c9", by_role.COMPRESSION: "#9a8fd6", by_role.PACKING: "#7fb8a4"},
    **{by_role.INPUT: "#86a8e0", by_role.OTHER: "#5fa8d9", by_role.IDS: "#e58f6e", by_role.EMBEDDINGS: "#e0662f"},
    **{by_role.GRADIENTS: "#b5483c", by_role.EXCHANGES: "#dcb35f", by_role.REDUCTIONS: "#c4527a"},
    **{by_role.TRANSFERS: "#a8577f", by_role.LAUNCHING: "#6b7480", by_role.WAITING: WAIT, by_role.HOST: IDLE},
}
# What a job of days spends its time on: steps that count, then losses.
LOSSES = {
    **{"steps": "#3d7fc4", "input": "#86a8e0", "evaluation": "#7fb8a4", "checkpoint": "#2f9e9e"},
    **{"shrunk": "#9a8fd6", "slow part": "#7467c9", "rework": "#b5483c", "detection": "#e0662f"},
    **{"replacement": "#dcb35f", "restart": "#c4527a", "restore": "#a8577f"},
}
PIECES = WHATS | LOSSES
# The sharding types of tables, in colours that differ for colour-blind readers, too (M. Okabe and K. Ito, Color
# Universal Design, 2008).
SHARDINGS = {
    **{"table_wise": "#0072b2", "row_wise": "#e69f00", "table_row_wise": "#d55e00", "column_wise": "#009e73"},
    **{"data_parallel": "#cc79a7", "table_column_wise": "#56b4e9", "grid_shard": "#b8a600"},
}
# The two sides of a comparison.
PREDICTED = "#3d7fc4"
MEASURED = "#c4527a"

# Neighbours differ in hue and lightness; computations are cool, communications warm.
COOL = ["#3d7fc4", "#2f9e9e", "#7467c9", "#5fa8d9", "#3f9463", "#4d5fb3", "#7fb8a4", "#9a8fd6", "#2c6e91", "#86a8e0"]
WARM = ["#e0662f", "#c4527a", "#d9a032", "#b5483c", "#e58f6e", "#a8577f", "#c98a2b", "#e07f9c", "#8f5a3c", "#dcb35f"]
EVERY = [COOL[0], WARM[0], COOL[1], WARM[2], COOL[2], WARM[1], COOL[4], WARM[3], COOL[3], WARM[4]]


@dataclass(frozen=True, slots=True)
class Scheme:
    """A set of colours of one theme: `surface` is the background, `sequential` goes from zero to the maximum."""

    surface: str
    ink: str
    muted: str
    grid: str
    sequential: tuple[str, ...]


def _ramp(*stops: str) -> tuple[str, ...]:
    """Return 64 colours from the first stop to the last, evenly mixed between neighbours."""
    channels = np.array([[int(stop[at : at + 2], 16) for at in (1, 3, 5)] for stop in stops]).T
    places, known = np.linspace(0, len(stops) - 1, 64), range(len(stops))
    mixed = np.stack([np.interp(places, known, channel) for channel in channels], axis=1).round().astype(int)
    return tuple("#{:02x}{:02x}{:02x}".format(*color) for color in mixed.tolist())


LIGHT = Scheme(
    surface="#ffffff",
    ink="#1c232b",
    muted="#5b6672",
    grid="#e3e7ec",
    sequential=_ramp("#f3f5f8", "#f6c99a", "#e0662f", "#7c1d2e"),
)
DARK = Scheme(
    surface="#14181d",
    ink="#e8ecf0",
    muted="#9aa7b4",
    grid="#2c343d",
    sequential=_ramp("#1d232a", "#6b2b36", "#e0662f", "#ffe0b0"),
)


# The number of colours for loads, from none to the highest: the first of a ramp would not be seen on the page.
LOADS = 8


def loads(scheme: Scheme) -> list[str]:
    """Return the colours of loads, from none to the highest."""
    ramp = scheme.sequential
    return [ramp[round(at)] for at in np.linspace(len(ramp) // 8, len(ramp) - 1, LOADS).tolist()]


def colors(parts: Sequence[str]) -> list[str]:
    """Return a colour for each operation from its part ("compute" or "communication"); neighbours differ."""
    palettes = {"compute": cycle(COOL), "communication": cycle(WARM)}
    return [next(palettes["compute" if part == "compute" else "communication"]) for part in parts]
