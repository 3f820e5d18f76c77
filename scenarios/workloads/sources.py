"""Collects the source files of a user's program, to compare the code of two runs; imports none of them.

The files are the program's own and, recursively, the modules of its folder that `import` statements name; neither
installed modules nor this project's.
"""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NamedTuple

from scenarios.config.scenario import Source
from scenarios.seam.errors import is_ours

_INSTALLED = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")}


class Code(NamedTuple):
    """A module's file; `root` is the folder in which Python finds the module's top-level name."""

    module: str
    file: Path
    root: Path


def sources_of(found: Iterable[Code]) -> tuple[Source, ...]:
    """Return the texts of these modules and of all that they import from their folders, sorted by name."""
    texts = {code.file.relative_to(code.root).as_posix(): code.file for start in found for code in closure(start)}
    return tuple(Source(name=name, text=_text(texts[name])) for name in sorted(texts))


def code_of(module: str) -> Code | None:
    """Return where a module's source is; None if it has none, or is this project's."""
    loaded = sys.modules.get(module)
    origin = getattr(loaded, "__file__", None) if loaded is not None else _origin(module)
    if origin is None or Path(origin).suffix != ".py" or is_ours(origin):
        return None
    file = Path(origin).resolve()
    depth = module.count(".") + (file.name == "__init__.py")
    return Code(module, file, file.parents[depth])


def closure(start: Code) -> Iterator[Code]:
    """Yield the module, and recursively the modules of its root that it imports."""
    own = start.module.partition(".")[0]
    is_installed = any(place in (start.root, *start.root.parents) for place in _INSTALLED)
    seen, left = {start.file}, [start]
    while left:
        code = left.pop()
        yield code
        for name in _find_imports(code):
            if is_installed and name.partition(".")[0] != own:
                continue
            for one in _in_folder(name, start.root):
                if one.file not in seen and not is_ours(str(one.file)):
                    seen.add(one.file)
                    left.append(one)


def _origin(module: str) -> str | None:
    """Return the file of a module without importing it or its packages."""
    path, spec = None, None
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:end]), path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    return spec.origin if spec is not None else None


def _find_imports(code: Code) -> Iterator[str]:
    """Yield the full names to which a file's `import` statements, at any depth, may refer."""
    try:
        tree = ast.parse(_text(code.file))
    except (SyntaxError, ValueError):
        return
    package = code.module.split(".")[: None if code.file.name == "__init__.py" else -1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            if base:
                yield base
            yield from (".".join(filter(None, (base, alias.name))) for alias in node.names)


def _in_folder(module: str, root: Path) -> Iterator[Code]:
    """Yield a module of the folder, and the packages around it."""
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        place = root.joinpath(*parts[:end])
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                yield Code(".".join(parts[:end]), file, root)


def _text(file: Path) -> str:
    return file.read_bytes().decode(errors="replace")
