"""Calls every function of torch.distributed that communicates, and sees that others are refused by name.

tests/sim/test_every_call.py reads the names of `CALLS`, `ONLY_GLOO` and `REFUSED`, and what is sent from which line.
"""

import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
import torch.distributed.nn.functional as nnf

warnings.simplefilter("ignore")  # names that torch gave up
backend = sys.argv[1] if len(sys.argv) > 1 else "gloo"
device = "cuda" if backend == "nccl" else "cpu"
dist.init_process_group(backend)
rank, size = dist.get_rank(), dist.get_world_size()
if device == "cuda":
    torch.cuda.set_device(rank)
ROOT, PEER = 1, 1 - rank
pg = dist.group.WORLD
all_gather_single = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
reduce_scatter_single = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


def new(*shape):
    return torch.ones(shape, device=device)


def each(*shape):
    return [new(*shape) for _ in range(size)]


def there(made):
    """Give what the root alone gives."""
    return made if rank == ROOT else None


def rooted(kind):
    made = getattr(dist, kind)()
    made.rootRank = ROOT
    return made


def both(send, receive):
    """Send from rank 0 to rank 1."""
    return send() if rank == 0 else receive()


def used(made):
    """Waits for what a functional collective gives."""
    return [one + 0 for one in made] if isinstance(made, list) else made + 0


def reduces_together():
    with dist.distributed_c10d._coalescing_manager():
        dist.all_reduce(new(3))
        dist.all_reduce(new(2))


def gathers_together():
    with dist.distributed_c10d._coalescing_manager():
        all_gather_single(new(6), new(3))
        all_gather_single(new(4), new(2))


def scatters_together():
    with dist.distributed_c10d._coalescing_manager():
        reduce_scatter_single(new(3), new(6))
        reduce_scatter_single(new(2), new(4))


CALLS = {
    "all_gather": lambda: dist.all_gather(each(3), new(3)),
    "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(new(6), new(3)),
    "all_gather_object": lambda: dist.all_gather_object([None, None], "x"),
    "all_gather_single": lambda: all_gather_single(new(6), new(3)),
    "all_reduce": lambda: dist.all_reduce(new(3)),
    "all_reduce_coalesced": lambda: dist.all_reduce_coalesced([new(3), new(2)]),
    "all_to_all": lambda: dist.all_to_all(each(3), each(3)),
    "all_to_all_single": lambda: dist.all_to_all_single(new(6), new(6)),
    "barrier": lambda: dist.barrier(pg),
    "batch_isend_irecv": lambda: [
        work.wait()
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, new(3), PEER), dist.P2POp(dist.irecv, new(3), PEER)])
    ],
    "broadcast": lambda: dist.broadcast(new(3), group_src=ROOT),
    "broadcast_object_list": lambda: dist.broadcast_object_list(["x"], src=ROOT),
    "gather": lambda: dist.gather(new(3), there(each(3)), group_dst=ROOT),
    "gather_object": lambda: dist.gather_object("x", there([None, None]), dst=ROOT),
    "irecv": lambda: both(lambda: dist.send(new(3), 1), lambda: dist.irecv(new(3), 0).wait()),
    "isend": lambda: both(lambda: dist.isend(new(3), 1).wait(), lambda: dist.recv(new(3), 0)),
    "recv": lambda: both(lambda: dist.send(new(3), 1), lambda: dist.recv(new(3), group_src=0)),
    "recv_object_list": lambda: both(lambda: dist.send_object_list(["x"], 1), lambda: dist.recv_object_list([None], 0)),
    "reduce": lambda: dist.reduce(new(3), group_dst=ROOT),
    "reduce_scatter": lambda: dist.reduce_scatter(new(3), each(3)),
    "reduce_scatter_single": lambda: reduce_scatter_single(new(3), new(6)),
    "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(new(3), new(6)),
    "scatter": lambda: dist.scatter(new(3), there(each(3)), group_src=ROOT),
    "scatter_object_list": lambda: dist.scatter_object_list([None], there(["x", "y"]), src=ROOT),
    "send": lambda: both(lambda: dist.send(new(3), group_dst=1), lambda: dist.recv(new(3), 0)),
    "send_object_list": lambda: both(lambda: dist.send_object_list(["x"], 1), lambda: dist.recv_object_list([None], 0)),
    "_coalescing_manager": reduces_together,
    "_coalescing_manager of all_gather": gathers_together,
    "_coalescing_manager of reduce_scatter": scatters_together,
    "ProcessGroup._allgather_base": lambda: pg._allgather_base(new(6), new(3)).wait(),
    "ProcessGroup._reduce_scatter_base": lambda: pg._reduce_scatter_base(new(3), new(6)).wait(),
    "ProcessGroup.all_gather_single": lambda: pg.all_gather_single(new(6), new(3)).wait(),
    "ProcessGroup.all_gather_single_coalesced": lambda: pg.all_gather_single_coalesced(each(4), each(2)).wait(),
    "ProcessGroup.all_to_all_single": lambda: pg.all_to_all_single(new(6), new(6), [], []).wait(),
    "ProcessGroup.allgather": lambda: pg.allgather([each(3)], [new(3)]).wait(),
    "ProcessGroup.allgather_into_tensor_coalesced": lambda: pg.allgather_into_tensor_coalesced(each(4), each(2)).wait(),
    "ProcessGroup.allreduce": lambda: pg.allreduce([new(3)]).wait(),
    "ProcessGroup.allreduce_coalesced": lambda: pg.allreduce_coalesced([new(3), new(2)]).wait(),
    "ProcessGroup.alltoall": lambda: pg.alltoall(each(3), each(3)).wait(),
    "ProcessGroup.alltoall_base": lambda: pg.alltoall_base(new(6), new(6), [], []).wait(),
    "ProcessGroup.barrier": lambda: pg.barrier().wait(),
    "ProcessGroup.broadcast": lambda: pg.broadcast([new(3)], rooted("BroadcastOptions")).wait(),
    "ProcessGroup.gather": lambda: pg.gather(there([each(3)]) or [], [new(3)], rooted("GatherOptions")).wait(),
    "ProcessGroup.recv": lambda: both(lambda: pg.send([new(3)], 1, 0).wait(), lambda: pg.recv([new(3)], 0, 0).wait()),
    "ProcessGroup.reduce": lambda: pg.reduce([new(3)], rooted("ReduceOptions")).wait(),
    "ProcessGroup.reduce_scatter": lambda: pg.reduce_scatter([new(3)], [each(3)]).wait(),
    "ProcessGroup.reduce_scatter_single": lambda: pg.reduce_scatter_single(new(3), new(6)).wait(),
    "ProcessGroup.reduce_scatter_single_coalesced": lambda: pg.reduce_scatter_single_coalesced(each(2), each(4)).wait(),
    "ProcessGroup.reduce_scatter_tensor_coalesced": lambda: pg.reduce_scatter_tensor_coalesced(each(2), each(4)).wait(),
    "ProcessGroup.scatter": lambda: pg.scatter([new(3)], there([each(3)]) or [], rooted("ScatterOptions")).wait(),
    "ProcessGroup.send": lambda: both(lambda: pg.send([new(3)], 1, 0).wait(), lambda: pg.recv([new(3)], 0, 0).wait()),
    "functional.all_gather_into_tensor_coalesced": lambda: used(fc.all_gather_into_tensor_coalesced(each(2), pg)),
    "functional.all_gather_single": lambda: used(fc.all_gather_single(new(3), 0, pg)),
    "functional.all_gather_single_autograd": lambda: used(fc.all_gather_single_autograd(new(3), 0, pg)),
    "functional.all_gather_single_coalesced": lambda: used(fc.all_gather_single_coalesced(each(2), pg)),
    "functional.all_gather_tensor": lambda: used(fc.all_gather_tensor(new(3), 0, pg)),
    "functional.all_gather_tensor_autograd": lambda: used(fc.all_gather_tensor_autograd(new(3), 0, pg)),
    "functional.all_reduce": lambda: used(fc.all_reduce(new(3), "sum", pg)),
    "functional.all_reduce_coalesced": lambda: used(fc.all_reduce_coalesced([new(3), new(2)], "sum", pg)),
    "functional.all_to_all_single": lambda: used(fc.all_to_all_single(new(6), None, None, pg)),
    "functional.all_to_all_single_autograd": lambda: used(fc.all_to_all_single_autograd(new(6), [3, 3], [3, 3], pg)),
    "functional.broadcast": lambda: used(fc.broadcast(new(3), ROOT, pg)),
    "functional.permute_tensor": lambda: used(fc.permute_tensor(new(3), [1, 0], pg)),
    "functional.reduce_scatter_single": lambda: used(fc.reduce_scatter_single(new(6), "sum", 0, pg)),
    "functional.reduce_scatter_single_autograd": lambda: used(fc.reduce_scatter_single_autograd(new(6), "sum", 0, pg)),
    "functional.reduce_scatter_single_coalesced": lambda: used(
        fc.reduce_scatter_single_coalesced(each(4), "sum", [0, 0], pg)
    ),
    "functional.reduce_scatter_tensor": lambda: used(fc.reduce_scatter_tensor(new(6), "sum", 0, pg)),
    "functional.reduce_scatter_tensor_autograd": lambda: used(fc.reduce_scatter_tensor_autograd(new(6), "sum", 0, pg)),
    "functional.reduce_scatter_tensor_coalesced": lambda: used(
        fc.reduce_scatter_tensor_coalesced(each(4), "sum", [0, 0], pg)
    ),
    "nn.functional.all_gather": lambda: nnf.all_gather(new(3)),
    "nn.functional.all_reduce": lambda: nnf.all_reduce(new(3)),
    "nn.functional.all_to_all": lambda: nnf.all_to_all(each(3), each(3)),
    "nn.functional.all_to_all_single": lambda: nnf.all_to_all_single(new(6), new(6)),
    "nn.functional.broadcast": lambda: nnf.broadcast(new(3), ROOT),
    "nn.functional.gather": lambda: nnf.gather(new(3), ROOT),
    "nn.functional.reduce": lambda: nnf.reduce(new(3), ROOT),
    "nn.functional.reduce_scatter": lambda: nnf.reduce_scatter(new(3), each(3)),
    "nn.functional.scatter": lambda: nnf.scatter(each(3), ROOT),
}
# What torch has for gloo alone, and what it says, or we, of NCCL.
ONLY_GLOO = {
    "all_gather_coalesced": (
        lambda: dist.all_gather_coalesced([[new(3), new(2)], [new(3), new(2)]], [new(3), new(2)]),
        "all_gather_coalesced: torch's nccl has none, expected gloo",
    ),
    "monitored_barrier": (
        lambda: dist.monitored_barrier(pg),
        "monitored_barrier is only implemented for GLOO backend.",
    ),
    "ProcessGroup.allgather_coalesced": (
        lambda: pg.allgather_coalesced([[new(3), new(2)], [new(3), new(2)]], [new(3), new(2)]).wait(),
        "all_gather_coalesced: torch's nccl has none, expected gloo",
    ),
    "ProcessGroup.monitored_barrier": (
        lambda: [pg.monitored_barrier()],
        "monitored_barrier: torch's nccl has none, expected gloo",
    ),
}
REFUSED = {
    "shrink_group": (
        lambda: dist.shrink_group([1]),
        "shrink_group: expected new_group of the ranks that stay, as ranks that fail are not simulated",
    ),
    "recv without src": (
        lambda: dist.recv(new(3)),
        "recv without src: expected the source, as which message comes first is not simulated",
    ),
    "ProcessGroup.recv_anysource": (
        lambda: pg.recv_anysource([new(3)], 0),
        "recv without src: expected the source, as which message comes first is not simulated",
    ),
    "ProcessGroup.merge_remote_group": (
        lambda: pg.merge_remote_group(None, 2),
        "merge_remote_group: expected new_group, as groups of other worlds are not simulated",
    ),
    "ProcessGroup.split_group": (
        lambda: pg.split_group([0]),
        "ProcessGroup.split_group: expected torch.distributed.split_group or new_group",
    ),
}


def is_there(name):
    """Return whether this release of torch has it."""
    found = {"ProcessGroup": dist.ProcessGroup, "functional": fc, "nn.functional": nnf}
    where, _, last = name.rpartition(".")
    return " " in name or hasattr(found.get(where, dist.distributed_c10d), last)


def refusal(call):
    try:
        call()
    except (RuntimeError, ValueError) as error:
        return str(error).splitlines()[0]
    raise AssertionError("it is not refused")


for name, call in CALLS.items():
    if is_there(name):
        call()
for name, (call, sentence) in ONLY_GLOO.items():
    if backend == "gloo":
        call()
    else:
        assert refusal(call) == sentence, name
for name, (call, sentence) in REFUSED.items():
    if is_there(name):
        assert refusal(call) == sentence, name
# Tensors of several sizes: NCCL takes them, gloo does not.
uneven = lambda: dist.all_gather([new(1), new(2)], new(1 + rank))  # noqa: E731
if backend == "gloo":
    assert refusal(uneven) == "all_gather over gloo: expected tensors of one size, got (1,), (2,)"
    assert "split" in refusal(lambda: dist.split_group(pg, [[0], [1]]))
else:
    uneven()
    assert dist.split_group(pg, [[0], [1]]).size() == 1
own, groups = dist.new_subgroups(1)
assert (own.size(), len(groups)) == (1, 2)
assert dist.new_subgroups_by_enumeration([[0, 1]])[0].size() == 2
print(f"rank {rank} is done", flush=True)
dist.destroy_process_group()
