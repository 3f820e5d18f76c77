from __future__ import annotations

import gc
import threading
import time

import pytest
import torch

from real.ddp.worker import Worker

CPU = torch.device("cpu")


def test_jobs_run_one_after_the_other_and_promises_settle_after_them() -> None:
    worker, order, buffer = Worker(), list[str](), torch.zeros(3)
    promise = worker.promise(buffer)

    def slow() -> None:
        time.sleep(0.05)
        order.append("slow")

    worker.submit(slow, CPU)
    worker.submit(lambda: order.append("fast"), CPU)
    worker.settle([promise])
    assert promise.future.wait() is buffer
    assert order == ["slow", "fast"]


def test_the_caller_does_not_wait() -> None:
    worker, gate = Worker(), threading.Event()
    promise = worker.promise(torch.zeros(1))
    worker.submit(gate.wait, CPU)
    worker.settle([promise])
    assert not promise.future.done()
    gate.set()
    worker.join()
    assert promise.future.done()


def test_failure_stops_later_jobs_and_fails_their_promises() -> None:
    worker, order = Worker(), list[str]()
    promises = [worker.promise(torch.zeros(1)) for _ in range(2)]

    def fail() -> None:
        raise ValueError("the first")

    worker.submit(fail, CPU)
    worker.settle(promises[:1])
    worker.submit(lambda: order.append("never"), CPU)
    worker.settle(promises[1:])
    for wait in (worker.join, worker.join, promises[0].future.wait, promises[1].future.wait):
        with pytest.raises(ValueError, match=r"^the first$"):
            wait()
    assert order == []


def test_the_thread_ends_with_its_worker() -> None:
    worker = Worker()
    name = f"gradient reduction {id(worker)}"
    (thread,) = [each for each in threading.enumerate() if each.name == name]
    worker.submit(lambda: None, CPU)
    worker.join()
    del worker
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()
