"""A plugin of pytest: one collection, then processes that take test modules from shared queues.

The processes are forked from the one that has collected, so torch and all test modules are loaded once. A queue is a
pipe with the numbers of modules; a read takes the next number, whoever reads. Two workers begin with the modules that
wait for other processes half of the time, each with those that need the same server; two only compute, at a lower
priority, so that nobody's time-out is nearer than if the test ran alone.
"""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from mmap import mmap
from pathlib import Path
from typing import IO

import pytest

from real.launch.parent import die_with
from tests.lanes import COMPILING, LONGEST, POOLED, SCRIPTED, WAITING

NICENESS = 10
ROOT = Path(__file__).parent
NUMBER_BYTES = 2
NAME_BYTES = 1024
Modules = Sequence[Sequence[pytest.Item]]


class _Queue:
    """A pipe with the numbers of modules, and the niceness of who runs them."""

    def __init__(self, numbers: Iterable[int], niceness: int = 0) -> None:
        self._reader, writer = os.pipe()
        self._niceness = niceness
        os.write(writer, b"".join(number.to_bytes(NUMBER_BYTES) for number in numbers))
        os.close(writer)

    def __iter__(self) -> Iterator[int]:
        os.nice(self._niceness)  # more of it: `nice make check` keeps its own
        while number := os.read(self._reader, NUMBER_BYTES):
            yield int.from_bytes(number)


class _Workers:
    """Forks of the process that has collected, each of which prints into a file of its own.

    A worker that dies says nothing: the name of its test is in memory that it shares with the process that waits.
    """

    def __init__(self) -> None:
        self._running: dict[int, tuple[IO[str], mmap]] = {}

    def fork(self, config: pytest.Config) -> mmap | None:
        """Start a worker; return the memory for its test's name in the worker, None in the process that started it.

        An interruption of this process waits for `fail`, which prints what the workers have found.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        parent, output, name = os.getpid(), tempfile.TemporaryFile("w+", buffering=1), mmap(-1, NAME_BYTES)  # noqa: SIM115
        pid = os.fork()
        if pid:
            self._running[pid] = output, name
            return None
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        die_with(parent)
        for other, _ in self._running.values():
            other.close()
        config.get_terminal_writer()._file = output  # nothing public moves it
        return name

    def fail(self) -> int:
        """Wait for all workers, print what they printed, and return how many failed."""
        failed = 0
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            while self._running:
                failed += self._has_failed(next(iter(self._running)))
        except KeyboardInterrupt:  # Ctrl-C reaches the workers, too: what they have found is worth a look
            self.fail()
            raise
        return failed

    def _has_failed(self, pid: int) -> bool:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # interrupted here, the worker can be waited for again
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            _, status = os.waitpid(pid, 0)
            output, name = self._running.pop(pid)
            with output:
                output.seek(0)
                print(output.read(), end="", flush=True)
            test = name[:].rstrip(b"\0").decode(errors="replace")
            if status or test:
                print(f"a worker ended with {os.waitstatus_to_exitcode(status)}{test and f' in {test}'}", flush=True)
            return bool(status or test)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    if session.config.option.xmlpath:
        raise pytest.UsageError("--junitxml: expected `python -m pytest`, as each worker would write the file anew")
    if not session.items or session.testsfailed or session.config.option.collectonly:
        return None  # pytest's own says why
    modules, workers = _modules(session.items), _Workers()
    gc.freeze()  # else a worker's garbage collection would scan torch and all test modules, and copy their pages
    gc.enable()
    compiling, scripted, pooled, waiting, computing = _lanes(modules)
    # numba keeps on disk what it compiles: every worker would compile it otherwise.
    if compiling and (name := workers.fork(session.config)):
        return _work(session, modules, [_Queue(compiling)], name)
    session.testsfailed += workers.fail()
    scripts, pool, others = _Queue(scripted), _Queue(pooled), (_Queue(waiting), _Queue(computing, NICENESS))
    for given in ((scripts, *others, pool), (pool, *others, scripts), others[1:], others[1:]):
        if name := workers.fork(session.config):
            return _work(session, modules, given, name)
    # This process has run nothing: tests look at the children of theirs.
    session.testsfailed += workers.fail()
    session.config.pluginmanager.unregister(name="terminalreporter")
    return True


def _modules(items: Iterable[pytest.Item]) -> list[list[pytest.Item]]:
    """Return the tests by module; those that take longest first, as no worker must end long after the others."""
    found: dict[str, list[pytest.Item]] = {place: [] for place in LONGEST}
    for item in items:
        found.setdefault(os.path.relpath(item.path, ROOT), []).append(item)
    return [tests for tests in found.values() if tests]


def _lanes(modules: Modules) -> tuple[list[int], ...]:
    """Return the numbers of the modules of each lane; the last has those of no other."""
    lanes: tuple[list[int], ...] = tuple([] for _ in range(5))
    for number, items in enumerate(modules):
        place = os.path.relpath(items[0].path, ROOT)
        named = (lane for lane, places in enumerate((COMPILING, SCRIPTED, POOLED, WAITING)) if place.startswith(places))
        waits = any(item.get_closest_marker("real") for item in items)
        lanes[next(named, 3 if waits else 4)].append(number)
    return lanes


def _work(session: pytest.Session, modules: Modules, queues: Iterable[_Queue], name: mmap) -> bool:
    """Run what the queues give, as pytest's own loop does; `name` has the test that runs."""
    items = (item for queue in queues for number in queue for item in modules[number])
    item = next(items, None)
    while item is not None:
        following = next(items, None)
        name[:] = item.nodeid.encode()[:NAME_BYTES].ljust(NAME_BYTES, b"\0")
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        name[:] = bytes(NAME_BYTES)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        item = following
    return True
