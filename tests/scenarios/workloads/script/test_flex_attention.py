"""FlexAttention on simulated GPUs: what its price reads of a mask is no work of the script."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from scenarios.workloads.script.gpu.flex_attention import FlexAttention
from scenarios.workloads.script.gpu.memory import Memory
from scenarios.workloads.script.gpu.shadows import META, Shadows


@pytest.mark.supports("FlexAttention under `torch.compile`", "GPUs")
def test_the_share_of_blocks_is_found_beside_the_script() -> None:
    """Of 4 x 4 blocks 4 are computed in part and 6 in full."""
    shadows, found = Shadows(Memory(1 << 30), lambda: 0), list[bool]()

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
        share = flex._seen(mask, 512, 512)
    assert share == 10 / 16
    assert found
    assert all(found)
