"""Values that print as their reports: as text in a session and a terminal, as HTML in a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from reports.errors import ReportError

if TYPE_CHECKING:
    from reports.sections.model import Report


class Printed:
    """A value with a report of itself; what cannot be read is shown as its sentence."""

    __slots__ = ()

    def _report(self) -> tuple[Report, Any]:
        """Return the report, and what its sections are made of."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """Return the report as text; pandas would leave out columns of frames wider than the terminal."""
        from reports.terminal import text  # noqa: PLC0415 - rich is loaded to print only
        from reports.terminal.render import render_report  # noqa: PLC0415

        try:
            return text.as_text(render_report(*self._report())).rstrip()
        except ReportError as error:
            return str(error)

    def _repr_html_(self) -> str:
        from reports.page.notebook import fragment  # noqa: PLC0415 - Bokeh takes half a second

        try:
            return fragment(*self._report())
        except ReportError as error:
            return f"<p>{escape(str(error))}</p>"
