"""Asks torch.cuda for what training scripts do, and asserts what two GPUs of one host would say, then trains.

The first argument is a file for the number of bytes of an object that is gathered.
"""

import copy
import gc
import io
import multiprocessing
import pickle
import sys
import weakref

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.cuda import comm
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
device = torch.device("cuda", rank)


def refused(sentence, call, *args):
    try:
        call(*args)
    except RuntimeError as error:
        found = str(error)
    else:
        found = "nothing was refused"
    assert sentence in found, found


def pickles():
    known, unknown = torch.arange(6, device=device)[2:], torch.randn(50, 4, device=device)
    assert pickle.loads(pickle.dumps(known)).tolist() == [2, 3, 4, 5]
    found = pickle.loads(pickle.dumps(unknown))
    assert found.device == device
    assert found.shape == (50, 4)
    assert "..." in str(found)
    half = pickle.loads(pickle.dumps(torch.randn((), device=device, dtype=torch.bfloat16)))
    assert "..." in str(half)
    assert half.item() == 1

    def size(tensor):  # beside the storage's address, which stands there twice in decimal digits
        return len(pickle.dumps(tensor)) - 2 * len(str(tensor.untyped_storage()._cdata))

    for tensor in (torch.arange(4, device=device), unknown):
        assert size(tensor) == size(tensor.cpu()) + len(f"cuda:{rank}") - len("cpu")
    weight = nn.Parameter(torch.randn(3, device=device))
    assert isinstance(pickle.loads(pickle.dumps(weight)), nn.Parameter)
    module = pickle.loads(pickle.dumps(nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5)).to(device)))
    module(torch.randn(3, 5, device=device)).sum().backward()


def copies():
    module = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5)).to(device)
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.randn(3, 5, device=device)).sum().backward()
    optimizer.step()
    other = copy.deepcopy(module)
    assert next(other.parameters()).data_ptr() != next(module.parameters()).data_ptr() != 0
    copy.deepcopy((optimizer, optimizer.state_dict()))
    assert copy.deepcopy(torch.arange(3, device=device)).tolist() == [0, 1, 2]


def files():
    module, file = nn.Linear(300, 300).to(device), io.BytesIO()
    torch.save({"weights": module.state_dict(), "epoch": torch.tensor(3, device=device)}, file)
    assert file.tell() > 4 * 300 * 300
    torch.save(module, f"module{rank}.pt")
    places = {
        "cpu": ["cpu", lambda storage, _: storage, {"cuda:0": "cpu", "cuda:1": "cpu"}],
        str(device): [None, device, lambda storage, _: storage.cuda(rank)],
    }
    for place, maps in places.items():
        for map_location in maps:
            file.seek(0)
            found = torch.load(file, map_location=map_location)
            assert str(found["weights"]["weight"].device) == place
            assert found["epoch"].item() == 3
            found = torch.load(f"module{rank}.pt", map_location=map_location, weights_only=False)
            assert str(found.weight.device) == place
    assert not torch.load(f"module{rank}.pt", map_location="cpu", weights_only=False).weight.isnan().any()


def storages():
    own = torch.randn(50, device=device).untyped_storage().cpu()
    torch.empty(0).set_(own).fill_(7)
    file = io.BytesIO()
    for place in (file, f"filled{rank}.pt"):
        torch.save(torch.empty(0).set_(own), place)
        file.seek(0)
        assert torch.load(place).tolist() == [7] * 50
    flag = torch.randn(9000, device=device).argmax() > 3
    assert pickle.loads(pickle.dumps(flag)).item() is True  # a byte, which the prediction says
    kept = torch.ones(3, device=device)
    for given in (kept, {"batch": [kept]}):
        refused("cannot be shared between processes", multiprocessing.Queue().put, given)
    refused("negative dimension -1", lambda: torch.empty(-1, device=device))


def checkpoints():
    module = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6)).to(device)
    fully_shard(module)
    optimizer = torch.optim.AdamW(module.parameters())
    module(torch.randn(3, 6, device=device)).sum().backward()
    optimizer.step()
    weights, state = get_state_dict(module, optimizer)
    dcp.save({"weights": weights, "state": state}, checkpoint_id=sys.argv[2])
    dcp.load({"weights": weights, "state": state}, checkpoint_id=sys.argv[2])
    set_state_dict(module, optimizer, model_state_dict=weights, optim_state_dict=state)


def objects():
    given, found = {"loss": torch.randn(3, device=device), "count": torch.tensor(rank, device=device)}, [None, None]
    dist.all_gather_object(found, given)
    if rank == 0:
        with open(sys.argv[1], "w") as file:
            file.write(str(len(pickle.dumps(given))))
    assert found[1]["count"].item() == 1
    assert found[1]["count"].device == torch.device("cuda", 1)
    assert "..." in str(found[0]["loss"])
    sent = [given if rank == 0 else None]
    dist.broadcast_object_list(sent, src=0, device=device)
    assert sent[0]["loss"].is_cuda
    dist.gather_object(given, [None, None] if rank == 0 else None, dst=0)
    taken = [None]
    dist.scatter_object_list(taken, [torch.tensor(each, device=0) for each in (5, 6)] if rank == 0 else None, src=0)
    assert taken[0].item() == 5 + rank
    if rank == 0:
        dist.send_object_list([torch.arange(3, device=device)], dst=1)
    else:
        dist.recv_object_list(taken, src=0)
        assert taken[0].tolist() == [0, 1, 2]


def places():
    module = nn.Linear(3, 3)
    weight = module.weight
    for move in (module.to, module.cuda):
        assert move(rank).weight is weight
        assert weight.device == device
    assert module.to(torch.bfloat16).weight.dtype == torch.bfloat16
    assert module.to(rank, torch.float32).weight.device == device
    for make in (torch.zeros, torch.ones, torch.empty, torch.rand, torch.arange):
        assert make(3, device=rank).device == device
    assert torch.ones(3, device=0).to(1).device.index == 1
    for context in (torch.device("cuda"), torch.device(rank)):
        with context:
            assert torch.ones(3).device == device
    torch.set_default_device("cuda")
    assert nn.Linear(3, 3)(torch.ones(3)).device == device
    torch.set_default_device(None)
    with torch.cuda.device(1 - rank), torch.cuda.device_of(torch.ones(1, device=device)):
        assert torch.cuda.current_device() == rank
    refused("invalid device ordinal 2: expected 0 to 1", torch.cuda.set_device, 2)
    lazy = nn.LazyLinear(4).to("cuda")
    lazy(torch.randn(3, 5, device=device)).sum().backward()
    torch.ones(3, device=device).share_memory_()
    single = nn.DataParallel(nn.Linear(3, 3).cuda(), device_ids=[rank])
    single(torch.randn(4, 3, device=device)).sum().backward()
    refused("several GPUs of one process are not simulated", nn.DataParallel(nn.Linear(3, 3).to(0)), torch.ones(2, 3))
    refused("several GPUs of one process", comm.broadcast, torch.ones(1, device=0), [0, 1])
    given, room = torch.arange(4, device=device), torch.zeros(4, device=device, dtype=torch.long)
    (sent,) = comm.broadcast(given, devices=[device])
    (part,) = comm.scatter(given, [rank], dim=0)
    assert comm.broadcast(given, out=[room])[0] is room
    assert sent.tolist() == part.tolist() == room.tolist() == [0, 1, 2, 3]
    assert comm.gather(tensors=[given], destination="cpu").device.type == "cpu"
    assert comm.reduce_add(inputs=[given], destination=rank).device == device
    assert comm.broadcast_coalesced([given], devices=[rank])[0][0].tolist() == [0, 1, 2, 3]
    refused("several GPUs of one process", lambda: comm.gather(tensors=[given, given]))
    for each, _ in DataLoader(TensorDataset(torch.randn(8, 3), torch.arange(8)), batch_size=4, pin_memory=True):
        assert each.is_pinned()
        assert each.to(device, non_blocking=True).is_cuda
    assert torch.get_device_module("cuda") is torch.cuda
    assert torch.accelerator.current_accelerator().type == "cuda"
    assert torch.version.cuda


def types():
    made = torch.cuda.FloatTensor([1, 2])
    assert made.type() == "torch.cuda.FloatTensor"
    assert isinstance(made, torch.cuda.FloatTensor)
    assert torch.ones(3).type("torch.cuda.LongTensor").dtype == torch.int64
    assert torch.cuda.HalfTensor(3, 4).shape == (3, 4)
    assert made.type("torch.FloatTensor").device.type == "cpu"
    assert made.new([1, 2, 3]).is_cuda


def generators():
    torch.manual_seed(7)
    assert torch.cuda.initial_seed() == 7
    state = torch.cuda.get_rng_state()
    assert state.shape == (16,)
    assert state.dtype == torch.uint8
    assert state.device.type == "cpu"
    torch.cuda.manual_seed_all(5)
    torch.cuda.set_rng_state(state)
    assert torch.cuda.initial_seed() == 7
    with torch.random.fork_rng(devices=[rank]):
        torch.cuda.manual_seed(1)
    assert torch.cuda.default_generators[rank].initial_seed() == 7
    draw = torch.Generator(device="cuda").manual_seed(3)
    assert copy.deepcopy(draw).initial_seed() == draw.clone_state().initial_seed() == 3
    torch.randn(3, device=device, generator=draw)
    repeats()


def repeats():
    def drawn(generator=None):
        return torch.rand(6, device=device, generator=generator).tolist()

    own = torch.cuda.default_generators[rank]
    for generator in (None, torch.Generator("cuda").manual_seed(7)):
        torch.cuda.manual_seed(7)
        state, first = (generator or own).get_state(), drawn(generator)
        later, second = (generator or own).get_state(), drawn(generator)
        assert first != second
        assert (generator or own).get_offset() == 16
        for start, values in ((later, second), (state, first), (later, second)):
            (generator or own).set_state(start)
            for other in ((generator or own).clone_state(), pickle.loads(pickle.dumps(generator or own))):
                assert drawn(other) == values
            assert drawn(generator) == values
        (generator or own).set_offset(8)
        assert drawn(generator) == second
    refused("offset must be a multiple of 4", own.set_offset, 3)
    shared = own.graphsafe_get_state()
    torch.randn(5, device=device)
    assert shared.get_offset() == own.get_offset()
    before = torch.cuda.get_rng_state()
    with torch.random.fork_rng(devices=[rank]):
        forked = drawn()
    assert torch.equal(before, torch.cuda.get_rng_state())
    assert drawn() == forked != drawn()
    weight = torch.ones(64, 8, device=device, requires_grad=True)
    for _ in range(2):  # the second mask is of another size
        masked = checkpoint(lambda x: (x[torch.rand(64, device=device) < 0.5] ** 2).exp(), weight, use_reentrant=False)
        masked.sum().backward()


def memory():
    gc.collect()  # tensors in cycles of the checks before would go at any time
    cuda, before = torch.cuda, torch.cuda.memory_allocated()
    kept = torch.zeros(1 << 20, device=device)
    assert cuda.memory_allocated() == before + (4 << 20)
    cuda.reset_peak_memory_stats()
    gone = torch.zeros(2 << 20, device=device)
    del gone
    assert cuda.max_memory_allocated() == before + (12 << 20) == cuda.memory_stats()["allocated_bytes.all.peak"]
    assert cuda.memory_reserved() >= cuda.memory_allocated() == torch.accelerator.memory_allocated()
    reserved = cuda.memory_reserved()
    cuda.empty_cache()
    assert reserved >= cuda.memory_reserved() >= cuda.memory_allocated() == before + (4 << 20)
    free, total = cuda.mem_get_info()
    assert total - free == cuda.memory_reserved()
    assert sum(each["total_size"] for each in cuda.memory_snapshot()) == cuda.memory_reserved()
    assert "Allocated memory" in cuda.memory_summary()
    assert kept.is_cuda
    cuda.reset_accumulated_memory_stats()
    assert cuda.memory_stats()["allocated_bytes.all.allocated"] == 0
    cuda.memory._record_memory_history(max_entries=100)
    cuda.memory._dump_snapshot("snapshot.pickle")
    cuda.set_per_process_memory_fraction(1e-6)
    refused("CUDA out of memory", lambda: torch.zeros(1 << 20, device=device))
    cuda.set_per_process_memory_fraction(1.0)
    pool = cuda.MemPool()
    with cuda.use_mem_pool(pool):
        torch.zeros(3, device=device)
    cuda.set_sync_debug_mode("warn")
    assert cuda.get_sync_debug_mode() == 1
    cuda.set_sync_debug_mode(0)
    refused("a GPU's sensors", cuda.utilization)


def scaled_sums():
    values, made = torch.arange(4.0, device=device), torch.empty(2, device=device)
    dist.all_reduce(values, op=dist._make_nccl_premul_sum(0.25))
    assert values.tolist() == [0.0, 0.5, 1.0, 1.5]
    three = dist._make_nccl_premul_sum(torch.tensor([3.0], device=device))
    dist.reduce_scatter_tensor(made, torch.ones(4, device=device), op=three)
    assert made.tolist() == [6.0, 6.0]


def streams():
    cuda = torch.cuda
    side, first, last = cuda.Stream(priority=-1), cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    first.record()
    torch.ones(999, 999, device=device) @ torch.ones(999, 999, device=device)
    last.record()
    last.synchronize()
    assert first.elapsed_time(last) > 0
    assert isinstance(side, torch.Stream)
    assert first.query()
    positional, of_any_device = cuda.Event(True, False), torch.Event(device, enable_timing=True)
    positional.record()
    of_any_device.record()
    assert positional.elapsed_time(of_any_device) >= 0
    gone = weakref.ref(cuda.Stream())
    assert gone() is None
    assert cuda.default_stream().device == device
    assert not side.is_capturing()
    with cuda.graph(cuda.CUDAGraph()):
        assert cuda.current_stream().is_capturing()
    refused("ExternalStream: streams of other libraries", cuda.ExternalStream, 1)
    refused("cannot be shared between processes", cuda.Event().ipc_handle)
    with cuda.stream(side):
        assert cuda.current_stream() == side != cuda.default_stream()
    cuda.set_stream(side)
    assert torch.accelerator.current_stream() == side
    torch.accelerator.set_stream(cuda.default_stream())
    assert cuda.current_stream() == cuda.default_stream()
    with torch.Stream(device="cuda"):
        torch.Event("cuda").record()
    with cuda.nvtx.range("a"), cuda.profiler.profile():
        cuda.nvtx.range_push("b")
        cuda.nvtx.range_pop()
    activities = torch.profiler.ProfilerActivity
    for profiled in ([activities.CUDA], [activities.CPU, activities.CUDA]):
        with torch.profiler.profile(activities=profiled) as profile:
            (torch.ones(2, device=device) + 1).sum()
        assert profile.profiler.profiler_kind == torch.autograd.ProfilerState.KINETO


def operators():
    @torch.library.custom_op("tests::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert doubled(torch.randn(3, device=device)).is_cuda
    query, key, value = (torch.randn(1, 2, 256, 64, device=device, requires_grad=True) for _ in range(3))
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 256, 256, device="cuda")
    for attend in (flex_attention, torch.compile(flex_attention)):
        query.grad = None
        attend(query, key, value, block_mask=mask).sum().backward()
        assert query.grad.device == device
    torch.backends.cuda.preferred_linalg_library("cusolver")
    torch.backends.cuda.cufft_plan_cache.clear()
    nn.functional.scaled_dot_product_attention(query, key, value).sum().backward()


for check in (
    pickles, copies, files, storages, checkpoints, objects, places, types, generators, memory, scaled_sums,
    streams, operators,
):  # fmt: skip
    check()
model = DistributedDataParallel(nn.Linear(8, 8).to(rank), device_ids=[rank])
model.register_comm_hook(None, default_hooks.bf16_compress_hook)  # refused unless torch reports NCCL
optimizer = torch.optim.RMSprop(model.parameters())
for _ in range(3):
    model(torch.randn(4, 8).to(rank)).sum().backward()
    optimizer.step()
