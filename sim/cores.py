"""Host cores in simulated time: threads that take turns on them, and how late a sleeping thread wakes up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from scenarios.hardware import Tcp
from sim.process import Clock

# Linux lets a thread run for a slice before one that wakes up may take its place (EEVDF's base slice: 0.7 ms, times two
# on two to three cores), and longer where nobody looks before the next tick. Six steps whose kernels and messages
# compete for two cores were off by 5.8 % in the mean with 1.5 and 3 ms, 7.6 % with 0.05 and 0.2, 7.3 % with 4 and 4.
_SHORT_NS = 1_400_000
_SLICE_NS = 3_000_000

# Before a run the cores have been idle for longer than any nap.
_LONG_NS = 10**15

# What a thread does next on its core: nothing, or so many ns of work.
Next = Callable[[], float | None]


class _Turn:
    """One thread on a core, or in the queue for one."""

    __slots__ = ("began_ns", "is_over", "left_ns", "then")

    def __init__(self, work_ns: float, then: Next) -> None:
        self.left_ns = round(work_ns)
        self.then = then
        self.began_ns = 0
        self.is_over = False


class Cores:
    """Some cores and a queue of what wants to run. Long work makes room for short, and long work takes turns."""

    __slots__ = ("_clock", "_idle_since_ns", "_queue", "_running")

    def __init__(self, clock: Clock, count: int) -> None:
        self._clock = clock
        self._idle_since_ns = [-_LONG_NS] * count  # of each idle core; who was at work last is at the end
        self._queue: deque[_Turn] = deque()
        self._running: list[_Turn] = []

    @property
    def has_idle(self) -> bool:
        """Whether a core has nothing to do."""
        return bool(self._idle_since_ns)

    @property
    def idle_ns(self) -> int:
        """For how long the idle core has had nothing to do that was last at work."""
        return self._clock.now_ns - self._idle_since_ns[-1]

    @property
    def has_queue(self) -> bool:
        """Whether somebody waits for a core."""
        return bool(self._queue)

    def run(self, work_ns: float, then: Next) -> None:
        """Work for so long on one core, then call `then`, and go on with what it returns."""
        turn = _Turn(work_ns, then)
        if not self.has_idle:
            self._make_room()
        if self.has_idle:
            self._begin(turn)
        else:
            self._queue.append(turn)

    def _make_room(self) -> None:
        """The thread that has run longest, if it was long, steps aside."""
        if self._running:
            longest = min(self._running, key=lambda turn: turn.began_ns)
            ran_ns = self._clock.now_ns - longest.began_ns
            if ran_ns >= _SHORT_NS:
                self._step_aside(longest, ran_ns)

    def _step_aside(self, turn: _Turn, ran_ns: int) -> None:
        """What is left of it goes into the queue; its core is free."""
        rest = _Turn(turn.left_ns - ran_ns, turn.then)
        turn.is_over = True
        self._running.remove(turn)
        self._idle_since_ns.append(self._clock.now_ns)
        self._queue.append(rest)

    def _begin(self, turn: _Turn) -> None:
        self._idle_since_ns.pop()
        self._running.append(turn)
        turn.began_ns = self._clock.now_ns
        self._clock.call_in(min(turn.left_ns, _SLICE_NS), partial(self._look, turn, min(turn.left_ns, _SLICE_NS)))

    def _look(self, turn: _Turn, ran_ns: int) -> None:
        """At the end of the work, or of a slice of it."""
        if turn.is_over:
            return
        if ran_ns < turn.left_ns:
            if self._queue:
                self._step_aside(turn, ran_ns)
                self._begin(self._queue.popleft())
            else:
                more_ns = min(turn.left_ns - ran_ns, _SLICE_NS)
                self._clock.call_in(more_ns, partial(self._look, turn, ran_ns + more_ns))
            return
        self._running.remove(turn)
        next_ns = turn.then()  # it still has its core
        self._idle_since_ns.append(self._clock.now_ns)
        if next_ns is not None:
            self._begin(_Turn(next_ns, turn.then))
        elif self._queue:
            self._begin(self._queue.popleft())


class Varying:
    """A time that varies from one time to the next: its mean, or drawn from its quantiles."""

    __slots__ = ("_mean_ns", "_quantiles", "_random")

    def __init__(self, mean_ns: int, quantiles: Sequence[float], draw: str | None) -> None:
        """`quantiles` over the mean, equally far apart; `draw` seeds the draws, with None each time is the mean."""
        self._mean_ns = mean_ns
        self._quantiles = quantiles
        self._random = Random(draw) if draw is not None and len(quantiles) > 1 else None

    def next_ns(self) -> int:
        """The next time; between two quantiles every value is as likely as another."""
        if self._random is None:
            return self._mean_ns
        place = self._random.random() * (len(self._quantiles) - 1)
        lower = int(place)
        low, high = self._quantiles[lower], self._quantiles[lower + 1]
        return round(self._mean_ns * (low + (place - lower) * (high - low)))


class Wakes:
    """How long a sleeping thread takes to run once it is told.

    What takes its time is that an idle core wakes up, the more so if it has been idle for more than a nap. Where all
    cores are at work, the thread only takes its turn.
    """

    __slots__ = ("_clock", "_late", "_nap_ns", "_soon")

    def __init__(self, clock: Clock, tcp: Tcp, draw: str | None) -> None:
        """`draw` seeds what varies; with None every wake-up takes the mean."""
        self._clock = clock
        self._nap_ns = tcp.nap_ns
        self._late = Varying(tcp.wake_ns, tcp.wake_spread, None if draw is None else f"wake {draw}")
        self._soon = Varying(tcp.wake_soon_ns, tcp.wake_spread, None if draw is None else f"wake soon {draw}")

    def wake(self, cores: Cores, then: Callable[[], None]) -> None:
        """Call `then` when a thread that was told to go on is ready to run on one of these cores."""
        if not cores.has_idle:
            then()
        else:
            wake = self._soon if cores.idle_ns < self._nap_ns else self._late
            self._clock.call_in(wake.next_ns(), then)


class Thread:
    """One thread: it does one thing after another. One that serves what comes in sleeps when there is nothing."""

    __slots__ = ("_busy", "_queue", "_sleeps", "_wakes", "cores")

    def __init__(self, cores: Cores, wakes: Wakes, *, sleeps: bool) -> None:
        """`sleeps`: it must wake up before it does something, unless it is at something else."""
        self.cores = cores
        self._wakes = wakes
        self._sleeps = sleeps
        self._queue: deque[tuple[float, Callable[[], None]]] = deque()
        self._busy = False

    def run(self, work_ns: float, then: Callable[[], None]) -> None:
        """Work for so long after all that came before, and call `then`."""
        if not (work_ns or self._busy or self._sleeps):
            then()
            return
        self._queue.append((work_ns, then))
        if self._busy:
            return
        self._busy = True
        if self._sleeps:
            self._wakes.wake(self.cores, self._serve)
        else:
            self._serve()

    def wake(self, work_ns: float, then: Callable[[], None]) -> None:
        """The same for a thread that was told to go on after it had waited."""
        self._wakes.wake(self.cores, lambda: self.run(work_ns, then))

    @property
    def is_busy(self) -> bool:
        """Whether it is at work, or about to be."""
        return self._busy

    def _serve(self) -> None:
        self.cores.run(self._queue[0][0], self._served)

    def _served(self) -> float | None:
        _, then = self._queue.popleft()
        then()
        self._busy = bool(self._queue)
        return self._queue[0][0] if self._queue else None
