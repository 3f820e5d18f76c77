"""The source files of a program of one's own, so that two runs are known to have run the same code; imports none.

They are the program's file and, from there on, the modules of the same folder that files import, as their `import`
statements say; neither what is installed nor what is ours.
"""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NamedTuple

import scenarios
from scenarios.config.scenario import Source

_ROOMS = ("scenarios", "sim", "real", "reports", "twinstep")
_OURS = tuple(Path(scenarios.__file__).resolve().parent.with_name(name) for name in _ROOMS)
_INSTALLED = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")}


class Code(NamedTuple):
    """A module's file; `root` is the folder in which Python finds the module's first name."""

    module: str
    file: Path
    root: Path


def sources_of(found: Iterable[Code]) -> tuple[Source, ...]:
    """The texts of these modules and of all that they import from their folders, by name."""
    texts = {code.file.relative_to(code.root).as_posix(): code.file for start in found for code in closure(start)}
    return tuple(Source(name=name, text=_text(texts[name])) for name in sorted(texts))


def code_of(module: str) -> Code | None:
    """Where a module's source is; None for what has none, and for our own."""
    loaded = sys.modules.get(module)
    origin = getattr(loaded, "__file__", None) if loaded is not None else _origin(module)
    if origin is None or Path(origin).suffix != ".py" or is_ours(Path(origin)):
        return None
    file = Path(origin).resolve()
    depth = module.count(".") + (file.name == "__init__.py")
    return Code(module, file, file.parents[depth])


def closure(start: Code) -> Iterator[Code]:
    """The module, and the modules of its root that it imports, and so on."""
    own = start.module.partition(".")[0]
    is_installed = any(place in (start.root, *start.root.parents) for place in _INSTALLED)
    seen, left = {start.file}, [start]
    while left:
        code = left.pop()
        yield code
        for name in _imported(code):
            if is_installed and name.partition(".")[0] != own:
                continue
            for one in _in_folder(name, start.root):
                if one.file not in seen and not is_ours(one.file):
                    seen.add(one.file)
                    left.append(one)


def is_ours(file: Path) -> bool:
    """Whether a file is one of this project's packages."""
    return any(package in file.resolve().parents for package in _OURS)


def _origin(module: str) -> str | None:
    """The file of a module that is not imported yet, nor are the packages around it."""
    path, spec = None, None
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:end]), path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    return spec.origin if spec is not None else None


def _imported(code: Code) -> Iterator[str]:
    """The full names of what a file's `import` statements may mean, wherever they stand in it."""
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
    """A module of the folder, and the packages around it."""
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        place = root.joinpath(*parts[:end])
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                yield Code(".".join(parts[:end]), file, root)


def _text(file: Path) -> str:
    return file.read_bytes().decode(errors="replace")
