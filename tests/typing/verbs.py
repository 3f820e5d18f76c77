"""The types of every verb of `Rank`, as a program sees them."""

from __future__ import annotations

from typing import assert_type

from torch import Tensor

from scenarios.seam.backend import Work
from scenarios.seam.group import Group
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank


async def collectives(rank: Rank, t: Tensor, group: Group) -> None:
    """Await the verbs that tensors go through."""
    several = [t, t]
    assert_type(rank.all_reduce(t, group=group, label="mine"), Work[Tensor])
    assert_type(await rank.all_reduce(t), Tensor)
    assert_type(rank.all_reduce_coalesced(several), Work[list[Tensor]])
    assert_type(rank.all_gather(several, t), Work[list[Tensor]])
    assert_type(rank.all_gather_coalesced([several, several], several), Work[list[list[Tensor]]])
    assert_type(rank.all_gather_into_tensor(t, t), Work[Tensor])
    assert_type(rank.all_gather_into_tensor_coalesced(several, several), Work[list[Tensor]])
    assert_type(rank.all_to_all(several, several), Work[list[Tensor]])
    assert_type(rank.all_to_all_single(t, t, [1, 2], [2, 1], group), Work[Tensor])
    assert_type(rank.broadcast(t, 0), Work[Tensor])
    assert_type(rank.gather(t, None, 0), Work[list[Tensor] | None])
    assert_type(rank.reduce(t, 0), Work[Tensor])
    assert_type(rank.reduce_scatter(t, several), Work[Tensor])
    assert_type(rank.reduce_scatter_tensor(t, t), Work[Tensor])
    assert_type(rank.reduce_scatter_tensor_coalesced(several, several), Work[list[Tensor]])
    assert_type(rank.scatter(t, several, 0), Work[Tensor])
    assert_type(rank.send(t, 1), Work[None])
    assert_type(rank.recv(t, 0), Work[Tensor])
    assert_type(rank.barrier(), Work[None])
    assert_type(rank.monitored_barrier(), Work[None])


async def the_rest(rank: Rank, t: Tensor, kernel: Kernel) -> None:
    """Await what computes, and what makes groups and streams."""

    def double(tensor: Tensor) -> Tensor:
        return 2 * tensor

    async def side() -> int:
        return 1

    assert_type(rank.compute(kernel, double, t), Work[Tensor])
    assert_type(await rank.compute(kernel, double, t), Tensor)
    assert_type(await rank.synchronize(rank.compute(kernel, double, t)), Tensor)
    assert_type(rank.stream("gradients").spawn(side()), Work[int])
    assert_type(rank.stream("gradients"), Rank)
    assert_type(rank.new_group([0, 1]), Group)
    with rank.step(0):
        rank.after(rank.barrier())
        rank.record("loss", t)
