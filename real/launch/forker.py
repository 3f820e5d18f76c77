"""A process that loads torch once and forks a run's ranks: loading it takes longer than starting all else of a rank.

The launcher holds one end of a socket. For each rank it sends the variables that only this rank has, with the files
that it is to hold; it hears which ranks have ended. When its end is closed, by itself or because it was killed, all
ranks are killed.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from real.launch.parent import die_with
from real.launch.placement import PARENT

_NAMESPACE = "/proc/thread-self/ns/net"
_LARGEST_BYTES = 1 << 16
# A signal that is sent to all processes ends ranks and launcher in their own ways, not under them.
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Forker:
    """The launcher's end: starts ranks, and says which have ended.

    `command` replaces the process image of each rank; without it, a rank is `python -m real` in a process that has
    loaded torch already. `environment` holds the variables that all ranks share.
    """

    def __init__(self, command: Sequence[str] | None, environment: Mapping[str, str]) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._codes: dict[int, int] = {}
        self._ranks = 0
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "real.launch.forker", str(other.fileno()), str(os.getpid()), *(command or ())],
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                # A process group of its own, so that Ctrl-C reaches the launcher alone; not a session, as the
                # scheduler shares cores between sessions first (sched(7), autogroups).
                process_group=0,
            )

    def start(self, variables: Mapping[str, str], *, log: int, held: int | None) -> None:
        """Start the next rank, in the network namespace of the calling thread.

        `log` is the file of its output, `held` one that it holds under the number that it has here; both by their
        descriptors.
        """
        request = json.dumps({"variables": dict(variables), "held": held}).encode()
        with Path(_NAMESPACE).open("rb") as namespace:
            files = [log, namespace.fileno(), *([] if held is None else [held])]
            with suppress(OSError):  # the forker is gone, which `exit_codes` says
                socket.send_fds(self._socket, [request], files)
        self._ranks += 1

    @property
    def all_have_ended(self) -> bool:
        """Whether no rank runs any more."""
        return len(self.exit_codes()) == self._ranks

    def exit_codes(self) -> Mapping[int, int]:
        """Return the exit codes of the ranks that have ended so far, by rank; minus a signal's number for one."""
        with suppress(BlockingIOError):
            while len(self._codes) < self._ranks:
                self._hear(socket.MSG_DONTWAIT)
        return self._codes

    def end(self) -> None:
        """Kill what is left of all ranks and of what they have started; return when they are gone."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        while len(self._codes) < self._ranks:
            self._hear(0)
        self._socket.close()
        self._process.wait()

    def _hear(self, flags: int) -> None:
        try:
            said = self._socket.recv(_LARGEST_BYTES, flags)
        except ConnectionResetError:
            said = b""
        if said:
            rank, code = json.loads(said)
            self._codes[rank] = code
        else:  # the forker is gone, and its ranks with it
            code = self._process.wait()
            self._codes |= {rank: code for rank in range(self._ranks) if rank not in self._codes}


class _Ranks:
    """The forker's end: the ranks that run, and where their ends are told."""

    def __init__(self, launcher: socket.socket, command: Sequence[str]) -> None:
        self._launcher, self._command = launcher, command
        self._pids: list[int] = []
        self._running: dict[int, int] = {}
        # A signal wakes up `select` by a byte in a pipe.
        self._ends, self._wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        self._handlers = {number: signal.signal(number, signal.SIG_IGN) for number in _IGNORED}
        self._handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Start what is asked for until the launcher is through or gone; kill all ranks then."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._launcher, selectors.EVENT_READ)
            selector.register(self._ends, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._launcher:
                        if not self._fork(selector):
                            return self._kill()
                    else:
                        os.read(self._ends, _LARGEST_BYTES)
                self._reap(os.WNOHANG)

    def _fork(self, selector: selectors.BaseSelector) -> bool:
        """Start one rank; return whether there was a request for it."""
        try:
            request, files, _, _ = socket.recv_fds(self._launcher, _LARGEST_BYTES, 3)
        except ConnectionResetError:  # it was killed before it had heard all
            return False
        if not request:
            return False
        pid = os.fork()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                for number, handler in self._handlers.items():
                    signal.signal(number, handler)
                selector.close()
                for each in (self._ends, self._wakes):
                    os.close(each)
                self._launcher.close()
                _be_rank(json.loads(request), files, self._command)
            finally:
                os._exit(1)
        for each in files:
            os.close(each)
        with suppress(OSError):  # by whoever comes first
            os.setpgid(pid, pid)
        self._running[pid] = len(self._pids)
        self._pids.append(pid)
        return True

    def _reap(self, options: int) -> None:
        while self._running:
            pid, status = os.waitpid(-1, options)
            if not pid:
                return
            told = json.dumps((self._running.pop(pid), os.waitstatus_to_exitcode(status)))
            with suppress(OSError):  # nobody listens
                self._launcher.send(told.encode())

    def _kill(self) -> None:
        for pid in self._pids:  # those too that have ended: what they have started may live on
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        self._reap(0)


def _be_rank(request: dict[str, Any], files: list[int], command: Sequence[str]) -> None:
    """Run one rank in this process, which was just forked."""
    os.setpgid(0, 0)
    log, namespace, *held = files
    if not os.path.samestat(os.fstat(namespace), os.stat(_NAMESPACE)):  # even to enter one's own wants root
        from real.emulate.netns import enter  # noqa: PLC0415

        enter(namespace)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if held:
        os.dup2(held[0], request["held"])
    for descriptor in {log, namespace, *held} - {request["held"]}:
        os.close(descriptor)
    os.environ.update(request["variables"] | {PARENT: str(os.getppid())})
    if command:
        os.execvp(command[0], list(command))
    _be_real()


def _be_real() -> NoReturn:
    """Run `python -m real`, as if it were a process that has just begun."""
    import numpy as np  # noqa: PLC0415  (as in `_load`)

    from real.launch.rank_process import end_process, main  # noqa: PLC0415

    np.random.seed()  # else all ranks draw the same numbers from NumPy's own generator
    end_process(main)


def _load() -> None:
    """Load what a rank needs; nothing of CUDA begins with it, as a CUDA context does not live on in a fork."""
    import real.launch.worker  # noqa: F401, PLC0415  (loads torch, which a rank's own command has no need of)

    gc.collect()
    gc.freeze()  # else a rank's first collection copies all pages


def main(arguments: Sequence[str]) -> None:
    """Be the forker: the number of the socket, the launcher's process, the command of a rank."""
    number, launcher, *command = arguments
    die_with(int(launcher))
    with socket.socket(fileno=int(number)) as control:
        control.set_inheritable(False)
        if not command:
            _load()
        _Ranks(control, command).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
