"""Starts its own ranks, in each way that there is, one after the other; the optimizer steps once in each."""

import argparse
import asyncio
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import distributed
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.nn.parallel import DistributedDataParallel

SIZE = int(os.environ.get("SIZE", "2"))
IS_ON_GPU = torch.cuda.is_available()
layer = torch.nn.Linear(20, 10)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
ways = []


def train(number: int, args: argparse.Namespace, **init) -> None:
    assert number == int(os.environ["RANK"]), "a rank's function runs in the process of that rank"
    device = torch.device("cuda", number) if IS_ON_GPU else torch.device("cpu")
    dist.init_process_group("nccl" if IS_ON_GPU else "gloo", **init)
    assert (dist.get_rank(), dist.get_world_size()) == (number, SIZE)
    found = [None] * SIZE
    dist.all_gather_object(found, args.port)
    assert len(set(found)) == 1, "what a parent computes is computed once"
    replica = DistributedDataParallel(layer.to(device))
    replica(torch.ones(4, 20, device=device)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    del replica
    if len(ways) % 2:  # the process that a rank would be ends its group with it
        dist.destroy_process_group()
    ways.append(init.get("init_method", "env"))


def meet(rank: int, args: argparse.Namespace) -> None:
    """By the environment, as the tutorial of DistributedDataParallel has it."""
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", str(args.port)
    train(rank, args, rank=rank, world_size=SIZE)


def there(rank: int, args: argparse.Namespace, method: str) -> None:
    train(rank, args, init_method=method, rank=rank, world_size=SIZE)


def agent(args: argparse.Namespace) -> int:
    assert distributed.is_torchelastic_launched()
    assert os.environ["TORCHELASTIC_RUN_ID"] == "mine"
    train(int(os.environ["RANK"]), args)
    return 7


class Worker(mp.Process):
    def __init__(self, number: int, args: argparse.Namespace) -> None:
        super().__init__()
        self.number, self.given = number, args

    def run(self) -> None:
        meet(self.number, self.given)


def row(processes: list) -> None:
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * SIZE
    assert not any(process.is_alive() for process in processes)


def fill(number: int, queue, text: str) -> None:
    queue.put((number, text, os.getpid()))


def put(rank: int, args: argparse.Namespace, queue) -> None:
    meet(rank, args)
    queue.put(rank)


def helpers() -> None:
    """A process that is given 0 does its work by the time of the join: in a process of its own, unless a host has one
    rank, which it then is.
    """
    queue = mp.SimpleQueue()
    for text in ("one", "two"):
        helper = mp.Process(target=fill, args=(0, queue, text))
        helper.start()
        helper.join()
        assert helper.exitcode == 0
        number, found, process = queue.get()
        assert (number, found) == (0, text)
        assert (process == os.getpid()) == (os.environ["LOCAL_WORLD_SIZE"] == "1")


def of_queue(args: argparse.Namespace) -> None:
    """A parent that takes from a queue what its ranks have put there, ahead of any join."""
    queue = mp.Queue()
    ranks = [mp.Process(target=put, args=(rank, args, queue)) for rank in range(SIZE)]
    for process in ranks:
        process.start()
    assert queue.get() == int(os.environ["RANK"])
    for process in ranks:
        process.join()


async def awaited(executor: ProcessPoolExecutor, args: argparse.Namespace) -> list[None]:
    """Return the results of tasks that coroutines hand over, each of which waits for its own."""

    async def task(rank: int) -> None:
        await asyncio.get_running_loop().run_in_executor(executor, meet, rank, args)

    return await asyncio.gather(*map(task, range(SIZE)))


def pools(args: argparse.Namespace) -> None:
    """Tasks that a pool is given one by one, or whose results come later."""
    with mp.Pool(SIZE) as pool:
        assert pool.imap(partial(meet, args=args), range(SIZE)).next(60) is None
        waits = [pool.apply_async(meet, (rank,), {"args": args}) for rank in range(SIZE)]
        assert [wait.get() for wait in waits] == [None] * SIZE
        assert pool.starmap_async(meet, [(rank, args) for rank in range(SIZE)]).get(60) == [None] * SIZE
        assert [*pool.imap_unordered(partial(meet, args=args), range(SIZE))] == [None] * SIZE
    with ProcessPoolExecutor(SIZE, mp.get_context("spawn")) as executor:
        futures = [executor.submit(partial(meet, rank), args) for rank in range(SIZE)]
        assert [future.result() for future in as_completed(futures)] == [None] * SIZE
        assert [*executor.map(meet, range(SIZE), [args] * SIZE)] == [None] * SIZE
    with ProcessPoolExecutor(SIZE) as executor:
        assert asyncio.run(awaited(executor, args)) == [None] * SIZE


def main() -> None:
    args = argparse.Namespace(port=20_000 + os.getpid() % 1000)
    mp.set_start_method("fork")  # which is refused where one was chosen before
    helper = mp.Process(target=print, args=("a process that is no rank",))
    helper.start()
    helpers()
    mp.spawn(meet, args=(args,), nprocs=SIZE)
    context = mp.start_processes(meet, (args,), SIZE, join=False, start_method="forkserver")
    while not context.join():
        pass
    mp.spawn(there, (args, f"tcp://127.0.0.1:{args.port}"), SIZE)
    mp.spawn(there, (args, f"file://{tempfile.mkdtemp()}/meet"), SIZE)
    row([mp.Process(target=meet, args=(rank, args)) for rank in range(SIZE)])
    row([mp.get_context("spawn").Process(target=partial(meet, rank), args=(args,)) for rank in range(SIZE)])
    row([Worker(rank, args) for rank in range(SIZE)])
    of_queue(args)
    with mp.get_context("spawn").Pool(SIZE) as pool:
        assert pool.starmap(meet, [(rank, args) for rank in range(SIZE)]) == [None] * SIZE
    pools(args)
    with mp.Pool(SIZE) as pool:  # of which no task is a rank
        assert pool.map(int, range(SIZE)) == [*range(SIZE)]
        assert pool.map(str, "abc") == ["a", "b", "c"]
    config = LaunchConfig(1, 1, SIZE, run_id="mine", rdzv_backend="c10d", rdzv_endpoint="localhost:0")
    assert elastic_launch(config, agent)(args) == dict.fromkeys(range(SIZE), 7)
    helper.join()
    assert helper.exitcode == 0
    assert len(ways) == 17, ways
    from torch.distributed.run import main as run  # noqa: PLC0415  (as scripts do that have both)

    run(f"--nproc-per-node {SIZE} --rdzv-id mine --rdzv-backend c10d --rdzv-endpoint :0 {__file__} rank".split())


if __name__ == "__main__":
    if sys.argv[1:] == ["rank"]:
        agent(argparse.Namespace(port=1))
    else:
        main()
