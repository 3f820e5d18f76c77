"""What torch.cuda says of simulated GPUs is what each profile's GPU says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scenarios.config.scenario import Scenario
from scenarios.workloads.script.command import load_given
from scenarios.workloads.script.gpu.cuda.torch_cuda import answers_of_gpu
from scenarios.workloads.script.gpu.memory.memory import DeviceMemory
from scenarios.workloads.script.runner import gpu_properties

PROFILES = Path(__file__).parents[3] / "scenarios" / "profiles"
KIB, MB = 1024, 10**6

# NVIDIA's compute capability tables and white papers: capability, multiprocessors, MB of L2, a multiprocessor's
# threads and KiB of shared memory. A GB200's 152 multiprocessors are what the device says (profile).
PROFILES_OF: dict[tuple[tuple[int, int], int, int, int, int], str] = {
    ((8, 0), 108, 40, 2048, 164): "a100_pcie a100_pcie_40gb dgx_a100 dgx_a100_40gb",
    ((8, 0), 56, 24, 2048, 164): "a30_pcie",
    ((8, 6), 84, 6, 1536, 100): "a40_pcie",
    ((7, 0), 80, 6, 2048, 96): "dgx1_v100 dgx2_v100 v100_pcie v100_tcp_10g",
    ((9, 0), 132, 50, 2048, 228): "dgx_h100 h200_nvl hgx_h200",
    ((10, 0), 152, 126, 2048, 228): "gb200_nvl72",
    ((10, 3), 152, 126, 2048, 228): "gb300_nvl72",
    ((9, 0), 114, 50, 2048, 228): "h100_pcie",
    ((10, 3), 148, 126, 2048, 228): "hgx_b300",
    ((8, 9), 142, 96, 1536, 100): "l40_pcie l40s_pcie",
    ((8, 9), 58, 48, 1536, 100): "l4_pcie",
    ((10, 0), 148, 126, 2048, 228): "p6_b200",
    ((7, 5), 40, 4, 1024, 64): "t4_pcie",
}
PUBLISHED = {profile: figures for figures, profiles in PROFILES_OF.items() for profile in profiles.split()}


def scenario(profile: str) -> Scenario:
    return load_given(Path(__file__), {"profile": profile}, hosts=1, gpus_per_host=1)


def torch_cuda(made: Scenario) -> dict[str, Any]:
    gpu = gpu_properties(made)
    assert gpu is not None
    return answers_of_gpu(gpu, lambda _: DeviceMemory(gpu.memory_bytes))


def test_ready_gpus_are_published_ones() -> None:
    ready = {file.stem for file in PROFILES.glob("*.toml")} - {"template"}
    assert {name for name in ready if gpu_properties(scenario(name)) is not None} == set(PUBLISHED)


@pytest.mark.parametrize("profile", PUBLISHED)
def test_torch_cuda_says_what_the_profile_says(profile: str) -> None:
    capability, multiprocessors, l2_mb, threads, shared_kib = PUBLISHED[profile]
    made = scenario(profile)
    gpu, says = made.cluster.host.gpu, torch_cuda(made)
    found = says["get_device_properties"](0)
    assert says["get_device_capability"](0) == (found.major, found.minor) == capability
    assert divmod(gpu.compute_capability, 10) == capability
    assert found.multi_processor_count == gpu.multiprocessors == multiprocessors
    assert found.L2_cache_size == l2_mb * MB
    assert found.total_memory == says["cudart"]().cudaMemGetInfo(0)[1] == gpu.memory_bytes
    assert found.name == says["get_device_name"](0) == gpu.name
    assert (found.warp_size, found.regs_per_multiprocessor) == (32, 65_536)
    assert found.max_threads_per_multi_processor == threads
    assert found.shared_memory_per_multiprocessor == shared_kib * KIB
    # A block has all of it on a V100 and a T4, and 1 KiB less since the A100.
    assert found.shared_memory_per_block_optin == (shared_kib - (capability >= (8, 0))) * KIB
    assert says["is_bf16_supported"](including_emulation=False) == (capability >= (8, 0))
    assert says["is_bf16_supported"]()  # V100s emulate it
    assert says["get_arch_list"]() == [f"sm_{capability[0]}{capability[1]}"]
    assert f"multi_processor_count={multiprocessors}" in repr(found)


def test_properties_missing_in_a_profile_are_one_sentence() -> None:
    made = scenario("dgx_h100")
    host = made.cluster.host
    gpu = replace(host.gpu, multiprocessors=None, l2_bytes=None)
    found = torch_cuda(replace(made, cluster=replace(made.cluster, host=replace(host, gpu=gpu))))
    properties = found["get_device_properties"]()
    for name, key in (("multi_processor_count", "multiprocessors"), ("L2_cache_size", "l2")):
        with pytest.raises(AttributeError) as caught:
            getattr(properties, name)
        assert str(caught.value) == (
            f"torch.cuda.get_device_properties: {name} is not in the profile of H100 SXM 80 GB: expected"
            f" cluster.gpu.{key}"
        )
    with pytest.raises(AttributeError, match=r"clock_rate is not in the profile of H100 SXM 80 GB$"):
        _ = properties.clock_rate
