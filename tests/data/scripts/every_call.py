"""Calls every function of torch.distributed that communicates, a line each, and those that are refused.

`CALLS` and `REFUSED` have the names as tests/sim/test_every_call.py finds them in torch.
"""

import sys

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as autograd

backend = sys.argv[1] if len(sys.argv) > 1 else "gloo"
device = "cuda" if backend == "nccl" else "cpu"
dist.init_process_group(backend)
rank, size = dist.get_rank(), dist.get_world_size()
if device == "cuda":
    torch.cuda.set_device(rank)
ROOT, PEER = 1, 1 - rank
group = dist.group.WORLD


def new(*shape):
    return torch.ones(shape, device=device)


def each(*shape):
    return [new(*shape) for _ in range(size)]


def there(made):
    """What the root alone gives."""
    return made if rank == ROOT else None


def options(kind, **fields):
    made = getattr(dist, kind)()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def both(send, receive):
    """From rank 0 to rank 1."""
    return send() if rank == 0 else receive()


def exchange(*operations):
    return [work.wait() for work in dist.batch_isend_irecv([dist.P2POp(*each) for each in operations])]


def coalescing(*calls):
    with dist.distributed_c10d._coalescing_manager():
        for call in calls:
            call()


CALLS = {
    "all_gather": lambda: dist.all_gather(each(3), new(3)),
    "all_gather_coalesced": lambda: dist.all_gather_coalesced([[new(3), new(2)] for _ in range(2)], [new(3), new(2)]),
    "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(new(6), new(3)),
    "all_gather_object": lambda: dist.all_gather_object([None, None], "x"),
    "all_gather_single": lambda: getattr(dist, "all_gather_single", dist.all_gather_into_tensor)(new(6), new(3)),
    "all_reduce": lambda: dist.all_reduce(new(3)),
    "all_reduce_coalesced": lambda: dist.all_reduce_coalesced([new(3), new(2)]),
    "all_to_all": lambda: dist.all_to_all(each(3), each(3)),
    "all_to_all_single": lambda: dist.all_to_all_single(new(6), new(6)),
    "barrier": lambda: dist.barrier(),
    "batch_isend_irecv": lambda: exchange((dist.isend, new(3), PEER), (dist.irecv, new(3), PEER)),
    "broadcast": lambda: dist.broadcast(new(3), group_src=ROOT),
    "broadcast_object_list": lambda: dist.broadcast_object_list(["x"], src=ROOT),
    "gather": lambda: dist.gather(new(3), there(each(3)), group_dst=ROOT),
    "gather_object": lambda: dist.gather_object("x", there([None, None]), dst=ROOT),
    "irecv": lambda: both(lambda: dist.send(new(3), 1), lambda: dist.irecv(new(3), 0).wait()),
    "isend": lambda: both(lambda: dist.isend(new(3), 1).wait(), lambda: dist.recv(new(3), 0)),
    "monitored_barrier": lambda: dist.monitored_barrier(),
    "recv": lambda: both(lambda: dist.send(new(3), 1), lambda: dist.recv(new(3), group_src=0)),
    "recv_object_list": lambda: both(lambda: dist.send_object_list(["x"], 1), lambda: dist.recv_object_list([None], 0)),
    "reduce": lambda: dist.reduce(new(3), group_dst=ROOT),
    "reduce_scatter": lambda: dist.reduce_scatter(new(3), each(3)),
    "reduce_scatter_single": lambda: getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)(new(3), new(6)),
    "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(new(3), new(6)),
    "scatter": lambda: dist.scatter(new(3), there(each(3)), group_src=ROOT),
    "scatter_object_list": lambda: dist.scatter_object_list([None], there(["x", "y"]), src=ROOT),
    "send": lambda: both(lambda: dist.send(new(3), group_dst=1), lambda: dist.recv(new(3), 0)),
    "send_object_list": lambda: both(lambda: dist.send_object_list(["x"], 1), lambda: dist.recv_object_list([None], 0)),
    "breakpoint": lambda: both(lambda: dist.barrier(), lambda: dist.barrier()),
    "_coalescing_manager": lambda: coalescing(lambda: dist.all_reduce(new(3)), lambda: dist.all_reduce(new(2))),
    "_coalescing_manager of all_gather": lambda: coalescing(
        lambda: CALLS["all_gather_single"](),
        lambda: CALLS["all_gather_single"](),
    ),
    "_coalescing_manager of reduce_scatter": lambda: coalescing(
        lambda: CALLS["reduce_scatter_single"](),
        lambda: CALLS["reduce_scatter_single"](),
    ),
    "ProcessGroup._allgather_base": lambda: group._allgather_base(new(6), new(3)).wait(),
    "ProcessGroup._reduce_scatter_base": lambda: group._reduce_scatter_base(new(3), new(6)).wait(),
    "ProcessGroup.all_gather_single": lambda: group.all_gather_single(new(6), new(3)).wait(),
    "ProcessGroup.all_gather_single_coalesced": lambda: group.all_gather_single_coalesced(
        [new(6)] * 2, [new(3)] * 2
    ).wait(),
    "ProcessGroup.all_to_all_single": lambda: group.all_to_all_single(new(6), new(6), [], []).wait(),
    "ProcessGroup.allgather": lambda: group.allgather([each(3)], [new(3)]).wait(),
    "ProcessGroup.allgather_coalesced": lambda: group.allgather_coalesced([[new(3)], [new(3)]], [new(3)]).wait(),
    "ProcessGroup.allgather_into_tensor_coalesced": lambda: group.allgather_into_tensor_coalesced(
        [new(6)] * 2, [new(3)] * 2
    ).wait(),
    "ProcessGroup.allreduce": lambda: group.allreduce([new(3)]).wait(),
    "ProcessGroup.allreduce_coalesced": lambda: group.allreduce_coalesced([new(3), new(2)]).wait(),
    "ProcessGroup.alltoall": lambda: group.alltoall(each(3), each(3)).wait(),
    "ProcessGroup.alltoall_base": lambda: group.alltoall_base(new(6), new(6), [], []).wait(),
    "ProcessGroup.barrier": lambda: group.barrier().wait(),
    "ProcessGroup.broadcast": lambda: group.broadcast([new(3)], options("BroadcastOptions", rootRank=ROOT)).wait(),
    "ProcessGroup.gather": lambda: group.gather(
        [each(3)] if rank == ROOT else [], [new(3)], options("GatherOptions", rootRank=ROOT)
    ).wait(),
    "ProcessGroup.monitored_barrier": lambda: group.monitored_barrier(),
    "ProcessGroup.recv": lambda: both(
        lambda: group.send([new(3)], 1, 0).wait(), lambda: group.recv([new(3)], 0, 0).wait()
    ),
    "ProcessGroup.reduce": lambda: group.reduce([new(3)], options("ReduceOptions", rootRank=ROOT)).wait(),
    "ProcessGroup.reduce_scatter": lambda: group.reduce_scatter([new(3)], [each(3)]).wait(),
    "ProcessGroup.reduce_scatter_single": lambda: group.reduce_scatter_single(new(3), new(6)).wait(),
    "ProcessGroup.reduce_scatter_single_coalesced": lambda: group.reduce_scatter_single_coalesced(
        [new(3)] * 2, [new(6)] * 2
    ).wait(),
    "ProcessGroup.reduce_scatter_tensor_coalesced": lambda: group.reduce_scatter_tensor_coalesced(
        [new(3)] * 2, [new(6)] * 2
    ).wait(),
    "ProcessGroup.scatter": lambda: group.scatter(
        [new(3)], [each(3)] if rank == ROOT else [], options("ScatterOptions", rootRank=ROOT)
    ).wait(),
    "ProcessGroup.send": lambda: both(
        lambda: group.send([new(3)], 1, 0).wait(), lambda: group.recv([new(3)], 0, 0).wait()
    ),
    "functional.all_gather_into_tensor_coalesced": lambda: [
        one + 0 for one in functional.all_gather_into_tensor_coalesced([new(3), new(2)], group)
    ],
    "functional.all_gather_single": lambda: functional.all_gather_single(new(3), 0, group) + 0,
    "functional.all_gather_single_autograd": lambda: functional.all_gather_single_autograd(new(3), 0, group) + 0,
    "functional.all_gather_single_coalesced": lambda: [
        one + 0 for one in functional.all_gather_single_coalesced([new(3), new(2)], group)
    ],
    "functional.all_gather_tensor": lambda: functional.all_gather_tensor(new(3), 0, group) + 0,
    "functional.all_gather_tensor_autograd": lambda: functional.all_gather_tensor_autograd(new(3), 0, group) + 0,
    "functional.all_reduce": lambda: functional.all_reduce(new(3), "sum", group) + 0,
    "functional.all_reduce_coalesced": lambda: [
        one + 0 for one in functional.all_reduce_coalesced([new(3), new(2)], "sum", group)
    ],
    "functional.all_to_all_single": lambda: functional.all_to_all_single(new(6), None, None, group) + 0,
    "functional.all_to_all_single_autograd": lambda: (
        functional.all_to_all_single_autograd(new(6), [3, 3], [3, 3], group) + 0
    ),
    "functional.broadcast": lambda: functional.broadcast(new(3), ROOT, group) + 0,
    "functional.permute_tensor": lambda: functional.permute_tensor(new(3), [1, 0], group) + 0,
    "functional.reduce_scatter_single": lambda: functional.reduce_scatter_single(new(6), "sum", 0, group) + 0,
    "functional.reduce_scatter_single_autograd": lambda: (
        functional.reduce_scatter_single_autograd(new(6), "sum", 0, group) + 0
    ),
    "functional.reduce_scatter_single_coalesced": lambda: [
        one + 0 for one in functional.reduce_scatter_single_coalesced([new(6), new(4)], "sum", [0, 0], group)
    ],
    "functional.reduce_scatter_tensor": lambda: functional.reduce_scatter_tensor(new(6), "sum", 0, group) + 0,
    "functional.reduce_scatter_tensor_autograd": lambda: (
        functional.reduce_scatter_tensor_autograd(new(6), "sum", 0, group) + 0
    ),
    "functional.reduce_scatter_tensor_coalesced": lambda: [
        one + 0 for one in functional.reduce_scatter_tensor_coalesced([new(6), new(4)], "sum", [0, 0], group)
    ],
    "nn.functional.all_gather": lambda: autograd.all_gather(new(3)),
    "nn.functional.all_reduce": lambda: autograd.all_reduce(new(3)),
    "nn.functional.all_to_all": lambda: autograd.all_to_all(each(3), each(3)),
    "nn.functional.all_to_all_single": lambda: autograd.all_to_all_single(new(6), new(6)),
    "nn.functional.broadcast": lambda: autograd.broadcast(new(3), ROOT),
    "nn.functional.gather": lambda: autograd.gather(new(3), ROOT),
    "nn.functional.reduce": lambda: autograd.reduce(new(3), ROOT),
    "nn.functional.reduce_scatter": lambda: autograd.reduce_scatter(new(3), each(3)),
    "nn.functional.scatter": lambda: autograd.scatter(each(3), ROOT),
}
REFUSED = {
    "shrink_group": lambda: dist.shrink_group([1]),
    "split_group": lambda: dist.split_group(group, [[0], [1]]),
    "all_gather of several sizes": lambda: dist.all_gather([new(1), new(2)], new(1 + rank)),
    "recv without src": lambda: dist.recv(new(3)),
    "ProcessGroup.recv_anysource": lambda: group.recv_anysource([new(3)], 0),
    "ProcessGroup.merge_remote_group": lambda: group.merge_remote_group(None, 2),
    "ProcessGroup.split_group": lambda: group.split_group([0]),
}

for name, call in [*CALLS.items(), *REFUSED.items()]:
    if name.rpartition(".")[2] in ("breakpoint",) or (
        name.startswith("ProcessGroup.") and not hasattr(dist.ProcessGroup, name[13:])
    ):
        continue
    try:
        call()
    except (RuntimeError, ValueError) as error:
        print(f"rank {rank}: {name}: {str(error).splitlines()[0]}", flush=True)
dist.barrier()
dist.destroy_process_group()
