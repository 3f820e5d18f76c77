"""Plans NCCL's collectives as phases of transfers between GPUs.

Algorithm and protocol are NCCL's own choice. On an idle cluster a coupled phase takes that choice's latency, and the
time of its bytes by `sim.nccl.tuning`: its transfers are the payload times one factor, which accounts for the
protocol's flags and for the rates in NCCL's bandwidth tables, which are lower than the links'.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from scenarios.seam.traits import BARRIERS, CHAINS, EXCHANGES, TRAITS, Function
from sim.nccl import rings_and_trees as paths
from sim.nccl.costs import GroupShape, NcclCosts
from sim.nccl.model.predictor import TunedCollective, TuningChoice
from sim.nccl.model.topology import ring_steps
from sim.nccl.one_host import PAYLOAD_SHARES
from sim.nccl.tuning import (
    P2P_LL_BYTES,
    SHARP_SHARE,
    choose,
    is_offloaded,
    latency_ns,
    overhead,
    p2p_latency_ns,
    pipeline_overhead,
    topology,
    transfer_ns,
)

if TYPE_CHECKING:
    from scenarios.seam.calls import Call

Calls: TypeAlias = "Sequence[Call]"
Layout: TypeAlias = Sequence[int]

# torch's barrier is an all_reduce of one float; NCCL has no monitored one: on real ranks, too, it is a barrier
BARRIER_BYTES = 4
# "We aggregate operations that are within 4X size of each other" (ncclPrepareTasks in src/enqueue.cc of NCCL 2.28).
_ALIKE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A set of transfers (source group rank, destination group rank, bytes on the link) that begin together after
    `latency_ns`.

    `coupled`: they are one pipeline and advance together, at the pace of the slowest; else each is a flow of its own.
    `relays`: maps a pair of group ranks to the third rank on the source's host that forwards its bytes. `least_s`:
    least time of a coupled phase's transfers, on idle links. `algorithm`: that of a coupled phase.
    """

    latency_ns: int
    transfers: tuple[tuple[int, int, float], ...]
    coupled: bool
    relays: Mapping[tuple[int, int], int] = field(default_factory=dict)
    least_s: float = 0.0
    algorithm: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclPlan:
    """A sequence of phases.

    `predicted_ns` is NCCL's own figure on an idle cluster; 0 where NCCL has none (point-to-point, one rank). `function`
    is NCCL's name for the collective, where it has one.
    """

    algorithm: str
    protocol: str
    phases: tuple[Phase, ...] = ()
    predicted_ns: float = 0.0
    function: Function | None = None


NO_PLAN = NcclPlan(algorithm="none", protocol="none")


def plan(calls: Calls, layout: Layout, costs: NcclCosts, gpus: Sequence[int] | None = None) -> NcclPlan:
    """Return NCCL's plan for the calls.

    Args:
        calls: by group rank; a send or recv is given as its two calls.
        layout: the host of every group rank.
        costs: the cluster's rates.
        gpus: which GPU of its host every group rank is; None: a host's ranks are its first GPUs in order.
    """
    call = calls[0]
    if len(layout) == 1:
        return NO_PLAN
    group = _group_of(layout, costs, gpus)
    if call.op in GROUPED:
        return _plan_per_transfer(GROUPED[call.op](calls), layout, group, costs, own_bytes=_own_bytes(calls))
    return pipeline(call, group, costs)


def pipeline(call: Call, group: GroupPlacement, costs: NcclCosts) -> NcclPlan:
    """Return NCCL's plan for one or several collectives that are no exchange; all members make this same call."""
    known = TRAITS[call.op]
    if known.uneven and call.parts:  # with a root each, in one group (ProcessGroupNCCL.cpp of torch 2.13)
        of_each = [
            (TunedCollective(function=known.uneven, size_bytes=size), root) for root, size in enumerate(call.parts)
        ]
        return _in_one_kernel([_pipeline(each, root, group, costs) for each, root in of_each if each.size_bytes])
    # The larger buffer, as in NCCL's formulas: the output of a gather, the input of a scatter.
    size_bytes = BARRIER_BYTES if call.op in BARRIERS else max(call.bytes_in, call.bytes_out)
    plans = [
        _pipeline(_operation(call.op, alike, group, costs), call.root, group, costs)
        for alike in runs(call.parts or (size_bytes,))
    ]
    return _in_one_kernel(plans) if plans else NO_PLAN


def runs(parts_bytes: Sequence[int]) -> Iterator[list[int]]:
    """Yield the bytes of collectives of one group (ncclGroupStart, ncclGroupEnd) by runs, the smallest first.

    Of collectives of one kind, smallest first, those below four times the smallest get one algorithm and protocol:
    NCCL's choice for their sum. All go in one kernel, in which channels share the bytes of all evenly
    (scheduleCollTasksToPlan). Empty parts are not sent.
    """
    left = sorted(size for size in parts_bytes if size)
    while left:
        below = _ALIKE * left[0]
        alike = [size for size in left if size < below]
        yield alike
        left = left[len(alike) :]


def _operation(op: str, sizes_bytes: Sequence[int], group: GroupPlacement, costs: NcclCosts) -> TunedCollective:
    """Return several collectives of similar size as one; `together` is how many a channel runs one after the other."""
    channels = topology(group.shape, costs).channels if len(sizes_bytes) > 1 else 1
    together = -(-len(sizes_bytes) // channels)
    function = TRAITS[op].function
    assert function is not None, "others are sends and receives"
    return TunedCollective(function=function, size_bytes=sum(sizes_bytes), together=together)


def _in_one_kernel(plans: Sequence[NcclPlan]) -> NcclPlan:
    """Join plans: one launch and the longest latency, then the bytes of each; named after the last, which is the
    largest.
    """
    phases = [phase for plan in plans for phase in plan.phases]
    latency_ns = max(phase.latency_ns for phase in phases)
    latencies = [latency_ns, *[0] * (len(phases) - 1)]
    return replace(
        plans[-1],
        phases=tuple(replace(phase, latency_ns=own) for phase, own in zip(phases, latencies, strict=True)),
        predicted_ns=sum(plan.predicted_ns for plan in plans),
    )


def _pipeline(operation: TunedCollective, root: int, group: GroupPlacement, costs: NcclCosts) -> NcclPlan:
    op, choice = operation.function, choose(operation, group.shape, costs)
    loads = _loads(op, choice, group, costs, root=root)
    is_reduced = is_offloaded(choice.algorithm, group.shape)
    carry = _offloaded_transfers if is_reduced else _transfers
    phase = Phase(
        latency_ns=round(latency_ns(choice, operation, group.shape, costs)),
        transfers=carry(loads, choice, operation, group, costs),
        coupled=True,
        relays=paths.relays_of(loads, group.members, costs, group.gpus, uses_rails=False),
        least_s=_offloaded_s(loads, choice, operation, group, costs) if is_reduced else 0.0,
        algorithm=choice.algorithm,
    )
    return NcclPlan(
        algorithm=choice.algorithm,
        protocol=choice.protocol,
        phases=(phase,),
        predicted_ns=choice.total_ns,
        function=op,
    )


Carried: TypeAlias = tuple[tuple[int, int, float], ...]


def _transfers(
    loads: paths.Loads, choice: TuningChoice, operation: TunedCollective, group: GroupPlacement, costs: NcclCosts
) -> Carried:
    """Return the payload times one factor.

    With this factor NCCL's links, if idle, are busy for exactly NCCL's time. PCI Express may be busy for longer, but
    with no more than the protocol's bytes.
    """
    bytes_ns = transfer_ns(choice, operation, group.shape, costs)
    counted_ns = 1e9 * paths.idle_seconds(loads, group.members, costs, group.gpus)
    pcie_ns = 1e9 * paths.pcie_seconds(loads, group.members, costs, group.gpus)
    factor = bytes_ns / counted_ns
    if pcie_ns > counted_ns:
        least_bytes = operation.size_bytes * overhead(True, costs) / PAYLOAD_SHARES[choice.protocol]
        factor = max(bytes_ns / pcie_ns, least_bytes)
    return tuple((source, target, share * factor) for (source, target), share in loads.items())


def _offloaded_transfers(
    loads: paths.Loads, choice: TuningChoice, operation: TunedCollective, group: GroupPlacement, costs: NcclCosts
) -> Carried:
    """Return the payload: switches that reduce, or NCCL's own pace, may be the limit, so NICs may be partly idle."""
    hosts = _hosts_of(group)
    each = {is_inside: operation.size_bytes * pipeline_overhead(is_inside, costs) for is_inside in (True, False)}
    return tuple(
        (source, target, share * each[hosts[source] == hosts[target]]) for (source, target), share in loads.items()
    )


def _offloaded_s(
    loads: paths.Loads, choice: TuningChoice, operation: TunedCollective, group: GroupPlacement, costs: NcclCosts
) -> float:
    """Return the longer of NCCL's time, which ignores the rate of reducing switches, and the time at that rate."""
    hosts = _hosts_of(group)
    across = {(one, other): share for (one, other), share in loads.items() if hosts[one] != hosts[other]}
    reduced_s = paths.idle_seconds(across, group.members, costs, group.gpus) * operation.size_bytes
    return max(
        transfer_ns(choice, operation, group.shape, costs) / 1e9,
        reduced_s * pipeline_overhead(False, costs) / SHARP_SHARE,
    )


def _hosts_of(group: GroupPlacement) -> dict[int, int]:
    return {rank: host for host, ranks in enumerate(group.members) for rank in ranks}


def channels(layout: Layout, costs: NcclCosts, gpus: Sequence[int] | None = None) -> int:
    """Return the thread blocks of an operation of such a group on each GPU; arguments as for `plan`."""
    return topology(_group_of(layout, costs, gpus).shape, costs).channels


@dataclass(frozen=True, slots=True)
class GroupPlacement:
    """The group ranks of each host, the GPU number of each rank, and the group's shape for the tuning model.

    `shape` may be that of a larger group of such hosts.
    """

    members: Sequence[Sequence[int]]
    gpus: Sequence[int]
    shape: GroupShape


def _group_of(layout: Layout, costs: NcclCosts, gpus: Sequence[int] | None) -> GroupPlacement:
    members = paths.members_by_host(layout)
    placed = paths.gpus_in_order(members) if gpus is None else gpus
    return GroupPlacement(members, placed, paths.shape_of(members, costs, placed))


def _loads(op: Function, choice: TuningChoice, group: GroupPlacement, costs: NcclCosts, *, root: int) -> paths.Loads:
    members, rails = group.members, group.shape.rails
    if choice.algorithm in ("nvls", "nvls_tree"):
        return paths.nvls_loads(members, rails, offload=is_offloaded(choice.algorithm, group.shape))
    if choice.algorithm == "collnet_direct":
        return paths.collnet_direct_loads(members, rails)
    if choice.algorithm == "pat":
        return paths.pat_loads(members, towards_owner=op == "reduce_scatter")
    chains = paths.chains_of(members, group.shape, costs, group.gpus)
    if choice.algorithm in ("tree", "collnet_chain"):
        return (paths.tree_loads if choice.algorithm == "tree" else paths.collnet_chain_loads)(chains)
    if op in CHAINS:
        return paths.chain_loads(chains, root, towards_root=op == "reduce")
    return paths.ring_loads(chains, ring_steps(op, group.shape.ranks) / group.shape.ranks)


Transfers: TypeAlias = Iterable[tuple[int, int, int]]


def _plan_per_transfer(
    transfers: Transfers, layout: Layout, group: GroupPlacement, costs: NcclCosts, *, own_bytes: int
) -> NcclPlan:
    """Return every transfer as a flow of its own, after a latency that grows with the peers of the busiest rank.

    LL doubles the bytes; NCCL chooses it per message, by size.
    """
    moved = [transfer for transfer in transfers if transfer[0] != transfer[1] and transfer[2]]
    if not moved:
        return NO_PLAN
    largest_bytes = max(size_bytes for _, _, size_bytes in moved)
    crosses = any(layout[source] != layout[target] for source, target, _ in moved)
    sources, targets, _ = zip(*moved, strict=True)
    peers = max(*Counter(sources).values(), *Counter(targets).values())
    inside, across = overhead(True, costs, _peers_inside(moved, layout)), overhead(False, costs)
    latency = p2p_latency_ns(largest_bytes, peers, group.shape, costs, crosses=crosses, own_bytes=own_bytes)
    phase = Phase(
        latency_ns=round(latency),
        transfers=tuple(
            (source, target, _p2p_link_bytes(size_bytes) * (inside if layout[source] == layout[target] else across))
            for source, target, size_bytes in moved
        ),
        coupled=False,
        relays=paths.relays_of(
            ((source, target) for source, target, _ in moved), group.members, costs, group.gpus, uses_rails=True
        ),
    )
    protocol = "LL" if largest_bytes <= P2P_LL_BYTES else "Simple"
    return NcclPlan(algorithm="p2p", protocol=protocol, phases=(phase,))


def _p2p_link_bytes(size_bytes: float) -> float:
    return size_bytes / PAYLOAD_SHARES["LL"] if size_bytes <= P2P_LL_BYTES else float(size_bytes)


def p2p_link_bytes(sizes_bytes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the link bytes of many messages, without the share of a link that NCCL cannot use."""
    return np.where(sizes_bytes <= P2P_LL_BYTES, sizes_bytes / PAYLOAD_SHARES["LL"], sizes_bytes)


def _exchange(calls: Calls) -> Transfers:
    """Yield transfers in the order of distance, as NCCL visits peers."""
    ranks, sends = len(calls), [call.send_bytes for call in calls]
    for distance in range(1, ranks):
        for rank, target in enumerate([*range(distance, ranks), *range(distance)]):
            yield rank, target, sends[rank][target]


def _peers_inside(moved: Iterable[tuple[int, int, int]], layout: Layout) -> int:
    """Return the number of peers on its own host that the busiest rank sends to."""
    return max(Counter(source for source, target, _ in moved if layout[source] == layout[target]).values(), default=1)


def _own_bytes(calls: Calls) -> int:
    """Return the most bytes that any rank of an exchange keeps, which its channels copy."""
    return max((call.send_bytes[rank] for rank, call in enumerate(calls) if call.op in EXCHANGES), default=0)


def _point_to_point(calls: Calls) -> Transfers:
    sender = next(call for call in calls if call.op == "send")
    return [(sender.group.index(sender.rank), sender.root, sender.bytes_in)]


GROUPED: dict[str, Callable[[Calls], Transfers]] = {
    **dict.fromkeys(EXCHANGES, _exchange),
    "gather": lambda calls: ((rank, call.root, call.bytes_in) for rank, call in enumerate(calls)),
    "scatter": lambda calls: ((call.root, rank, call.bytes_out) for rank, call in enumerate(calls)),
    "send": _point_to_point,
    "recv": _point_to_point,
}
