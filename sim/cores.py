"""Host cores in simulated time: threads that take turns on them, and how late a sleeping thread wakes up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random

from scenarios.hardware import Tcp
from sim.process import Clock

# For how long a thread keeps its core while others wait: of the order of Linux's own slices, and short against what is
# predicted.
_SLICE_NS = 200_000


class Cores:
    """Some cores and a queue of what wants to run; whoever runs for long goes to its end, a slice at a time."""

    __slots__ = ("_clock", "_free", "_queue")

    def __init__(self, clock: Clock, count: int) -> None:
        self._clock = clock
        self._free = count
        self._queue: deque[tuple[int, Callable[[], None]]] = deque()

    def run(self, work_ns: float, then: Callable[[], None]) -> None:
        """Work for so long on one core, and call `then`."""
        self._queue.append((round(work_ns), then))
        self._next()

    def _next(self) -> None:
        while self._free and self._queue:
            self._free -= 1
            work_ns, then = self._queue.popleft()
            turn_ns = min(work_ns, _SLICE_NS)
            self._clock.call_in(turn_ns, partial(self._turn_over, work_ns - turn_ns, then))

    def _turn_over(self, rest_ns: int, then: Callable[[], None]) -> None:
        self._free += 1
        if rest_ns:
            self._queue.append((rest_ns, then))
        else:
            then()
        self._next()


class Wakes:
    """How long a sleeping thread takes to run once it is told: the profile's median, or drawn from its quantiles."""

    __slots__ = ("_median_ns", "_quantiles", "_random")

    def __init__(self, tcp: Tcp, draw: str | None) -> None:
        """`draw` seeds the draws; with None every wake-up takes the median."""
        self._median_ns = tcp.wake_ns
        self._quantiles = tcp.wake_spread
        self._random = Random(draw) if draw is not None and len(tcp.wake_spread) > 1 else None

    def next_ns(self) -> int:
        """Of the next wake-up; between two quantiles every value is as likely as another."""
        if self._random is None:
            return self._median_ns
        place = self._random.random() * (len(self._quantiles) - 1)
        lower = int(place)
        low, high = self._quantiles[lower], self._quantiles[lower + 1]
        return round(self._median_ns * (low + (place - lower) * (high - low)))


class Thread:
    """One thread that serves what comes in, in order, and sleeps when there is nothing."""

    __slots__ = ("_busy", "_clock", "_cores", "_queue", "_wakes")

    def __init__(self, clock: Clock, cores: Cores, wakes: Wakes) -> None:
        self._clock = clock
        self._cores = cores
        self._wakes = wakes
        self._queue: deque[tuple[float, Callable[[], None]]] = deque()
        self._busy = False

    def run(self, work_ns: float, then: Callable[[], None]) -> None:
        """Serve this after all that came before; a thread that sleeps must wake up first."""
        self._queue.append((work_ns, then))
        if not self._busy:
            self._busy = True
            self._clock.call_in(self._wakes.next_ns(), self._serve)

    def _serve(self) -> None:
        work_ns, then = self._queue.popleft()
        self._cores.run(work_ns, lambda: self._served(then))

    def _served(self, then: Callable[[], None]) -> None:
        then()
        if self._queue:
            self._serve()
        else:
            self._busy = False
