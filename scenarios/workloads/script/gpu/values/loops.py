"""The loops around a line of a running script: which of them nothing but a value may end."""

from __future__ import annotations

import ast
import linecache
from functools import cache
from itertools import islice
from types import CodeType, FrameType
from typing import NamedTuple

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# What frames of comprehensions that are functions of their own are called.
_THEIR_NAMES = {"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"}


class _Loop(NamedTuple):
    """A loop of a file: from where to where it is repeated, by lines and columns, and whether it may have no end."""

    begin: tuple[int, int]
    end: tuple[int, int]
    is_endless: bool


def loop_around(frame: FrameType | None) -> tuple[FrameType | None, bool]:
    """Return the innermost frame of the script's in which a loop runs, None without one, and whether a value may have
    to end that loop: a `while`, or a `for` over what does not end. Other loops end by themselves.
    """
    while frame is not None:
        is_endless = _is_endless(frame.f_code, frame.f_lasti)
        if is_endless is not None:
            return frame, is_endless
        if frame.f_code.co_name == "<module>":  # what runs the script is no part of it
            break
        frame = frame.f_back
    return None, False


@cache
def _is_endless(code: CodeType, instruction: int) -> bool | None:
    """Return whether the innermost loop around an instruction of a function may be endless, None without a loop."""
    if code.co_name in _THEIR_NAMES:
        return False
    place = next(islice(code.co_positions(), instruction // 2, None))  # an instruction has two bytes
    line, end_line, column, end_column = (-1 if each is None else each for each in place)
    around = [
        each
        for each in _loops_of(code.co_filename)
        # A function that is made in a loop is called anywhere.
        if each.begin[0] >= code.co_firstlineno and each.begin <= (line, column) and (end_line, end_column) <= each.end
    ]
    return max(around).is_endless if around else None


@cache
def _loops_of(file: str) -> list[_Loop]:
    """Return the loops of a file; none of what has no source."""
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
        ]  # what it is over is made once
    ]


def _has_no_end(loop: ast.AST) -> bool:
    if isinstance(loop, ast.While):
        return True
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call):
        return False
    called, given = loop.iter.func, len(loop.iter.args)
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    if name in ("iter", "repeat"):  # of a function and what ends it; of a value, without a number of times
        return given == (2 if name == "iter" else 1) and not loop.iter.keywords
    return name in ("count", "cycle")
