"""A rank's process that runs late, and one that only waits for a processor."""

import time
from collections.abc import Callable
from multiprocessing import Pipe
from threading import Timer

import pytest

from scenarios.workloads.script.runner import comes_in_time

TIMEOUT_S, LATE_S = 0.05, 0.3


@pytest.mark.parametrize(
    ("starved_s", "comes"), [(time.monotonic, True), (lambda: 0.0, False)], ids=["busy machine", "idle machine"]
)
def test_time_without_a_processor_makes_no_rank_late(starved_s: Callable[[], float], comes: bool) -> None:
    receiving, sending = Pipe(duplex=False)
    sender = Timer(LATE_S, sending.send, ["a request"])
    sender.start()
    assert comes_in_time(receiving, TIMEOUT_S, starved_s) is comes
    sender.join()
