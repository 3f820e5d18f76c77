"""Signatures of functions that take a scenario's overrides, for help and completion in notebooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from scenarios.config.overrides.short_names import OVERRIDES

_F = TypeVar("_F", bound=Callable[..., Any])


def with_overrides(function: _F) -> _F:
    """Name the keys of a function's overrides in its signature."""
    own = inspect.signature(function)
    *first, rest = own.parameters.values()
    named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in OVERRIDES]
    function.__signature__ = own.replace(parameters=[*first, *named, rest])  # type: ignore[attr-defined]
    return function
