"""How large the parts of the product may be, and that a class name stands for one thing."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.test_import_rules import ROOT, room_files

MOST_FILES, MOST_LINES, MOST_LINES_OF_A_FUNCTION = 15, 400, 50

# Names of two classes each. It only shrinks.
TWICE = {"PowerSGDState"}  # torch's name, of both the state and its form for hooks


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def nodes(*kinds: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    for path in room_files():
        place = str(path.relative_to(ROOT))
        yield from ((place, node) for node in ast.walk(tree(path)) if isinstance(node, kinds))


def test_a_package_has_few_files() -> None:
    files = Counter(path.parent for path in room_files() if path.name not in ("__init__.py", "__main__.py"))
    large = {str(folder.relative_to(ROOT)): count for folder, count in files.items() if count > MOST_FILES}
    assert not large


def test_a_file_has_few_lines() -> None:
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in room_files()}
    assert not {place: count for place, count in lines.items() if count > MOST_LINES}


def test_a_function_has_few_lines() -> None:
    long = {}
    for place, node in nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        count = (node.end_lineno or node.lineno) - node.lineno + 1
        if count > MOST_LINES_OF_A_FUNCTION:
            long[f"{place}:{node.name}"] = count
    assert not long


def test_a_class_name_stands_for_one_class() -> None:
    places = defaultdict(set)
    for place, node in nodes(ast.ClassDef):
        assert isinstance(node, ast.ClassDef)
        places[node.name].add(place)
    assert {name: found for name, found in places.items() if len(found) > 1}.keys() == TWICE
