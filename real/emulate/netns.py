"""Enters, shapes and deletes network namespaces by name, with iproute2. Linux, as root."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from scenarios.seam.errors import ScenarioError

FOLDER = Path("/run/netns")  # where iproute2 keeps names
_CLONE_NEWNET = 0x40000000  # linux/sched.h
_TOOLS = ("ip", "tc")
# Killed processes leave their namespace within ms; a process stuck in the kernel for longer is left alone.
_LEAVING_S = 2.0
_COMING_S = 10.0


class EmulationError(ScenarioError):
    """A sentence that says why hosts, or these hosts, cannot be emulated here."""


def check_able() -> None:
    """Raise EmulationError unless this process can create namespaces, as far as can be seen."""
    if not sys.platform.startswith("linux"):
        raise EmulationError(f"emulated hosts are network namespaces of Linux, and this is {sys.platform}")
    if os.geteuid() != 0:
        raise EmulationError("emulated hosts are network namespaces, which only root may make: run this with sudo")
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise EmulationError(f"emulated hosts need iproute2, but '{missing[0]}' is not on the PATH: install iproute2")


@contextmanager
def enter_namespace(namespace: str) -> Iterator[None]:
    """Enter a namespace with the calling thread for the duration of the context; what starts or opens inside stays
    there.

    Raises:
        FileNotFoundError: there is no such namespace.
    """
    with Path("/proc/thread-self/ns/net").open() as home, (FOLDER / namespace).open() as there:
        enter(there.fileno())
        try:
            yield
        finally:
            enter(home.fileno())


def batch(
    tool: str, lines: Iterable[str], *, namespace: str | None = None, lifelines: Sequence[int] = (), force: bool = False
) -> None:
    """Run all lines in one process of `ip` or `tc`, in a namespace or, without one, in the root namespace.

    The process holds the file descriptors `lifelines` open; with `force` all lines run, whatever fails.

    Raises:
        EmulationError: the kernel or the tool refused a line.
    """
    commands = list(lines)
    where = ["-n", namespace] if namespace is not None else []
    process = subprocess.run(
        [tool, *where, *(["-force"] if force else []), "-batch", "-"],
        input="\n".join([*commands, ""]),
        capture_output=True,
        text=True,
        check=False,
        pass_fds=lifelines,
    )
    if process.returncode != 0 and not force:
        failed = re.search(r"Command failed -:(\d+)", process.stderr)
        line = commands[int(failed[1]) - 1] if failed else commands[0]
        messages = process.stderr.strip().splitlines() or [f"exit code {process.returncode}"]
        raise EmulationError(f"this machine cannot emulate hosts: '{' '.join([tool, *where])} {line}': {messages[0]}")


def queues(namespace: str) -> list[dict[str, Any]]:
    """Return tc's statistics of the shaped interfaces of a namespace: "dev", "bytes", "drops", ..."""
    answer = subprocess.run(
        ["tc", "-n", namespace, "-s", "-j", "qdisc", "show"], capture_output=True, text=True, check=False
    )
    rows: list[dict[str, Any]] = json.loads(answer.stdout) if answer.returncode == 0 and answer.stdout.strip() else []
    return [row for row in rows if row["kind"] == "tbf"]


def wait_until_up(namespaces: Iterable[str]) -> None:
    """Wait until the interfaces carry frames: the kernel reports a bridge's ports up to a second late.

    Raises:
        EmulationError: an interface does not come up within 10 s.
    """
    until_s = time.monotonic() + _COMING_S
    for name in namespaces:
        while not _is_up(name):
            if time.monotonic() > until_s:
                raise EmulationError(f"this machine cannot emulate hosts: interfaces of '{name}' do not come up")
            time.sleep(0.01)


def _is_up(namespace: str) -> bool:
    answer = subprocess.run(["ip", "-n", namespace, "-j", "link"], capture_output=True, text=True, check=False)
    links = json.loads(answer.stdout) if answer.returncode == 0 else []
    return all(link["operstate"] == "UP" for link in links if "link_index" in link)


def set_options(namespace: str, options: Mapping[str, str]) -> None:
    """Set sysctls below net/ of a namespace, as far as this kernel has and grants them."""
    with enter_namespace(namespace):
        for key, value in options.items():
            with suppress(OSError):
                Path("/proc/sys/net", key).write_text(value)


def delete(namespaces: Sequence[str]) -> None:
    """Kill the processes in the namespaces and delete the names; the kernel ends a namespace with its last socket."""
    until_s = time.monotonic() + _LEAVING_S
    # Repeat: a process may fork between the listing and the kill.
    while (pids := _pids(namespaces)) and time.monotonic() < until_s:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    batch("ip", (f"netns delete {name}" for name in namespaces), force=True)


def _pids(namespaces: Sequence[str]) -> list[int]:
    """Return the processes in the namespaces, without zombies."""
    wanted = set()
    for name in namespaces:
        with suppress(OSError):
            wanted.add(_identity(FOLDER / name))
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone, or a zombie
            if _identity(process / "ns/net") in wanted:
                pids.append(int(process.name))
    return pids


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def enter(descriptor: int) -> None:
    """Enter the namespace of an open file with the calling thread."""
    libc = ctypes.CDLL(None, use_errno=True)  # os.setns is from Python 3.12 on
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")
