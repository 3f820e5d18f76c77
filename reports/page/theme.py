"""The colours of pages, by light and by dark.

Parts and operations have one colour in both, of middle lightness, so that a page printed from the dark is still read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

# What a step is made of.
COMPUTE = "#3d7fc4"
EXPOSED = "#e0662f"
HIDDEN = "#efb48c"
IDLE = "#9aa3ad"
SKEW = "#6b7480"
# The parts of a step that add up to it, by their columns.
PARTS = {"compute_ns": COMPUTE, "exposed_ns": EXPOSED, "idle_ns": IDLE, "skew_ns": SKEW}
# Two sides of a comparison.
PREDICTED = "#3d7fc4"
MEASURED = "#c4527a"
FASTER, SLOWER = "#2f9e77", "#d1495b"

# Neighbours differ in hue and lightness; computations are cool, communications warm.
COOL = ["#3d7fc4", "#2f9e9e", "#7467c9", "#5fa8d9", "#3f9463", "#4d5fb3", "#7fb8a4", "#9a8fd6", "#2c6e91", "#86a8e0"]
WARM = ["#e0662f", "#c4527a", "#d9a032", "#b5483c", "#e58f6e", "#a8577f", "#c98a2b", "#e07f9c", "#8f5a3c", "#dcb35f"]
EVERY = [COOL[0], WARM[0], COOL[1], WARM[2], COOL[2], WARM[1], COOL[4], WARM[3], COOL[3], WARM[4]]


@dataclass(frozen=True, slots=True)
class Scheme:
    """What differs between light and dark. `sequential` goes from nothing to most; the page's ground is `surface`."""

    surface: str
    ink: str
    muted: str
    grid: str
    sequential: tuple[str, ...]


def between(first: str, last: str, share: float) -> str:
    """A colour that lies so far on the way from one to the other."""
    pairs = zip(_parts(first), _parts(last), strict=True)
    return "#" + "".join(f"{round(one + (other - one) * share):02x}" for one, other in pairs)


def _parts(color: str) -> list[int]:
    return [int(color[at : at + 2], 16) for at in (1, 3, 5)]


def _ramp(*stops: str, length: int = 64) -> tuple[str, ...]:
    found = []
    for at in range(length):
        place = at / (length - 1) * (len(stops) - 1)
        low = min(int(place), len(stops) - 2)
        found.append(between(stops[low], stops[low + 1], place - low))
    return tuple(found)


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


def schemes() -> dict[str, Any]:
    """Both, for the page's script."""
    return {"light": asdict(LIGHT), "dark": asdict(DARK)}


def colors(parts: Sequence[str]) -> list[str]:
    """One for each operation in a sequence of their parts ("compute" or "communication"), the nearest unlike."""
    used = {"compute": 0, "communication": 0}
    found = []
    for part in parts:
        palette, key = (COOL, "compute") if part == "compute" else (WARM, "communication")
        found.append(palette[used[key] % len(palette)])
        used[key] += 1
    return found
