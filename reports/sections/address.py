"""Build links to a place in the timeline of a run's page."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from reports.run import Run

NAME = "timeline"


def address(page: str, run: Run, operation: str, span_ns: tuple[int, int]) -> str:
    """Return a link that opens a page with one span in the middle of its timeline, and its operation marked."""
    from_ns, until_ns = span_ns
    margin = max(until_ns - from_ns, 1000) * 2
    origin = run.outline.first_ns
    place = {
        "from": f"{(from_ns - margin - origin) / 1e6:.6f}",
        "until": f"{(until_ns + margin - origin) / 1e6:.6f}",
        "operation": operation,
    }
    return f"{quote(page)}#{NAME}?{urlencode(place, quote_via=quote)}"
