"""The probes play every kind of kernel in both worlds, on no more ranks at once than there are cores."""

from __future__ import annotations

import dataclasses

import pytest

from real.calibration.kernels.fit import fit, observe, predicted_s
from real.calibration.kernels.probes import WARM_UP, DeviceProbes, computing_ranks, launches_in, probe_label
from scenarios.config.kernel_kinds import KERNEL_KINDS
from sim.run import simulate
from tests.contract.worlds import scenario as contract_scenario
from tests.real.pool import shared_pool
from tests.small import CORE, cluster, scenario

KINDS = set(KERNEL_KINDS)


def test_probes_of_a_simulated_machine_give_back_its_parameters() -> None:
    """Whatever the model is, the fit of its own times predicts the same times."""
    gpu = dataclasses.replace(
        CORE,
        flops_per_s={"float64": 4e10, "float32": 1e11, "bfloat16": 3e10, "float16": 8e9},
        efficiency={"gemm": 0.5, "qr": 0.1, "elementwise": 0.9, "embedding_update": 0.05, "default": 0.3},
        launch_ns=20_000,
        launches_ns={"bucketize": 100_000, "gemm": 40_000},
    )
    played = scenario(cluster(1, 2, gpu=gpu), payload="sizes").with_run(steps=2)
    timed = observe([simulate(played, DeviceProbes(played)).spans])
    fitted = fit(timed, CORE)
    assert {each.kind for each in timed} == KINDS
    assert [each.label for each in timed if max(each.repeats) - min(each.repeats) > 0.002] == []
    for each in timed:
        assert predicted_s(each, fitted.gpu) == pytest.approx(each.median_s, rel=0.01), each.label
    assert fitted.gpu.launches_ns["bucketize"] == pytest.approx(100_000, rel=0.01)
    assert fitted.gpu.launches_ns["qr"] == pytest.approx(20_000, rel=0.01)


@pytest.mark.real
def test_real_ranks_probe_all_kinds_and_those_without_a_core_only_wait() -> None:
    made = contract_scenario(1, 2, timeout_s=60.0)
    one_core = dataclasses.replace(made.cluster, host=dataclasses.replace(made.cluster.host, cores=1))
    played = dataclasses.replace(made.with_run(steps=1), cluster=one_core)
    spans = shared_pool().play(DeviceProbes(played), played).spans
    computed = [span for span in spans if span.kind == "compute"]
    assert {span.rank for span in computed} == {0}
    assert {span.kernel for span in computed} == KINDS
    timed = observe([spans])
    assert {each.kind for each in timed} == KINDS
    assert all(each.median_s > 0 for each in timed)
    assert {span.step for span in computed} == set(range(WARM_UP + 1))


def test_computing_ranks_are_those_with_a_core() -> None:
    assert computing_ranks(cluster(2, 2, cores=4)) == [0, 1, 2, 3]
    assert computing_ranks(cluster(2, 2, cores=1)) == [0, 2]
    assert computing_ranks(cluster(4, 2, cores=3, hosts_share_cores=True)) == [0, 1, 2]


def test_a_label_tells_the_launches_and_no_other_label_does() -> None:
    assert launches_in(probe_label("batched x2", "powersgd.compress", 7)) == 7
    assert launches_in("top.0.forward") is None
    assert launches_in("exchange x3") is None
