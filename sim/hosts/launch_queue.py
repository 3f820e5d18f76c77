"""Times the host's kernel launches on a stream, which run ahead of the GPU until it has to wait for them."""

from __future__ import annotations


class LaunchQueue:
    """The host's time of one stream: launches follow each other, whatever the GPU is doing.

    A program awaits its work in simulated time; on a real GPU an await lets the stream wait, and the host goes on. So a
    launch counts from the launch before it, and not from the end of what it depends on.
    """

    __slots__ = ("_until_ns",)

    def __init__(self) -> None:
        self._until_ns = 0

    def launch(self, since_ns: int, kernels: int, each_ns: int) -> tuple[int, int]:
        """When the first and the last of so many kernels are launched, the host being free from `since_ns` on."""
        begun_ns = max(self._until_ns, since_ns)
        self._until_ns = begun_ns + kernels * each_ns
        return min(begun_ns + each_ns, self._until_ns), self._until_ns
