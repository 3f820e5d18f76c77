"""The base of the cases' dataclasses."""

from __future__ import annotations

import dataclasses
from typing import ClassVar


class Short:
    """A dataclass whose repr leaves out what has its default, and whose results are the oracle's to the bit."""

    rounding: ClassVar[float] = 0.0

    def __repr__(self) -> str:
        told = [field for field in dataclasses.fields(self) if getattr(self, field.name) != field.default]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(f'{one.name}={getattr(self, one.name)!r}' for one in told)})"
