"""Values that a script on a simulated GPU reads: known ones, or substitutes, which are reported."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from scenarios.workloads.script.gpu.known_values import OF_FLOATS, UNKNOWN, Shadows, fill_shape
from scenarios.workloads.script.gpu.values.loops import loop_around
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
        self._turn: tuple[tuple[int, ...], int] = (
            (),
            0,
        )  # the last step, loop and line that read, and how often in a row
        self._often = Counter[str]()  # reads of unknown values in this step, by line
        self._counted_step = -1

    def say(self, sentence: str = OF_FLOATS) -> None:
        """Report a substitute, once."""
        if sentence not in self._has_said:
            self._has_said.add(sentence)
            self._said(sentence)

    def tensor(self, source: Tensor) -> Tensor:
        """Return the values of a tensor, for the CPU."""
        values = self._shadows.of(source)
        if values is None and not source.is_floating_point():
            raise unknown_sizes(None)
        if values is None or self._shadows.is_guess(source):
            self._count()
        if values is not None:
            return values
        self.say()
        return fill_shape(source, UNKNOWN)

    def number(self, tensor: Tensor) -> Any:
        """Return the value of a tensor of one element."""
        values = self._shadows.of(tensor)
        if values is None and not tensor.is_floating_point():
            return self._integer(tensor)
        if values is None or self._shadows.is_guess(tensor):
            self._count()
        if values is not None:
            return values.item()
        self.say()
        return UNKNOWN

    def _integer(self, tensor: Tensor) -> int:
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
