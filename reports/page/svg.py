"""Pictures as SVG, which need no script: widths are shares of the page's, heights are in px, so no letter is distorted.

Colours that differ between light and dark are classes of the page's style.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from reports.page import theme
from reports.page.blocks import Picture
from reports.sections.model import Bar
from reports.terminal import text

_BAR = 52  # px
_SEEN = 0.0005  # the least share of a whole that is not 0.0 %


def element(name: str, inside: Iterable[Markup | str] = (), **attributes: object) -> Markup:
    """Return an element; an underscore at the end of an attribute's name is dropped, others are hyphens.

    Attributes that are None are left out.
    """
    given = (
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), value)
        for key, value in attributes.items()
        if value is not None
    )
    return Markup("<{0}{1}>{2}</{0}>").format(name, Markup("").join(given), Markup("").join(map(escape, inside)))


def drawing(height: float, inside: Sequence[Markup], says: str) -> Markup:
    """Return a drawing as wide as the page; `says` describes it to those who cannot see it."""
    return element("svg", inside, width="100%", height=f"{height:.0f}", role="img", aria_label=says)


def box(left: float, top: float, width: float, height: float, says: str, **attributes: object) -> Markup:
    """Return a rectangle, `left` and `width` in shares of the whole, which says something under the mouse."""
    inside = [element("title", [says])] if says else []
    place = {"x": share(left), "y": f"{top:.2f}", "width": share(width), "height": f"{height:.2f}"}
    return element("rect", inside, **place, **attributes)


def words(left: float, top: float, said: str, **attributes: object) -> Markup:
    """Return a line of text, `left` in shares of the whole."""
    return element("text", [said], x=share(left), y=f"{top:.1f}", **attributes)


def share(part: float) -> str:
    """Return a share of the whole width as SVG has it."""
    return f"{100 * part:.3f}%"


def bar(one: Bar) -> Picture:
    """Draw a whole and its pieces, in order."""
    whole, left, boxes = sum(piece.duration_ns for piece in one.pieces) or 1.0, 0.0, []
    for piece in one.pieces:
        width, said = piece.duration_ns / whole, f"{piece.name}: {text.duration(piece.duration_ns)}"
        color = theme.PIECES[piece.name]
        boxes.append(box(left, 0, width, _BAR, f"{said}, {text.percent(piece.share)}", fill=color))
        left += width
    seen = [piece for piece in one.pieces if piece.share >= _SEEN]
    legend = [(theme.PIECES[piece.name], f"{piece.name} {text.percent(piece.share)}") for piece in seen]
    return Picture(one.name, one.title, drawing(_BAR, boxes, one.title), one.note, legend)
