"""What TorchRec's codecs gave, as `python -m benchmarks.torchrec_qcomms tests/data/qcomms` recorded it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scenarios.config.scenario import CommPrecision, QComms
from scenarios.quantized import Codec, quantized_comms

FOLDER = Path(__file__).parents[2] / "data/qcomms"
ARRAYS = dict(np.load(FOLDER / "torchrec_1_8.npz"))
SAID: dict[str, Any] = json.loads((FOLDER / "torchrec_1_8.json").read_text())
ENCODED = sorted(name.removesuffix(".encoded") for name in ARRAYS if name.endswith(".encoded"))


def record(name: str) -> Tensor:
    return torch.from_numpy(ARRAYS[name].copy())


def codec_of(name: str) -> Codec:
    """The codec of a recorded case, such as "fp16.8.0", "int8" or "fp8.backward.32"."""
    kind, *more = name.split(".", 1)
    if kind == "fp8":
        direction, size = more[0].split(".")
        both = quantized_comms(
            QComms(forward_precision="fp8", backward_precision="fp8", fp8_quantize_dim=int(size))
        ).all_to_all
        found = both.forward if direction == "forward" else both.backward
    else:
        scale = float(more[0]) if more and more[0] != "plain" else None
        precision: CommPrecision = kind  # type: ignore[assignment]
        found = quantized_comms(QComms(forward_precision=precision, forward_loss_scale=scale)).all_to_all.forward
    assert found is not None
    return found


def same_bits(found: Tensor, wanted: Tensor) -> bool:
    """Whether all bits are equal, but for those of NaN."""
    nan = wanted.isnan()
    bits = [torch.where(nan, 0.0, each).view(torch.int32) for each in (found, wanted)]
    return torch.equal(found.isnan(), nan) and torch.equal(*bits)
