from __future__ import annotations

from dataclasses import replace

from scenarios.config.gpu import Gpu
from scenarios.seam.operations.optimizers import Foreach
from sim.operators.laws import seconds
from tests.sim.operators.rows import H200, mean_error, on_every_gpu


def foreach(name: str, numels: tuple[int, ...], lists: int, read: int, written: int) -> Foreach:
    return Foreach(name=name, dtype="float32", numels=numels, lists=lists, read=read, written=written)


# Parameters of three models: GPT-2 of 12 layers, 8 linear layers of 4,096, TorchRec's DLRM of 26 tables of 128.
BLOCK = (768, 768, 768, 768, 2304 * 768, 2304, 768 * 768, 768, 3072 * 768, 3072, 768 * 3072, 768)
GPT2 = (1024 * 768, 50304 * 768, *BLOCK * 12, 768, 768, 50304 * 768)
MLP = (4096 * 4096, 4096) * 8
SMALL = (256 * 256, 256) * 16
DLRM = (
    *(512 * 13, 512, 256 * 512, 256, 128 * 256, 128, 1024 * 479, 1024, 1024 * 1024, 1024, 512 * 1024, 512),
    *(256 * 512, 256, 256, 1),
)
# One H200, torch 2.11, 2026-11-26: kernels in steps, us; Adam's foreach operators over 134M parameters.
KERNELS = [
    (foreach("_fused_adamw_", GPT2, 4, 4, 3), 1365.9),
    (foreach("_foreach_addcdiv_", MLP, 3, 3, 1), 564.3),
    (foreach("_foreach_lerp_", MLP, 2, 2, 1), 420.8),
    (foreach("_foreach_addcmul_", MLP, 3, 2, 1), 418.3),
    (foreach("_foreach_sqrt", MLP, 2, 1, 1), 332.0),
    (foreach("_foreach_mul_", MLP, 1, 1, 1), 300.6),
    (foreach("_foreach_add_", DLRM, 2, 2, 1), 22.2),
    (foreach("_foreach_addcdiv_", SMALL, 3, 3, 1), 29.4),
    (foreach("_foreach_add_", (1,) * 110, 1, 1, 1), 1.66),
]


def test_kernels_in_steps_of_an_h200_are_within_8_percent() -> None:
    assert mean_error(seconds, KERNELS, H200) < 0.08


@on_every_gpu
def test_more_elements_tensors_and_lists_never_take_less(on: Gpu) -> None:
    times = [seconds(foreach("_foreach_add_", (1 << power,) * 3, 2, 2, 1), on) for power in range(0, 31, 3)]
    assert times == sorted(times)
    call = foreach("_foreach_add_", MLP, 2, 2, 1)
    assert seconds(replace(call, numels=(*MLP, 4096)), on) >= seconds(call, on)
    assert seconds(replace(call, read=3), on) > seconds(call, on)


def test_more_memory_is_quicker() -> None:
    call = foreach("_fused_adamw_", GPT2, 4, 4, 3)
    assert seconds(call, replace(H200, memory_bytes_per_s=2 * H200.memory_bytes_per_s)) < seconds(call, H200)
