"""The sentences with which readers of runs refuse damaged files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reports.errors import ReportError


def refusal(of: Callable[..., object], *given: Any, **named: Any) -> str:
    with pytest.raises(ReportError) as caught:
        of(*given, **named)
    return str(caught.value)
