"""Rings over NVLinks without a switch: those that NCCL has been seen to lay, and laws of all others."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.config.load import load_profile
from sim.nccl.model.mesh import HostPart, Mesh, Rings, bus_gb_per_s, search
from sim.nccl.model.topology import Path

DGX1 = Mesh(
    links=load_profile("dgx1_v100").host.inside.links,
    link_bytes_per_s=25e9,
    bridge_bytes_per_s=15.75e9,
)


def full(gpus: int, links: int) -> Mesh:
    rows = tuple(tuple(0 if i == j else links for j in range(gpus)) for i in range(gpus))
    return Mesh(links=rows, link_bytes_per_s=25e9, bridge_bytes_per_s=None)


def part(mesh: Mesh, gpus: tuple[int, ...], nics: tuple[int, ...] = (), **changes: float) -> HostPart:
    capability = int(changes.get("compute_capability", 70))
    return HostPart(
        mesh=mesh,
        gpus=gpus,
        nics=nics,
        nic_gb_per_s=changes.get("nic_gb_per_s", 12.5),
        compute_capability=capability,
    )


def figures(found: Rings) -> tuple[int, float, Path]:
    return len(found.rings), found.gb_per_s, found.path


ALL = tuple(range(8))


@pytest.mark.parametrize(
    ("gpus", "expected", "bus"),
    [
        (ALL, (6, 20, Path.NVL), 132),  # every NVLink is full: 6 of 22 GB/s out of each GPU
        ((0, 1, 2, 3), (4, 20, Path.NVL), 88),
        ((0, 1, 2), (2, 20, Path.NVL), 44),
        ((0, 3), (1, 40, Path.NVL), 44),
        ((0, 1, 4), (1, 20, Path.NVB), 22),  # 1 and 4 have no NVLink to each other: over 0
        ((0, 5), (1, 6, Path.PHB), 6),  # nor do these, and there is no third
    ],
)
def test_a_hybrid_cube_mesh_has_the_rings_that_its_links_carry(
    gpus: tuple[int, ...], expected: tuple[int, float, Path], bus: float
) -> None:
    on = part(DGX1, gpus)
    found = search(on)
    assert figures(found) == expected
    assert bus_gb_per_s(on, found.rings, 12.5) == pytest.approx(bus)


def test_a_dgx1_has_two_rings_per_direction_on_double_links_and_one_on_single_links() -> None:
    rounds = Counter(search(part(DGX1, ALL)).rings)
    assert rounds == {
        (0, 3, 2, 1, 5, 6, 7, 4): 2,
        (0, 4, 7, 6, 5, 1, 2, 3): 2,
        (0, 1, 3, 7, 5, 4, 6, 2): 1,
        (0, 2, 6, 4, 5, 7, 3, 1): 1,
    }


def test_four_v100_with_two_links_each_have_the_six_rings_that_nccl_printed() -> None:
    """NVIDIA/nccl issue 713: six channels, which are all the ways round; three of twice the speed do not fit."""
    found = search(part(full(4, 2), (0, 1, 2, 3)))
    assert figures(found) == (6, 20, Path.NVL)
    assert set(found.rings) == {
        (0, 1, 2, 3),
        (0, 1, 3, 2),
        (0, 2, 3, 1),
        (0, 2, 1, 3),
        (0, 3, 1, 2),
        (0, 3, 2, 1),
    }


@pytest.mark.parametrize("gpus", [3, 4, 5, 7])
@pytest.mark.parametrize("links", [1, 2, 4])
def test_a_full_mesh_fills_every_link(gpus: int, links: int) -> None:
    """As an NVSwitch would: every GPU sends at the rate of all its links."""
    on = part(full(gpus, links), tuple(range(gpus)), compute_capability=80)
    found = search(on)
    assert found.all_gb_per_s == pytest.approx((gpus - 1) * links * 20)
    assert bus_gb_per_s(on, found.rings, 25.0) == pytest.approx((gpus - 1) * links * 20)


@pytest.mark.parametrize(
    ("nics", "rings", "same"),
    [((0, 1, 2, 3) * 2, 4, True), ((0, 0, 1, 1, 2, 2, 3, 3), 4, True), (ALL, 8, False)],
)
def test_over_hosts_every_nic_has_one_ring_in_and_one_out(nics: tuple[int, ...], rings: int, same: bool) -> None:
    found = search(part(DGX1, ALL, nics))
    assert figures(found) == (rings, 12, Path.NVL)
    ends = [(nics[ring[0]], nics[ring[-1]]) for ring in found.rings]
    assert sorted(nic for nic, _ in ends) == sorted(nic for _, nic in ends) == list(range(rings))
    assert all((nic_in == nic_out) == same for nic_in, nic_out in ends)


@st.composite
def parts(draw: st.DrawFn) -> HostPart:
    """Connected meshes, and some of their GPUs."""
    size = draw(st.integers(2, 6))
    links = [[0] * size for _ in range(size)]
    tree = [(gpu, draw(st.integers(0, gpu - 1))) for gpu in range(1, size)]
    for i, j in [*tree, *draw(st.lists(st.sampled_from(list(combinations(range(size), 2)))))]:
        links[i][j] = links[j][i] = draw(st.integers(1, 4))
    nics = draw(st.sampled_from([0, 1, 2, size]))
    gpus = draw(st.sets(st.integers(0, size - 1), min_size=1 if nics else 2))
    return HostPart(
        mesh=Mesh(
            links=tuple(map(tuple, links)),
            link_bytes_per_s=draw(st.sampled_from([25e9, 50e9, 7e9])),
            bridge_bytes_per_s=draw(st.sampled_from([15.75e9, 63e9, 1e9])),
        ),
        gpus=tuple(sorted(gpus)),
        nics=tuple(gpu % nics for gpu in sorted(gpus)) if nics else (),
        nic_gb_per_s=draw(st.sampled_from([1.25, 12.5, 25.0, 50.0])),
        compute_capability=draw(st.sampled_from([70, 80, 90, 100])),
    )


@given(parts())
def test_every_ring_goes_once_through_every_gpu_and_no_link_or_nic_carries_more_than_nccl_counts_on(
    on: HostPart,
) -> None:
    found = search(on)
    assert 1 <= len(found.rings) <= 32
    assert all(sorted(ring) == list(on.gpus) for ring in found.rings)
    if found.path == Path.SYS:
        assert (len(found.rings), found.gb_per_s) == (1, 0.1)  # NCCL's fallback
        return
    crossings = Counter(hop for ring in found.rings for hop in on.hops(ring))
    for hop, count in crossings.items():
        assert count * found.gb_per_s <= on.counted_gb_per_s[hop] * (1 + 1e-6)
    for ring in found.rings:
        assert all(on.path(*edge) <= found.path for edge in pairwise(ring))


@given(parts(), st.floats(1.0, 10.0))
def test_the_bus_rate_of_rings_fills_exactly_the_bottleneck_link(on: HostPart, nic_gb_per_s: float) -> None:
    rings = search(on).rings
    bus = bus_gb_per_s(on, rings, nic_gb_per_s)
    carried = 22 / 20 if on.compute_capability == 70 else 1.0
    full_by = []
    for hop, count in Counter(hop for ring in rings for hop in on.hops(ring)).items():
        rate = nic_gb_per_s if hop[0].startswith("nic") else on.counted_gb_per_s[hop]
        full_by.append(bus * count / len(rings) / (rate * (carried if hop[0] == "nvlink" else 1.0)))
    assert max(full_by) == pytest.approx(1.0)


@given(parts())
def test_a_relay_has_nvlinks_to_both_and_none_is_wider(on: HostPart) -> None:
    links = on.mesh.links
    for source in on.gpus:
        for target in on.gpus:
            via = on.mesh.relay(source, target, on.gpus) if source != target else None
            widths = [min(links[source][other], links[other][target]) for other in on.gpus]
            if source == target or links[source][target] or not any(widths):
                assert via is None
            else:
                assert via is not None
                assert min(links[source][via], links[via][target]) == max(widths)
