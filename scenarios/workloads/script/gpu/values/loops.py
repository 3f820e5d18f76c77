"""The loops around a line of a running script, and whether only a value can end them."""

from __future__ import annotations

import ast
import linecache
from functools import cache
from itertools import islice
from types import CodeType, FrameType
from typing import NamedTuple

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# Names of the frames of comprehensions that Python compiles to functions.
_THEIR_NAMES = {"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"}


class _Loop(NamedTuple):
    """A loop in a file: (line, column) where its repeated part begins and ends, and whether it may be endless."""

    begin: tuple[int, int]
    end: tuple[int, int]
    is_endless: bool


def loop_around(frame: FrameType | None) -> tuple[FrameType | None, bool]:
    """Return the script's innermost frame with a running loop, None without one, and whether the loop may be endless.

    A `while`, or a `for` over an endless iterator, may need a value to end it. Other loops end by themselves.
    """
    while frame is not None:
        is_endless = _is_endless(frame.f_code, frame.f_lasti)
        if is_endless is not None:
            return frame, is_endless
        if frame.f_code.co_name == "<module>":  # frames further out run the script
            break
        frame = frame.f_back
    return None, False


@cache
def _is_endless(code: CodeType, instruction: int) -> bool | None:
    """Return whether the innermost loop around an instruction may be endless; None without a loop."""
    if code.co_name in _THEIR_NAMES:
        return False
    place = next(islice(code.co_positions(), instruction // 2, None))  # two bytes per instruction
    line, end_line, column, end_column = (-1 if each is None else each for each in place)
    around = [
        each
        for each in _loops_of(code.co_filename)
        # Loops around a function's definition do not count: it may be called anywhere.
        if each.begin[0] >= code.co_firstlineno and each.begin <= (line, column) and (end_line, end_column) <= each.end
    ]
    return max(around).is_endless if around else None


@cache
def _loops_of(file: str) -> list[_Loop]:
    """Return the loops of a file; none if there is no source."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return []
    return [
        _Loop((first.lineno, first.col_offset), (each.end_lineno or 0, each.end_col_offset or 0), _has_no_end(each))
        for each in ast.walk(tree)
        if isinstance(each, (ast.While, ast.For, ast.AsyncFor, *_COMPREHENSIONS))
        for first in [
            each.body[0] if isinstance(each, (ast.For, ast.AsyncFor)) else each
        ]  # a `for` evaluates its iterable once, so only its body repeats
    ]


def _has_no_end(loop: ast.AST) -> bool:
    if isinstance(loop, ast.While):
        return True
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call):
        return False
    called, given = loop.iter.func, len(loop.iter.args)
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    if name in ("iter", "repeat"):  # iter(function, sentinel); repeat(value) without a count
        return given == (2 if name == "iter" else 1) and not loop.iter.keywords
    return name in ("count", "cycle")
