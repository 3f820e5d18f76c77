"""Find what launched a kernel: operators, annotations and modules around the launch, and forward of backward.

A launch belongs to the events open on its thread at that moment; without a launch or an open event, to the operator
whose "External id" the kernel carries. A function of autograd carries the sequence number of the operator that made it
and a number of that operator's thread, which is matched with the thread whose operators have these sequence numbers.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from reports.kineto.trace_file import ANNOTATION, CPU_OP, MODULE, MODULES_NAME, Event, TraceFile, whole_number

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
NOWHERE = -1

# Annotations that torch itself puts around every collective add nothing to the collective's kind.
_OWN = re.compile(r"ProfilerStep[#*]|(?:nccl|gloo|c10d|mpi|ucc):")
_OPTIMIZER = re.compile(r"Optimizer\.step#")
_EVALUATES = "autograd::engine::evaluate_function: "
_ACCUMULATES = f"{_EVALUATES}torch::autograd::AccumulateGrad"
_CALLS = re.compile(r"c10d::|_c10d_functional::|record_param_comms$")
_SEQUENCE = "Sequence number"
# A thread with more functions of backward passes per forward operator than this is autograd's own.
_HARDLY = 10
_LARGEST = 2**62


@dataclass(frozen=True, slots=True)
class KernelOrigin:
    """The reason why a kernel was launched; "" is unknown.

    `operator` is the outermost operator around the launch, in a backward pass that of its forward operator, for a
    communication its call. `modules` are annotations and modules, the outermost first, in a backward pass those around
    the forward operator. `label` names the innermost annotation or module, else `operator`; `opened` is when and on
    which thread that began.
    """

    operator: str = ""
    phase: str = FORWARD
    modules: tuple[str, ...] = ()
    label: str = ""
    opened: tuple[int, tuple[str, str]] = (0, ("", ""))
    is_annotated: bool = False


_UNKNOWN = KernelOrigin()


class Operators:
    """The operators, annotations and modules of one trace, each with its enclosing event on its thread."""

    def __init__(self, trace: TraceFile) -> None:
        annotations = [one for one in trace.events.get(ANNOTATION, []) if not _OWN.match(one.name)]
        operators = trace.events.get(CPU_OP, [])
        listed = [*operators, *annotations, *trace.events.get(MODULE, [])]
        order = sorted(range(len(listed)), key=lambda at: listed[at].order)
        self.events = [listed[at] for at in order]
        self._is_scope = [at >= len(operators) for at in order]
        self.parents = [NOWHERE] * len(order)
        self._threads: dict[tuple[str, str], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        self._known: dict[tuple[int, bool], KernelOrigin] = {}
        self._nest()

    def innermost(self, issue: Event, args: Mapping[str, object]) -> int:
        """Return the place of the innermost event open at `issue`, whose kernel has `args`; `NOWHERE` if none was."""
        starts, places = self._threads.get(issue.thread, ((), ()))
        at = bisect_right(starts, issue.start_ns) - 1
        found = places[at] if at >= 0 else NOWHERE
        while found != NOWHERE and self.events[found].end_ns < issue.start_ns:
            found = self.parents[found]
        if found == NOWHERE and (number := args.get("External id")) is not None:
            return self._by_number.get(str(number), NOWHERE)
        return found

    def above(self, place: int) -> list[int]:
        """Return a place and its enclosing places, the innermost first."""
        found = []
        while place != NOWHERE:
            found.append(place)
            place = self.parents[place]
        return found

    def is_operator(self, place: int) -> bool:
        """Return whether the event at `place` is an operator, not an annotation or a module."""
        return not self._is_scope[place]

    def origin(self, place: int, *, communicates: bool = False) -> KernelOrigin:
        """Return the origin of a kernel launched at `place`; `communicates`: the kernel is a collective."""
        key = place, communicates
        if key not in self._known:
            self._known[key] = self._origin(self.above(place), communicates=communicates)
        return self._known[key]

    def forward(self, place: int) -> int:
        """Return the place of the operator that made the function of autograd at `place`, or around it."""
        return next((found for one in self.above(place) if (found := self._creators.get(one, NOWHERE)) >= 0), NOWHERE)

    def within(self, place: int) -> Iterator[int]:
        """Yield the places of the direct children of the operator at `place`, by their starts."""
        for inside in range(place + 1, len(self.events)):
            event = self.events[inside]
            if event.start_ns > self.events[place].end_ns:
                return
            if self.parents[inside] == place:
                yield inside

    def functions_made_by(self, place: int) -> list[int]:
        """Return the functions of autograd that the operator at `place` made."""
        return self._functions.get(place, [])

    def _origin(self, above: Sequence[int], *, communicates: bool) -> KernelOrigin:
        own = [one for one in above if self.is_operator(one)]
        scopes = [one for one in above if not self.is_operator(one)]
        forward = self.above(self.forward(above[0])) if above else []
        phase = self._phase(above)
        operators = [one for one in forward if self.is_operator(one)] or own
        calls = [one for one in own if _CALLS.match(self.events[one].name)] if communicates else []
        named = (calls or operators or [NOWHERE])[-1]
        modules = [one for one in forward if not self.is_operator(one)] or scopes
        opened = next(iter([*scopes, *modules, *operators[-1:]]), NOWHERE)
        if opened == NOWHERE:
            return _UNKNOWN
        is_of_forward = bool(forward) and not scopes
        return KernelOrigin(
            operator="" if named == NOWHERE else self._name(named),
            phase=phase,
            modules=tuple(map(self._name, reversed(modules))),
            label=self._name(opened) + (" (backward)" if is_of_forward else ""),
            opened=(self.events[opened].start_ns, self.events[opened].thread),
            is_annotated=bool(modules),
        )

    def _phase(self, above: Sequence[int]) -> str:
        names = [self.events[one].name for one in above]
        if any(_OPTIMIZER.match(name) for name in names):
            return OPTIMIZER
        is_backward = any(name.startswith(_EVALUATES) for name in names)
        on_autograds = bool(above) and self.events[above[0]].thread in self._of_autograd
        return BACKWARD if is_backward or on_autograds else FORWARD

    def _name(self, place: int) -> str:
        return self.events[place].name.removeprefix(_EVALUATES).removeprefix(MODULES_NAME)

    def _nest(self) -> None:
        stacks: dict[tuple[str, str], list[int]] = defaultdict(list)
        for place, event in enumerate(self.events):
            stack = stacks[event.thread]
            while stack and self.events[stack[-1]].end_ns <= event.start_ns < event.end_ns:
                stack.pop()
            while stack and self.events[stack[-1]].end_ns < event.start_ns:
                stack.pop()
            self.parents[place] = stack[-1] if stack else NOWHERE
            stack.append(place)
            starts, places = self._threads[event.thread]
            starts.append(event.start_ns)
            places.append(place)

    @cached_property
    def _by_number(self) -> dict[str, int]:
        """Return places by the number that an operator and the kernels launched in it carry."""
        numbered = ((str(one.args.get("External id")), at) for at, one in enumerate(self.events))
        return {number: at for number, at in numbered if number != "None"}

    @cached_property
    def _of_autograd(self) -> set[tuple[str, str]]:
        """Return the (process, thread) pairs of autograd's own threads.

        They run many more backward functions than forward operators.
        """
        forward, functions = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        until: dict[tuple[str, str], int] = {}
        for place, event in enumerate(self.events):
            if self.is_operator(place) and event.end_ns > until.get(event.thread, -1):
                until[event.thread] = event.end_ns
                is_function = event.name.startswith(_EVALUATES)
                functions[event.thread] += is_function
                forward[event.thread] += not is_function and _SEQUENCE in event.args
        return {thread for thread, count in functions.items() if count > _HARDLY * forward[thread]}

    @cached_property
    def _functions(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = defaultdict(list)
        for function, forward in self._creators.items():
            found[forward].append(function)
        return found

    @cached_property
    def _creators(self) -> dict[int, int]:
        """Return, for each backward function of autograd, the forward operator that created it, as places in the trace.

        A gradient's accumulation has no sequence number and counts as created with the function that ran before it.
        """
        makers: dict[tuple[tuple[str, str], int], int] = {}
        backward: list[tuple[int, int, str]] = []
        for place, event in enumerate(self.events):
            sequence = whole_number(event.args.get(_SEQUENCE), _LARGEST)
            if sequence is None or not self.is_operator(place):
                continue
            if event.name.startswith(_EVALUATES):
                backward.append((place, sequence, str(event.args.get("Fwd thread id"))))
            elif not whole_number(event.args.get("Fwd thread id"), _LARGEST):
                makers[event.thread, sequence] = place  # the last one wins: earlier ones made no function
        return self._with_accumulations(_match(makers, backward))

    def _with_accumulations(self, made: dict[int, int]) -> dict[int, int]:
        before: dict[tuple[str, str], int] = {}
        found = dict(made)
        for place, event in enumerate(self.events):
            if event.name == _ACCUMULATES:
                if event.thread in before:
                    found[place] = before[event.thread]
            elif place in made:
                before[event.thread] = made[place]
        return found


def _match(
    makers: Mapping[tuple[tuple[str, str], int], int], backward: Iterable[tuple[int, int, str]]
) -> dict[int, int]:
    """Return for each function of autograd the operator with its sequence number on the thread that its number means.

    A number means the thread that has most of the sequence numbers recorded together with that number.
    """
    threads = dict.fromkeys(thread for thread, _ in makers)
    votes: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    listed = list(backward)
    for place, sequence, number in listed:
        votes[number].update(thread for thread in threads if makers.get((thread, sequence), place) < place)
    meant = {number: max(threads, key=lambda thread: counts[thread]) for number, counts in votes.items() if counts}
    found = {}
    for place, sequence, number in listed:
        maker = makers.get((meant[number], sequence)) if number in meant else None
        if maker is not None and maker < place:
            found[place] = maker
    return found
