"""The public API as text: what users may import, with signatures.

`python -m tests.public_api --write` writes `data/public_api.txt` anew; a test compares. A change of that file is one
that users may notice, and has a line in CHANGELOG.md.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

FILE = Path(__file__).parent / "data" / "public_api.txt"

# Module -> the names in it that are public; None: those of its `__all__`.
PUBLIC: dict[str, tuple[str, ...] | None] = {
    "twinstep": None,
    "reports.run": ("Run",),
    "scenarios.seam.rank": ("Rank",),
    "scenarios.seam.program": ("Program",),
    "scenarios.seam.kernel": ("Kernel",),
    "scenarios.seam.group": ("Group",),
    "scenarios.modules.module": ("Module",),
    "scenarios.config.host_classes": ("uniform_host_classes",),
    "scenarios.planner": None,
    "scenarios.sparse": None,
    "scenarios.compression": None,
    "real.ddp.hooks": ("PowerSGDState", "batched_powerSGD_hook", "powerSGD_hook"),
}


def lines() -> Iterator[str]:
    """Yield a line for each public name, method and property."""
    for module, names in PUBLIC.items():
        found = importlib.import_module(module)
        for name in names if names is not None else sorted(found.__all__):
            yield from _of(f"{module}.{name}", getattr(found, name))


def _of(name: str, value: object) -> Iterator[str]:
    if inspect.isclass(value):
        yield f"class {name}{_signature(value)}"
        for key in sorted(vars(value)):
            if not key.startswith("_"):
                yield from _of(f"{name}.{key}", inspect.getattr_static(value, key))
    elif isinstance(value, property):
        yield f"property {name}"
    elif callable(function := inspect.unwrap(getattr(value, "__func__", value))):  # type: ignore[arg-type]
        yield f"{name}{_signature(function)}"
    else:
        yield f"value {name}"


def _signature(value: object) -> str:
    try:
        return str(inspect.signature(value))  # type: ignore[arg-type]
    except (TypeError, ValueError):  # such as of an exception's, which is C
        return ""


def main() -> int:
    """Print what differs, or with --write write the file."""
    if sys.argv[1:] == ["--write"]:
        FILE.write_text("\n".join(lines()) + "\n")
        return 0
    known, now = set(FILE.read_text().splitlines()), set(lines())
    print(*(f"- {line}" for line in sorted(known - now)), *(f"+ {line}" for line in sorted(now - known)), sep="\n")
    return int(known != now)


if __name__ == "__main__":
    sys.exit(main())
