"""Render sections as text for a terminal; this renderer knows no particular section."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from reports.sections.model import Bar, Block, Facts, Listing, Report, ReportTable, Shown, Words
from reports.terminal import text

# A smaller rest of a bar is not shown.
_NOTHING = 0.0005
_REST, _GAP = "the rest", "   "


def render_report(report: Report, of: Any) -> RenderableType:
    """Return the whole report; `text.as_text` makes it a string."""
    shown = (section.show(of, "terminal") for section in report.sections)
    lines = report.lines(of)
    head = [text.paragraph("\n".join(lines), style="bold")] if lines else []
    return Group(*head, *(one for section in shown if section is not None for one in _section(section)))


def _section(section: Shown) -> Iterator[RenderableType]:
    if section.absent:
        yield text.paragraph(f"{section.title}: {section.absent[0].lower()}{section.absent[1:]}")
    yield from map(block, section.blocks)


def block(one: Block) -> RenderableType:
    """Return one block; blocks that only pages have are refused."""
    match one:
        case ReportTable():
            return _table(one)
        case Facts(items):
            return text.facts([(fact.name, ", ".join(filter(None, (fact.value, fact.note)))) for fact in items])
        case Words(words, items) if items:
            lines = [f"{at}. {item}" for at, item in enumerate(items, 1)]
            return Group(Text(words, style="bold"), text.paragraph("\n".join(lines)))
        case Words(words):
            return text.paragraph(words, style="bold" if one.strong else "")
        case Bar():
            return Group(Text(one.title, style="bold"), _Letters(one))
        case Listing(title, words):
            return text.paragraph(f"{title}\n{words}")
    raise AssertionError(f"the terminal has no {type(one).__name__}")


def _table(table: ReportTable) -> RenderableType:
    grid = table.grid("terminal")
    more = f"; {grid.left_out:,} {table.others} not shown" if grid.left_out else ""
    kept = [column.kept for column in grid.columns]
    rows = [[str(cell) for cell in row] for row in grid.rows]
    return text.table(
        f"{table.title}{more}", [column.title for column in grid.columns], rows, left=grid.left, kept=kept
    )


@dataclass(frozen=True, slots=True)
class _Letters:
    """A bar of letters as wide as the terminal, and below it the parts' names with their shares."""

    bar: Bar

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = min(options.max_width, text.WIDTH)
        counts = _cells([piece.share for piece in self.bar.pieces], room)
        yield Text("".join(piece.letter * count for piece, count in zip(self.bar.pieces, counts, strict=True)))
        yield text.paragraph("\n".join([*_lines(self._describe(), room), *filter(None, [self.bar.short_note])]))

    def _describe(self) -> list[str]:
        pieces = self.bar.pieces
        named = [piece for piece in pieces if piece.share >= self.bar.least]
        rest = sum(piece.share for piece in pieces) - sum(piece.share for piece in named)
        said = [f"{piece.letter} {piece.name} {text.percent(piece.share)}" for piece in named]
        return said + ([f"{_REST} {text.percent(rest)}"] if rest >= _NOTHING else [])


def _lines(said: Sequence[str], room: int) -> list[str]:
    """Return as few lines as hold these words; a letter stays next to its name."""
    lines: list[str] = []
    for words in said:
        joined = f"{lines[-1]}{_GAP}{words}" if lines else words
        lines[-1:] = [joined] if len(joined) <= room else [*lines[-1:], words]
    return lines


def _cells(shares: Sequence[float], width: int) -> list[int]:
    """Return `width` letters divided by `shares`, rounded so that they add up."""
    ends = np.round(np.cumsum(shares) * width).astype(int)
    found: list[int] = np.diff(ends, prepend=0).tolist()
    return found
