"""Schedules the threads of hosts on their cores: run queues, timeslices, and wake-up latency."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from scenarios.config.faults import NOMINAL, Pace
from scenarios.config.hardware import Cluster
from scenarios.config.host_costs import Tcp
from sim.clock import Clock
from sim.jitter import Varying

# Linux lets a thread run for a slice before a woken one may take its core (EEVDF: 0.7 ms, times two on two to three
# cores). If a thread woke up during the slice, the scheduler decides at its next tick only (CONFIG_HZ = 250).
_SLICE_NS = 1_400_000
_TICK_NS = 4_000_000

# Idle time of cores before a run, longer than any nap.
_LONG_NS = 10**15

# Returns a thread's next work on its core and the core's pace for it, or None if there is none.
Next = Callable[[], tuple[float, Pace] | None]


@dataclass(slots=True, eq=False)
class _Turn:
    """A thread's work on a core, running or queued; `pace` is the core's speed for it, `left_ns` what was left."""

    thread: Thread
    left_ns: float
    pace: Pace
    then: Next
    began_ns: int = 0
    end_ns: int = 0
    is_over: bool = False

    def begin(self, now_ns: int) -> None:
        """Begin, or go on, now."""
        self.began_ns, self.end_ns = now_ns, now_ns + round(self.pace.takes_ns(self.left_ns, now_ns))

    def rest(self, now_ns: int) -> _Turn:
        """End the turn now, and return the rest of its work as another one."""
        self.is_over = True
        return _Turn(self.thread, self.left_ns - self.pace.work_ns(self.began_ns, now_ns), self.pace, self.then)


@dataclass(slots=True, eq=False)
class _Core:
    """A core and its run queue: threads that woke up come before those that have had a timeslice."""

    running: _Turn | None = None
    taken_ns: int = 0  # when the running thread took the core
    idle_since_ns: int = -_LONG_NS
    woken: deque[_Turn] = field(default_factory=deque)
    interrupted: deque[_Turn] = field(default_factory=deque)

    @property
    def waiting(self) -> int:
        """Number of threads that wait for the core."""
        return len(self.woken) + len(self.interrupted)

    def next_turn(self) -> _Turn:
        """Remove and return the next thread's turn; there must be one."""
        return (self.woken or self.interrupted).popleft()


class Cores:
    """The cores of a machine, with a run queue each.

    A thread that would have to wait migrates to an idle core, and an idle core steals a waiting thread. A share
    `stay_share` of these migrations is missed, as the system tends to keep threads where they are.
    """

    def __init__(self, clock: Clock, count: int, stay_share: float = 0.0, draw: str | None = None) -> None:
        """Create `count` idle cores; `draw` seeds which migrations are missed."""
        self._clock = clock
        self._cores = [_Core() for _ in range(count)]
        self._stay_share = stay_share
        self._random = Random(draw)

    def idle_ns(self, thread: Thread) -> int | None:
        """Return the idle time of the core on which the thread would run (its own, or the last to idle), or None if all
        are busy.
        """
        core = thread.home
        if core is None or core.running is not None:
            core = self._last_at_work()
        return None if core is None else self._clock.now_ns - core.idle_since_ns

    def has_queue(self, thread: Thread) -> bool:
        """Return whether other threads wait for the thread's core."""
        home = thread.home
        return home is not None and home.waiting > 0

    def run(self, thread: Thread, work_ns: float, then: Next, pace: Pace = NOMINAL) -> None:
        """Run `work_ns` of work on one core at a pace, then call `then`, and go on with the work that it returns."""
        turn = _Turn(thread, round(work_ns), pace, then)
        core = self._core_for(thread)
        running = core.running
        if running is not None and not running.is_over and self._clock.now_ns - core.taken_ns >= _SLICE_NS:
            self._interrupt(core, running)
        if core.running is None:
            self._begin(core, turn)
        else:
            # Behind earlier woken threads, but before interrupted ones.
            core.woken.append(turn)

    def _core_for(self, thread: Thread) -> _Core:
        """Choose the thread's own core, or an idle one if its own is busy."""
        home = thread.home
        if home is None:
            # A new thread goes to the core that has been idle longest, so that threads spread over the cores.
            home = min(self._cores, key=lambda core: (core.running is not None, core.waiting, core.idle_since_ns))
        elif home.running is not None:
            idle = self._last_at_work()
            if idle is not None and self._takes_chance():
                home = idle
        thread.home = home
        return home

    def _last_at_work(self) -> _Core | None:
        """Return the idle core that has worked last, or None if all are busy."""
        idle = (core for core in self._cores if core.running is None)
        return max(idle, key=lambda core: core.idle_since_ns, default=None)

    def _takes_chance(self) -> bool:
        return not self._stay_share or self._random.random() >= self._stay_share

    def _interrupt(self, core: _Core, turn: _Turn) -> None:
        """Free the core and queue the rest of the running thread's work."""
        core.running = None
        core.interrupted.append(turn.rest(self._clock.now_ns))

    def _begin(self, core: _Core, turn: _Turn) -> None:
        now_ns = self._clock.now_ns
        core.running, core.taken_ns = turn, now_ns
        turn.begin(now_ns)
        turn.thread.home = core
        self._look_later(core, turn)

    def _look_later(self, core: _Core, turn: _Turn) -> None:
        """Schedule the next check of a running turn: at its end, or at the first tick after its time slice."""
        now_ns = self._clock.now_ns
        due_ns = max(core.taken_ns + _SLICE_NS, now_ns + 1)
        # Ticks are at whole multiples of the period on every core, so this needs no event for each tick.
        tick_ns = -(-due_ns // _TICK_NS) * _TICK_NS
        self._clock.call_in(min(turn.end_ns, tick_ns) - now_ns, partial(self._look, core, turn))

    def _look(self, core: _Core, turn: _Turn) -> None:
        if turn.is_over:
            return
        if self._clock.now_ns < turn.end_ns:
            if core.waiting:
                self._interrupt(core, turn)
                self._begin(core, core.next_turn())
            else:
                self._look_later(core, turn)
            return
        turn.is_over = True
        after = turn.then()  # the thread still owns its core, so a thread that `then` wakes queues behind it
        if after is not None:
            more = _Turn(turn.thread, round(after[0]), after[1], turn.then)
            # `taken_ns` stays: the thread has kept its core, so its slice goes on.
            core.running = more
            more.begin(self._clock.now_ns)
            self._look_later(core, more)
            return
        core.running = None
        core.idle_since_ns = self._clock.now_ns
        if core.waiting:
            self._begin(core, core.next_turn())
        else:
            self._take_over(core)

    def _take_over(self, core: _Core) -> None:
        """Steal a thread that waits for another core."""
        fullest = max(self._cores, key=lambda other: other.waiting)
        if fullest.waiting and self._takes_chance():
            self._begin(core, fullest.next_turn())


class Wakes:
    """A model of wake-up latency of sleeping threads.

    An idle core takes time to wake up, more if it has been idle for longer than a nap. If all cores are busy, the
    thread only waits for its turn.
    """

    def __init__(self, clock: Clock, tcp: Tcp, draw: str | None) -> None:
        """Create the model; `draw` seeds its variation; with None every wake-up takes the mean."""
        self._clock = clock
        self._nap_ns = tcp.nap_ns
        self._soon_ns, self._late_ns = tcp.wake_soon_ns, tcp.wake_ns
        self._varying = Varying(tcp.wake_spread, None if draw is None else f"wake {draw}")

    def wake(self, thread: Thread, then: Callable[[], None]) -> None:
        """Call `then` when a thread that is woken now is ready to run on a core."""
        idle_ns = thread.cores.idle_ns(thread)
        if idle_ns is None:
            then()
        else:
            mean_ns = self._soon_ns if idle_ns < self._nap_ns else self._late_ns
            self._clock.call_in(round(mean_ns * self._varying.next()), then)


class Thread:
    """A thread that executes its work in order. A serving thread sleeps when it has no work."""

    __slots__ = ("_queue", "_sleeps", "_wakes", "cores", "home", "is_busy")

    def __init__(self, cores: Cores, wakes: Wakes, *, sleeps: bool) -> None:
        """Create an idle thread; `sleeps`: the thread must wake up before new work, unless it is busy."""
        self.cores = cores
        self.home: _Core | None = None  # the core of its last or next turn
        self._wakes = wakes
        self._sleeps = sleeps
        self._queue: deque[tuple[float, Pace, Callable[[], None]]] = deque()
        self.is_busy = False

    def run(self, work_ns: float, then: Callable[[], None], pace: Pace = NOMINAL) -> None:
        """Queue `work_ns` of work at a pace behind earlier work, and call `then` at its end."""
        if not (work_ns or self.is_busy or self._sleeps):
            then()
            return
        # In the queue before the wake-up: later work queues behind it, and needs no wake-up of its own.
        self._queue.append((work_ns, pace, then))
        if self.is_busy:
            return
        self.is_busy = True
        if self._sleeps:
            self._wakes.wake(self, self._serve)
        else:
            self._serve()

    def wake(self, work_ns: float, then: Callable[[], None]) -> None:
        """Queue work for a blocked thread, adding wake-up latency."""
        self._wakes.wake(self, lambda: self.run(work_ns, then))

    def _serve(self) -> None:
        work_ns, pace, _ = self._queue[0]
        self.cores.run(self, work_ns, self._finish_serving, pace)

    def _finish_serving(self) -> tuple[float, Pace] | None:
        _, _, then = self._queue.popleft()
        then()
        # After `then`, which may queue more work: the thread then goes on without sleeping in between.
        self.is_busy = bool(self._queue)
        return self._queue[0][:2] if self._queue else None


class HostCores:
    """The cores of each host, or of one machine for all hosts, and the threads of each rank.

    A rank's program runs in one thread per stream, which executes its verbs and, on a CPU, its kernels. Each of the
    rank's groups has one thread that serves the sockets, and passes every collective to a worker.
    """

    def __init__(self, clock: Clock, cluster: Cluster, tcp: Tcp, draw: str | None) -> None:
        self.tcp = tcp
        self._gpus = cluster.host.gpus
        machines = 1 if cluster.hosts_share_cores else cluster.hosts
        self._cores = [
            Cores(clock, cluster.host.cores, tcp.stay_share, f"cores {draw} {index}") for index in range(machines)
        ]
        self._wakes = Wakes(clock, tcp, draw)
        self._issue = Varying(tcp.issue_spread, None if draw is None else f"issue {draw}")
        # One generator for each effect: a change of one model does not shift the draws of another.
        self._random = Random(f"spin {draw}")
        self._programs: dict[tuple[int, str], Thread] = {}
        self._loops: dict[tuple[int, str], Thread] = {}

    def program(self, rank: int, stream: str) -> Thread:
        """Return the thread that runs a rank's program on a stream."""
        return self._programs.setdefault((rank, stream), self._thread(rank))

    def issue_ns(self, *, is_cold: bool) -> int:
        """Return the CPU time in ns of the program's next operation before its first byte is sent.

        `is_cold`: the step has computed, so the interpreter's working set has been evicted from cache.
        """
        return round(self.tcp.issue_ns * self._issue.next()) + self.tcp.cold_ns * is_cold

    def loop(self, rank: int, group: str) -> Thread:
        """Return the thread that serves a group's sockets on a rank."""
        key = (rank, group)
        if key not in self._loops:
            self._loops[key] = self._thread(rank, sleeps=True)
        return self._loops[key]

    def worker(self, rank: int) -> Thread:
        """Create a thread for one collective."""
        return self._thread(rank)

    def spin_ns(self, loop: Thread) -> float:
        """Return for how many ns this thread spins on a lock whose owner posts now; 0 if it does not spin."""
        if not (self.tcp.spin_share and loop.is_busy and loop.cores.has_queue(loop)):
            return 0.0
        # Python draws the condition first: swapping these two draws would change every run with spins.
        return self._random.random() * self.tcp.spin_ns if self._random.random() < self.tcp.spin_share else 0.0

    def _thread(self, rank: int, *, sleeps: bool = False) -> Thread:
        return Thread(self._cores[rank // self._gpus % len(self._cores)], self._wakes, sleeps=sleeps)
