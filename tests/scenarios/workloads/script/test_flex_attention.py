"""FlexAttention on simulated GPUs: what its price reads of a mask is no work of the script."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import flex_attention as torchs
from torch.utils._python_dispatch import TorchDispatchMode

from scenarios.workloads.script.gpu import flex_attention
from scenarios.workloads.script.gpu.flex_attention import FlexAttention
from scenarios.workloads.script.gpu.known_values import META, Shadows
from scenarios.workloads.script.gpu.memory.memory import DeviceMemory


@pytest.mark.supports("FlexAttention under `torch.compile`", "GPUs")
def test_the_share_of_blocks_is_found_beside_the_script() -> None:
    """Of 4 x 4 blocks 4 are computed in part and 6 in full."""
    shadows, found = Shadows(DeviceMemory(1 << 30), lambda: 0), list[bool]()

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            found.append(shadows.now.is_suspended)
            return func(*args, **(kwargs or {}))

    partly, fully = (torch.empty(1, 1, 4, dtype=torch.int32, device=META) for _ in range(2))
    shadows.keep(partly, torch.ones(1, 1, 4, dtype=torch.int32))
    shadows.keep(fully, torch.arange(4, dtype=torch.int32).view(1, 1, 4))
    mask = (512, 512, partly, None, fully, None, None, None, None, None, 128, 128, None)
    flex = FlexAttention(shadows, lambda *_: None, lambda: True)
    with Watching():  # type: ignore[no-untyped-call]
        share = flex._computed_share(mask, 512, 512)
    assert share == 10 / 16
    assert found
    assert all(found)


def test_a_large_mask_is_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a causal window over documents are those of the whole mask."""
    documents = (torch.arange(1024) % 300 == 0).cumsum(0)

    def mask(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (q >= k) & (documents[q] == documents[k]) & (q - k < 256)

    flex = FlexAttention(Shadows(DeviceMemory(1 << 30), lambda: 0), lambda *_: None, lambda: True)
    whole = flex.block_mask(mask, None, None, 1024, 1024, device="cpu")
    monkeypatch.setattr(flex_attention, "_MOST_PAIRS", 0)
    parts = flex.block_mask(mask, None, None, 1024, 1024, device="cpu")
    assert 0 < int(whole.full_kv_num_blocks.sum()) < int(whole.kv_num_blocks.sum()) < 64
    for name in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks"):
        assert getattr(parts, name).equal(getattr(whole, name))


def _causal(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return q >= k


@pytest.mark.filterwarnings("ignore:_compile flag")
@pytest.mark.parametrize("more", [(), (False,)])
def test_an_installed_mask_takes_what_torchs_takes(monkeypatch: pytest.MonkeyPatch, more: tuple[bool, ...]) -> None:
    """Torch's own function compiles whatever has its name in the module, and gives that its options by position."""
    for name in ("create_block_mask", "_warn_once"):
        if hasattr(torchs, name):
            monkeypatch.setattr(torchs, name, getattr(torchs, name))
    monkeypatch.setattr(torch, "compile", lambda function: function)
    own = torchs.create_block_mask(_causal, None, None, 1024, 1024, "cpu", 128, False, *more)
    FlexAttention(Shadows(DeviceMemory(1 << 30), lambda: 0), lambda *_: None, lambda: False).install()
    made = torchs.create_block_mask(_causal, None, None, 1024, 1024, "cpu", 128, True, *more)
    assert made.kv_num_blocks.equal(own.kv_num_blocks)
    assert (made.full_kv_num_blocks is None) == (own.full_kv_num_blocks is None) == bool(more)


def test_a_large_mask_is_on_the_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless its device is named."""
    monkeypatch.setattr(flex_attention, "_MOST_PAIRS", 0)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: META)
    flex = FlexAttention(Shadows(DeviceMemory(1 << 30), lambda: 0), lambda *_: None, lambda: True)
    assert flex.block_mask(_causal, None, None, 1024, 1024).kv_num_blocks.device == META
    assert flex.block_mask(_causal, None, None, 1024, 1024, device="cpu").kv_num_blocks.device == torch.device("cpu")
