"""Render a report's sections as one JSON document of plain values; this renderer knows no particular section."""

from __future__ import annotations

from typing import Any

import pandas as pd

from reports.sections.model import Report
from reports.terminal.rows import records
from reports.terminal.text import json_ready


def document(report: Report, of: Any) -> dict[str, Any]:
    """Return a report's data about `of`, sections included, by key, as JSON-ready values; frames are lists of rows."""
    found = dict(report.data(of))
    for section in report.sections:
        found |= section.data(of)
    whole = {key: records(value) if isinstance(value, pd.DataFrame) else value for key, value in found.items()}
    return json_ready(whole)  # type: ignore[no-any-return]
