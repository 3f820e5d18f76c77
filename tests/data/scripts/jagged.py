"""fbgemm's operators on ids, on a GPU that is not there and on the CPU: integers and the shapes of floats are equal,
and gradients come through.
"""

import warnings
from collections.abc import Callable
from typing import Any

import fbgemm_gpu  # noqa: F401 - which loads the operators
import torch
from torch import Tensor

warnings.simplefilter("ignore")
ops = torch.ops.fbgemm
torch.manual_seed(3)
lengths = torch.randint(0, 5, (3, 4))
total, own = int(lengths.sum()), lengths[0]
ids, weights = torch.randint(100, (total,)), torch.rand(total)
bags = ops.asynchronous_complete_cumsum(lengths.view(-1))
offsets = ops.asynchronous_complete_cumsum(own)
values = torch.randn(int(own.sum()), 8, requires_grad=True)
dense, right = torch.randn(4, 5, 8, requires_grad=True), torch.randn(4, 8, 6, requires_grad=True)
order, blocks, rows = torch.tensor([2, 0, 1], dtype=torch.int32), torch.full((3,), 50), torch.tensor([2, 0])
keys = ops.asynchronous_complete_cumsum(lengths.sum(1)).int()
permuted = ops.asynchronous_complete_cumsum(lengths.sum(1)[order.long()]).int()
pooled = torch.randn(4, 8, requires_grad=True), torch.randn(4, 6, requires_grad=True)

CALLS: dict[str, Callable[[Any], Any]] = {
    "inclusive": lambda on: ops.asynchronous_inclusive_cumsum(on(lengths.view(-1))),
    "exclusive": lambda on: ops.asynchronous_exclusive_cumsum(on(lengths.view(-1))),
    "range": lambda on: ops.offsets_range(on(bags[:-1]), total),
    "segments": lambda on: ops.segment_sum_csr(1, on(offsets), on(ids[: int(own.sum())])),
    "permute 1D": lambda on: ops.permute_1D_sparse_data(on(order), on(lengths.sum(1)), on(ids), on(weights), None),
    "permute 2D": lambda on: ops.permute_2D_sparse_data(on(order), on(lengths), on(ids), on(weights), None),
    "permute floats": lambda on: ops.permute_2D_sparse_data(on(order), on(lengths), on(weights), None, None),
    "permute flat": lambda on: ops.permute_2D_sparse_data_input1D(
        on(order), on(lengths.view(-1)), on(ids), 4, on(weights), None
    ),
    "invert": lambda on: ops.invert_permute(on(order)),
    "buckets": lambda on: ops.block_bucketize_sparse_features(
        on(lengths.view(-1)), on(ids), True, True, on(blocks), 2, on(weights)
    ),
    "buckets of inference": lambda on: ops.block_bucketize_sparse_features_inference(
        on(lengths.view(-1)), on(ids), True, True, on(blocks), 2, on(weights)
    ),
    "buckets of rows": lambda on: ops.block_bucketize_sparse_features_2d_weights(
        on(lengths.view(-1)), on(ids), False, True, on(blocks), 2, on(torch.rand(total, 3)), 3
    ),
    "expand": lambda on: ops.expand_into_jagged_permute(on(order), on(keys), on(permuted), total),
    "to jagged": lambda on: ops.dense_to_jagged(on(dense), [on(offsets)])[0],
    "to padded": lambda on: ops.jagged_to_padded_dense(on(values), [on(offsets)], [5], 0.0),
    "ids to padded": lambda on: ops.jagged_1d_to_dense(on(ids[: int(own.sum())]), on(offsets), 5, 0),
    "rows to padded": lambda on: ops.jagged_2d_to_dense(on(values), on(offsets), 5),
    "added": lambda on: ops.jagged_dense_elementwise_add(on(values), [on(offsets)], on(dense)),
    "added, jagged": lambda on: ops.jagged_dense_elementwise_add_jagged_output(on(values), [on(offsets)], on(dense))[0],
    "multiplied": lambda on: ops.jagged_dense_elementwise_mul(on(values), [on(offsets)], on(dense))[0],
    "softmax": lambda on: ops.jagged_softmax(on(values), on(offsets), 5)[0],
    "products": lambda on: ops.jagged_jagged_bmm(on(values), on(values), on(offsets), 5),
    "product of dense": lambda on: ops.jagged_dense_bmm(on(values), on(offsets), on(right), 5)[0],
    "bags chosen": lambda on: ops.jagged_index_select(on(values), on(own), on(rows))[0],
    "rows chosen": lambda on: ops.index_select_dim0(on(values), on(rows)),
    "groups chosen": lambda on: ops.group_index_select_dim0([on(values)] * 2, [on(rows)] * 2),
    "batches chosen": lambda on: ops.batch_index_select_dim0(
        on(values).view(-1)[:24], on(torch.tensor([0, 1, 1, 0])), [2, 2], [2, 2], [4, 8], True
    ),
    "masked": lambda on: ops.masked_select_jagged_1d(on(ids), on(lengths.view(-1)), on(ids > 40)),
    "regrouped": lambda on: ops.regroup_keyed_tensor(
        [on(each) for each in pooled], [["a", "b"], ["c"]], [[3, 5], [6]], [["a", "c"], ["b"]]
    ),
}


def leaves(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    return [leaf for each in tree or () for leaf in leaves(each)]


for name, call in CALLS.items():
    on_cpu, on_gpu = leaves(call(lambda each: each)), leaves(call(lambda each: each.cuda()))
    for expected, found in zip(on_cpu, on_gpu, strict=True):
        assert found.is_cuda, name
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype), name
        assert found.is_floating_point() or found.cpu().equal(expected), name
        assert found.requires_grad >= expected.requires_grad, name
    for leaf in (values, dense, right, *pooled):
        leaf.grad = None
    floats = [each.sum() for each in on_gpu if each.requires_grad]
    if floats:
        sum(floats).backward()
        assert any(leaf.grad is not None for leaf in (values, dense, right, *pooled)), name

# Those that fbgemm has for GPUs alone: every second sample of two keys, and ids that differ within a table.
lengths, ids = torch.tensor([1, 2, 0, 2]), torch.tensor([7, 1, 7, 3, 3])
bags = ops.asynchronous_complete_cumsum(lengths)
chosen = ops.keyed_jagged_index_select_dim1(
    ids.cuda(), lengths.cuda(), bags.cuda(), torch.tensor([1]).cuda(), 2, torch.rand(5).cuda()
)
assert [each.tolist() for each in chosen[:2]] == [[1, 7, 3, 3], [2, 2]]
assert chosen[2].shape == (4,)
found = ops.jagged_unique_indices(
    torch.tensor([0, 10, 20]).cuda(), torch.tensor([0, 1, 2]).cuda(), bags.cuda(), ids.cuda()
)
assert [each.tolist() for each in found] == [[1, 1, 1, 0], [0, 1, 2, 3, 3], [1, 7, 3], [1, 0, 1, 2, 2]]
