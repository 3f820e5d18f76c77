"""Computes in pools of processes, in each way that there is, before a spawn starts the ranks."""

import asyncio
import itertools
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, as_completed, wait

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def train(rank, port):
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


def whether_in_child(number):
    return number, bool(multiprocessing.current_process()._identity)


def is_numbered(number):
    return multiprocessing.current_process()._identity[0] > 0


def keep(value):
    global kept
    kept, os.environ["KEPT"] = value, str(value)


def with_kept(number):
    return number, kept


def put(number):
    kept.put(number)


def initialize_workers():
    with multiprocessing.Pool(2, initializer=keep, initargs=("text",)) as pool:
        assert pool.map(with_kept, range(2)) == [(0, "text"), (1, "text")]
    assert "kept" not in globals(), "only the workers have kept it"
    assert "KEPT" not in os.environ


def number_workers():
    with multiprocessing.Pool(2) as pool:
        assert pool.map(is_numbered, range(2)) == [True, True]


def get_results_one_by_one():
    with multiprocessing.Pool(2) as pool:
        first = pool.apply_async(whether_in_child, (0,))
        assert first.get(60) == (0, True)
        assert first.successful()
        assert pool.apply_async(whether_in_child, (1,)).get(60) == (1, True)
        assert next(pool.imap(whether_in_child, itertools.count())) == (0, True)


def await_futures():
    with ProcessPoolExecutor(2) as executor:
        futures = [executor.submit(whether_in_child, number) for number in range(2)]
        assert sorted(future.result() for future in as_completed(futures)) == [(0, True), (1, True)]
    with ProcessPoolExecutor(2) as executor:
        futures = [executor.submit(whether_in_child, 0)]
        futures[0].add_done_callback(futures.append)
        assert wait(futures[:1]).done == {futures[1]}
        assert futures[0].result() == (0, True)
    with ProcessPoolExecutor(2) as executor:
        failed = executor.submit(int, "no number")
        assert isinstance(failed.exception(), ValueError)


def use_after_shutdown():
    with ProcessPoolExecutor(2) as executor:
        assert asyncio.run(run_in(executor)) == (0, True)
    refusal = ""
    try:
        executor.submit(whether_in_child, 0)
    except RuntimeError as error:
        refusal = str(error)
    assert "after shutdown" in refusal


async def run_in(executor):
    return await asyncio.get_running_loop().run_in_executor(executor, whether_in_child, 0)


def send_through_queues():
    with multiprocessing.Manager() as manager, multiprocessing.Pool(2) as pool:
        queue = manager.Queue()
        pool.apply_async(queue.put, (0,))
        assert queue.get() == 0
    queue = multiprocessing.SimpleQueue()
    with multiprocessing.Pool(2, keep, (queue,)) as pool:
        pool.apply_async(put, (0,))
        assert queue.get() == 0


def start_unequal_numbers_of_pools(rank):
    """Make one pool on rank 0, then two on rank 1: neither rank has made as many as the other."""
    for which, times in ((0, 1), (1, 2)):
        for _ in range(times if rank == which else 0):
            with multiprocessing.Pool(2) as pool:
                assert pool.map(str, range(2)) == ["0", "1"]


if __name__ == "__main__":
    initialize_workers()
    number_workers()
    get_results_one_by_one()
    await_futures()
    use_after_shutdown()
    send_through_queues()
    start_unequal_numbers_of_pools(int(os.environ["RANK"]))
    mp.spawn(train, (os.getpid(),), 2)
