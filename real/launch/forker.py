"""A process that loads torch once and forks a run's ranks: loading torch takes longer than the rest of a rank's start.

A process is a rank, unless `ENTRY` names another function. The launcher holds one end of a socket. For each rank it
sends the variables that only this rank has, with the file descriptors that the rank keeps; it receives the ranks that
have ended. When its end closes, also because the launcher was killed, the forker kills all ranks.
"""

from __future__ import annotations

import gc
import importlib
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

from real.launch.parent import die_with, module_command
from real.launch.placement import ENTRY, PARENT

_NAMESPACE = "/proc/thread-self/ns/net"
_LARGEST_BYTES = 1 << 16
# Ctrl-C and signals to all processes must not end the forker before the ranks and the launcher have ended on their own.
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Forker:
    """The launcher's end: starts ranks, and reports which ranks have ended.

    `command` replaces the process image of each rank; without it, a rank is `python -m real` in a process that has
    loaded torch already. `environment` holds the variables that all ranks share.
    """

    def __init__(self, command: Sequence[str] | None, environment: Mapping[str, str]) -> None:
        # Sequenced packets keep a request and its descriptors in one message, which a stream would not.
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._codes: dict[int, int] = {}
        self._ranks = 0
        with other:
            self._process = start_process(other, command or (), environment)

    def start(self, variables: Mapping[str, str], *, log: int, held: int | None) -> None:
        """Start the next rank, in the network namespace of the calling thread.

        Args:
            variables: environment variables of this rank alone.
            log: descriptor of the file for the rank's output.
            held: descriptor that the rank keeps open under the same number.
        """
        request = json.dumps({"variables": dict(variables), "held": held}).encode()
        with Path(_NAMESPACE).open("rb") as namespace:
            files = [log, namespace.fileno(), *([] if held is None else [held])]
            with suppress(OSError):  # the forker has ended; `exit_codes` reports it
                socket.send_fds(self._socket, [request], files)
        self._ranks += 1

    @property
    def all_have_ended(self) -> bool:
        """Whether every rank has ended."""
        return len(self.exit_codes()) == self._ranks

    def exit_codes(self) -> Mapping[int, int]:
        """Return the exit codes of the ranks that have ended so far, by rank; -n for a rank killed by signal n."""
        # Non-blocking: this is called between other duties of the launcher, and most calls find no report.
        with suppress(BlockingIOError):
            while len(self._codes) < self._ranks:
                self._hear(socket.MSG_DONTWAIT)
        return self._codes

    def end(self) -> None:
        """Kill all ranks and the processes that they have started; return when the ranks have ended."""
        with suppress(OSError):
            # The forker kills all ranks at the end of this stream; its reports still arrive on the socket.
            self._socket.shutdown(socket.SHUT_WR)
        while len(self._codes) < self._ranks:
            self._hear(0)
        self._socket.close()
        self._process.wait()

    def _hear(self, flags: int) -> None:
        try:
            report = self._socket.recv(_LARGEST_BYTES, flags)
        except ConnectionResetError:
            report = b""
        if report:
            rank, code = json.loads(report)
            self._codes[rank] = code
        else:  # the forker has ended, and its ranks with it
            code = self._process.wait()
            self._codes |= {rank: code for rank in range(self._ranks) if rank not in self._codes}


def start_process(
    control: socket.socket, command: Sequence[str], environment: Mapping[str, str], module: str = "real.launch.forker"
) -> subprocess.Popen[bytes]:
    """Start a process that runs `module` as a program: a server that loads torch once and forks ranks.

    `control` is the server's end of a socket to it; `command` are further arguments.
    """
    return subprocess.Popen(
        [*module_command(module), str(control.fileno()), str(os.getpid()), *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        pass_fds=[control.fileno()],
        # A process group of its own, so that Ctrl-C reaches the launcher alone; not a session, as the scheduler shares
        # cores between sessions first (sched(7), autogroups).
        process_group=0,
    )


class _Ranks:
    """The forker's end: starts ranks on request, and reports each end to the launcher."""

    def __init__(self, launcher: socket.socket, command: Sequence[str]) -> None:
        self._launcher, self._command = launcher, command
        self._pids: list[int] = []
        self._running: dict[int, int] = {}
        # `select` does not return for a signal, but for the byte that a signal writes into this pipe.
        self._ends, self._wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        self._handlers = {number: signal.signal(number, signal.SIG_IGN) for number in _IGNORED}
        # A handler that does nothing: with the default disposition no byte would be written into the wake-up pipe.
        self._handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Start requested ranks until the launcher has finished or died; kill all ranks then."""
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
                # After every wake-up: signals of several children may be merged into one.
                self._reap(os.WNOHANG)

    def _fork(self, selector: selectors.BaseSelector) -> bool:
        """Start one rank; return False if the launcher has closed its end."""
        try:
            request, files, _, _ = socket.recv_fds(self._launcher, _LARGEST_BYTES, 3)
        except ConnectionResetError:  # the launcher was killed with unread reports in its socket
            return False
        if not request:
            return False
        pid = os.fork()
        if pid == 0:
            try:
                # The rank must neither write into the forker's pipe nor ignore the signals that the forker ignores.
                signal.set_wakeup_fd(-1)
                for number, handler in self._handlers.items():
                    signal.signal(number, handler)
                selector.close()
                for descriptor in (self._ends, self._wakes):
                    os.close(descriptor)
                self._launcher.close()
                _be_rank(json.loads(request), files, self._command)
            finally:
                os._exit(1)  # whatever the rank raises, it must not return into the forker's loop
        for descriptor in files:
            os.close(descriptor)
        with suppress(OSError):  # parent and child both set the group, so that it is set whoever runs first
            os.setpgid(pid, pid)
        self._running[pid] = len(self._pids)
        self._pids.append(pid)
        return True

    def _reap(self, options: int) -> None:
        while self._running:
            pid, status = os.waitpid(-1, options)
            if not pid:
                return
            report = json.dumps((self._running.pop(pid), os.waitstatus_to_exitcode(status)))
            with suppress(OSError):  # the launcher has closed its end
                self._launcher.send(report.encode())

    def _kill(self) -> None:
        for pid in self._pids:  # ended ranks too: processes that they have started may live on
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        self._reap(0)


def _be_rank(request: dict[str, Any], files: list[int], command: Sequence[str]) -> None:
    """Run one rank in this process, which was just forked."""
    # A group of its own, so that `killpg` also ends the processes that the rank starts.
    os.setpgid(0, 0)
    log, namespace, *held = files
    if not os.path.samestat(os.fstat(namespace), os.stat(_NAMESPACE)):  # entering needs root, even one's own namespace
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
    """Run `python -m real`, or the function of `ENTRY`, as a process that has just begun."""
    import numpy as np  # noqa: PLC0415  (as in `_load`)

    from real.launch.job import function  # noqa: PLC0415
    from real.launch.rank_process import end_process, main  # noqa: PLC0415

    np.random.seed()  # forks inherit the generator's state: all ranks would draw the same numbers
    end_process(function(os.environ[ENTRY]) if ENTRY in os.environ else main)


def _load() -> None:
    """Load what a rank needs; do not initialise CUDA, as a CUDA context does not survive a fork."""
    # Loads torch, which ranks with a command of their own do not need.
    importlib.import_module(os.environ.get(ENTRY, "real.launch.worker").partition(":")[0])
    gc.collect()
    gc.freeze()  # otherwise a rank's first collection copies all shared pages


def main(arguments: Sequence[str]) -> None:
    """Run the forker. Arguments: the socket's descriptor, the launcher's process id, the command of a rank."""
    number, launcher, *command = arguments
    die_with(int(launcher))
    with socket.socket(fileno=int(number)) as control:
        control.set_inheritable(False)
        if not command:
            _load()
        _Ranks(control, command).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
