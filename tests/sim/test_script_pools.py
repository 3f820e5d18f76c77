"""Pools of processes in scripts: those whose tasks are ranks, and those that are pools."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.test_script_launches import reduce

# The body of a script's function of (rank, port), which trains for three steps and asserts that ports are equal.
_TRAINING = """
    dist.init_process_group("gloo", init_method=f"tcp://localhost:{port}", rank=rank, world_size=2)
    ports = [None, None]
    dist.all_gather_object(ports, port)
    assert ports[0] == ports[1]
    layer = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        layer(torch.ones(2, 8)).sum().backward()
        dist.all_reduce(layer.weight.grad)
        optimizer.step()
"""


@pytest.mark.parametrize("name", ["multiprocessing.Pool", "multiprocessing.pool.Pool", "torch.multiprocessing.Pool"])
def test_pools_are_found_under_each_name(name: str, tmp_path: Path) -> None:
    """The script asserts that tasks are ranks, and that they all have the first one's port."""
    module, _, kind = name.rpartition(".")
    (file := tmp_path / "ranks.py").write_text(
        f"""from {module} import {kind} as Workers
import os
import torch
import torch.distributed as dist


def train(rank, port):
    global number
    number += 1
    assert number == 1, "what a task has set is undone where it is run again"
{_TRAINING}

number = 0
if __name__ == "__main__":
    with Workers(2) as pool:
        pool.starmap(train, [(rank, os.getpid()) for rank in range(2)])
    assert number == 1, "the task ran here"
"""
    )
    assert reduce(file, 1, "emulated_200mbit", 2) == [[4 * 8 * 8]] * 2


def test_pools_that_compute_ahead_of_the_group_are_pools(tmp_path: Path) -> None:
    """The script asserts what the pools give, and that nothing of the task that was tried stays."""
    (file := tmp_path / "computes.py").write_text(
        """import asyncio
import itertools
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, as_completed, wait
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def given_to(number):
    return number, bool(multiprocessing.current_process()._identity)


def begin(text):
    global given
    given, os.environ["GIVEN"] = text, str(text)


def given_of(number):
    return number, given


def put(number):
    given.put(number)


async def awaited(executor):
    return await asyncio.get_running_loop().run_in_executor(executor, given_to, 0)


def place(number):
    return multiprocessing.current_process()._identity[0] > 0


def train(rank, port):
"""
        + _TRAINING
        + """

if __name__ == "__main__":
    rank = int(os.environ["RANK"])
    with multiprocessing.Pool(2, initializer=begin, initargs=("text",)) as pool:
        assert pool.map(given_of, range(2)) == [(0, "text"), (1, "text")]
    assert "given" not in globals() and "GIVEN" not in os.environ
    with multiprocessing.Pool(2) as pool:
        assert pool.map(place, range(2)) == [True, True]
    with multiprocessing.Pool(2) as pool:  # looked at ahead of the second task
        first = pool.apply_async(given_to, (0,))
        assert first.get(60) == (0, True) and first.successful()
        assert pool.apply_async(given_to, (1,)).get(60) == (1, True)
        assert next(pool.imap(given_to, itertools.count())) == (0, True)
    with ProcessPoolExecutor(2) as executor:
        futures = [executor.submit(given_to, number) for number in range(2)]
        assert sorted(future.result() for future in as_completed(futures)) == [(0, True), (1, True)]
    with ProcessPoolExecutor(2) as executor:
        futures = [executor.submit(given_to, 0)]
        futures[0].add_done_callback(futures.append)
        assert wait(futures[:1]).done == {futures[1]} and futures[0].result() == (0, True)
    with ProcessPoolExecutor(2) as executor:
        failed = executor.submit(int, "no number")
        assert isinstance(failed.exception(), ValueError)
    with ProcessPoolExecutor(2) as executor:
        assert asyncio.run(awaited(executor)) == (0, True)
    try:
        executor.submit(given_to, 0)
        raise AssertionError
    except RuntimeError as error:
        assert "after shutdown" in str(error)
    with multiprocessing.Manager() as manager, multiprocessing.Pool(2) as pool:
        queue = manager.Queue()
        pool.apply_async(queue.put, (0,))
        assert queue.get() == 0
    queue = multiprocessing.SimpleQueue()
    with multiprocessing.Pool(2, begin, (queue,)) as pool:
        pool.apply_async(put, (0,))
        assert queue.get() == 0
    for which, times in ((0, 1), (1, 2)):  # so that neither has made as many pools as the other
        for _ in range(times if rank == which else 0):
            with multiprocessing.Pool(2) as pool:
                assert pool.map(str, range(2)) == ["0", "1"]
    mp.spawn(train, (os.getpid(),), 2)
"""
    )
    assert reduce(file, 1, "emulated_200mbit", 2) == [[4 * 8 * 8]] * 2
