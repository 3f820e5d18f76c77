"""Values that a script on a simulated GPU reads: known ones, or substitutes, which are reported; and whether only a
value can end the loop around a line that reads.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import islice
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scenarios.workloads.script.gpu.known_values import OF_FLOATS, UNKNOWN, Shadows, fill_shape
from scenarios.workloads.script.users_lines import users_line

# After this many turns a loop on an unknown boolean ends, as rejection sampling and convergence loops do.
MOST_TURNS = 20
# Most reads of unknown values by one line in a step: in a loop that only a value ends (a `while`, or a `for` over an
# endless iterator), and elsewhere.
MOST_ASKED, MOST_ASKED_ELSEWHERE = 1000, 100_000
# Files of torch whose frames lie between the line that reads a value and this project's code.
_BETWEEN = ("torch/_dynamo/eval_frame.py", "torch/_compile.py", "torch/overrides.py", "torch/_tensor.py")
# An optimizer that iterates until convergence: no substitute for its values gives the right number of passes.
_UNTIL_CONVERGED = "torch/optim/lbfgs.py"
_OWN = ("script/gpu/dispatch_mode.py", "script/host/calls.py", __file__)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# Names of the frames of comprehensions that Python compiles to functions.
_THEIR_NAMES = {"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"}


class ValueReads:
    """A source of the values that a script reads.

    `said(sentence)` is called once per kind of substitute. `step()` returns the number of the step.

    Raises:
        RuntimeError: an unknown value decides, or LBFGS reads one, or a line reads more than `MOST_ASKED` per step in a
            loop that only a value ends, elsewhere more than `MOST_ASKED_ELSEWHERE`; the message is one sentence.
    """

    def __init__(self, shadows: Shadows, said: Callable[[str], None], step: Callable[[], int]) -> None:
        self._shadows, self._said, self._step = shadows, said, step
        self._has_said = set[str]()
        # The last step, loop and line that read, and how often in a row.
        self._turn: tuple[tuple[int, ...], int] = ((), 0)
        self._often = Counter[str]()  # reads of unknown values in this step, by line
        self._counted_step = -1

    def say(self, sentence: str = OF_FLOATS) -> None:
        """Report a substitute, once."""
        if sentence not in self._has_said:
            self._has_said.add(sentence)
            self._said(sentence)

    def tensor(self, source: Tensor) -> Tensor:
        """Return the values of a tensor, for the CPU."""
        if not (source.is_floating_point() or self._shadows.knows(source)):
            if not self._shadows.is_choice(source):
                raise unknown_sizes(None)
            return self._choice(source)
        values = self._read(source)
        return fill_shape(source, UNKNOWN) if values is None else values

    def number(self, tensor: Tensor) -> Any:
        """Return the value of a tensor of one element."""
        if not (tensor.is_floating_point() or self._shadows.knows(tensor)):
            return self._integer(tensor)
        values = self._read(tensor)
        return UNKNOWN if values is None else values.item()

    def _read(self, tensor: Tensor) -> Tensor | None:
        """Return a tensor's values; count and report a read of unknown ones."""
        values = self._shadows.of(tensor)
        if values is None or self._shadows.is_guess(tensor):
            self._count()
        if values is None:
            self.say()
        return values

    def _choice(self, source: Tensor) -> Tensor:
        """Return substitutes for choices."""
        self._count()
        where = users_line(sys._getframe())
        what, value = ("booleans", "true") if source.dtype == torch.bool else ("integers", f"{UNKNOWN:g}")
        self.say(f"{what} that the script reads in {where} are taken as {value}, as they are not computed")
        return fill_shape(source, UNKNOWN)

    def _integer(self, tensor: Tensor) -> int:
        if self._shadows.is_choice(tensor) and tensor.dtype != torch.bool:
            return int(self._choice(tensor).item())
        if tensor.untyped_storage().nbytes() > tensor.element_size():
            raise unknown_sizes(None)
        where = users_line(sys._getframe())  # a storage of one number is rather a metric than a size
        if tensor.dtype == torch.bool and self._turns() > MOST_TURNS:
            self.say(f"a loop in {where} ends after {MOST_TURNS} turns, as the value that ends it is not computed")
            return False
        self._count()
        self.say(f"an integer that the script reads in {where} is taken as {UNKNOWN:g}, as it is not computed")
        return bool(UNKNOWN) if tensor.dtype == torch.bool else int(UNKNOWN)

    def _turns(self) -> int:
        """Return how many times in a row the line has read within one step and endless loop; 0 outside such loops."""
        line = _asking(sys._getframe())
        frame, is_endless = loop_around(line)
        if not is_endless:
            return 0
        here = (self._step(), id(frame), line.f_lineno)
        self._turn = (here, self._turn[1] + 1 if self._turn[0] == here else 1)
        return self._turn[1]

    def _count(self) -> None:
        """Count a line's read of an unknown value, and raise RuntimeError above the limit."""
        if self._counted_step != self._step():
            self._counted_step = self._step()
            self._often.clear()
        where, asking = users_line(sys._getframe()), _asking(sys._getframe())
        if asking.f_code.co_filename.endswith(_UNTIL_CONVERGED):
            raise RuntimeError(
                "LBFGS chooses its number of passes by values that are not computed: expected --play live, or another"
                " optimizer"
            )
        _, is_endless = loop_around(asking)
        most = MOST_ASKED if is_endless else MOST_ASKED_ELSEWHERE
        self._often[where] += 1
        if self._often[where] > most:
            raise RuntimeError(
                f"this line has read {most} times in a step a value that is not computed, as loops do that end by a"
                " value: expected a loop with a limit of its own"
            )


def _asking(frame: FrameType) -> FrameType:
    """Return the innermost frame that is neither this project's nor torch's in between."""
    while frame.f_back is not None and frame.f_code.co_filename.endswith((*_OWN, *_BETWEEN)):
        frame = frame.f_back
    return frame


def unknown_sizes(func: Any) -> RuntimeError:
    """Return the error for a script that cannot continue without a value; `func`: the operator that would return it."""
    if func is not None and torch.Tag.dynamic_output_shape not in func.tags:
        return RuntimeError(
            f"{func.name()} has no kernel for tensors without values: expected one of torch.library.register_fake"
        )
    what = "a value" if func is None else f"the result of {func.overloadpacket.__name__}"
    return RuntimeError(
        f"the script needs {what}, which is not computed: expected --play live, which computes all values on CPUs,"
        " or an argument of the script that leaves this line out, such as one that skips an evaluation"
    )


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
        # A `for` evaluates its iterable once, so only its body repeats.
        for first in [each.body[0] if isinstance(each, (ast.For, ast.AsyncFor)) else each]
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
