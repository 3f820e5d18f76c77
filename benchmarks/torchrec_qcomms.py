"""Records what TorchRec's codecs of quantized exchanges make of small vectors, for tests to hold ours to.

    python -m benchmarks.torchrec_qcomms [FOLDER]

Writes FOLDER/torchrec_1_8.npz (by case: input, encoded, decoded; and what two ranks get of exchanges over gloo) and
FOLDER/torchrec_1_8.json (encoded sizes, what falls back to what, and what is raised); tests/data/qcomms has them.
Without FOLDER it compares with these. TorchRec is installed as benchmarks/partition.py says.

FBGEMM has no row-wise fp8 on CPUs. Its CUDA kernels (fbgemm_gpu/src/quantize_ops/quantize_fp8_rowwise.cu) scale a row
by its largest magnitude and round each element as the operators FloatToHFP8Quantized and HFP8QuantizedToFloat do, which
CPUs have: these are recorded, on rows that are scaled here.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor

HELD = Path(__file__).parent.parent / "tests/data/qcomms"
NAME = "torchrec_1_8"
INT8_ROW = 32
# Exponent bits, bias and largest number of fp8, forward and backward; what keeps a row's scale finite.
FP8 = {"forward": (4, 15, 0.9375), "backward": (5, 31, 0.875)}
FP8_EPSILON = 1e-20
SPECIAL = (
    *(0.0, -0.0, float("nan"), float("inf"), -float("inf"), 65504.0, 65520.0, -65519.9, 3.4e38, -3.39e38, 1e-40, 6e-8),
    *(-2.98e-8, 2.9e-8, 1.0009765625, 1.00146484375, 1.00390625, 1.01171875, -1.0),
)
# Of exchanges: columns of each rank, samples a rank, columns of sums; precisions and loss scales, there and back.
DIMS, BATCH, SUMMED = (8, 24), 4, 6
EXCHANGED = {
    "all_to_all.int8": ("int8", "int8", None, None),
    "all_to_all.fp16": ("fp16", "bf16", 4.0, 0.5),
    "reduce_scatter.fp16": ("fp16", "fp16", None, 64.0),
    "reduce_scatter.bf16": ("bf16", "bf16", 3.0, None),
}


def main(arguments: list[str]) -> int:
    """0 if TorchRec still does what is held, or if it was recorded."""
    arrays, said = record()
    for name in sorted({name.rsplit(".", 1)[0] for name in arrays if name.endswith(".encoded")}):
        print(f"{name:<24} {arrays[f'{name}.input'].size:>5} elements, {arrays[f'{name}.encoded'].nbytes:>5} bytes")
    if arguments:
        folder = Path(arguments[0])
        folder.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(folder / f"{NAME}.npz", **arrays)  # type: ignore[arg-type]
        (folder / f"{NAME}.json").write_text(json.dumps(said, indent=1) + "\n")
        return 0
    held = np.load(HELD / f"{NAME}.npz")
    same = {name for name in held if name in arrays and held[name].tobytes() == arrays[name].tobytes()}
    wrong = sorted({*held, *arrays} - same)
    if said != json.loads((HELD / f"{NAME}.json").read_text()):
        wrong.append(f"{NAME}.json")
    print("as held" if not wrong else f"other than held: {', '.join(wrong)}")
    return int(bool(wrong))


def record() -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Arrays by name, halves as the integers of their bits; sizes, fallbacks and refusals."""
    qcomms = import_module("torchrec.distributed.fbgemm_qcomm_codec")
    torch.manual_seed(0)
    vectors: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
    halves = torch.cat([torch.tensor(SPECIAL), torch.randn(60) * torch.exp2(torch.randint(-30, 30, (60,)))])
    for kind in ("fp16", "bf16"):
        for scale in (None, 8.0, 0.3):
            codec = _codec(qcomms, kind, scale)
            encoded = codec.encode(halves)
            name = f"{kind}.{'plain' if scale is None else scale}"
            vectors[name] = halves, encoded.view(torch.int16), codec.decode(encoded)
    rows = _rows(INT8_ROW)
    codec = _codec(qcomms, "int8")
    context = codec.create_context()
    encoded = codec.encode(rows.view(-1), context)
    vectors["int8"] = rows.view(-1), encoded, codec.decode(encoded, context)
    for direction, of in FP8.items():
        for size in (4, 20, 32):
            vectors[f"fp8.{direction}.{size}"] = _fp8(_rows(size, float("nan")), *of)
    arrays = {
        f"{name}.{part}": tensor.numpy()
        for name, tensors in vectors.items()
        for part, tensor in zip(("input", "encoded", "decoded"), tensors, strict=True)
    }
    with tempfile.TemporaryDirectory() as folder:
        import_module("torch.multiprocessing").spawn(_save_exchange, (folder,), nprocs=len(DIMS))
        for file in sorted(Path(folder).glob("*.npz")):
            arrays |= {f"{name}.{file.stem}": array for name, array in np.load(file).items()}
    said = {"sizes": _sizes(qcomms), "registry": _registry(qcomms), "raised": _collect_raised(qcomms)}
    return arrays, said


def _save_exchange(rank: int, folder: str) -> None:
    """Save what a rank gives to each of `EXCHANGED` and gets, and the same of gradients, as FOLDER/RANK.npz."""
    qcomms, data = (import_module(f"torchrec.distributed.{name}") for name in ("fbgemm_qcomm_codec", "dist_data"))
    world = len(DIMS)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    torch.manual_seed(rank)
    saved: dict[str, npt.NDArray[Any]] = {}
    for name, (there, back, scale, scale_back) in EXCHANGED.items():
        codecs = qcomms.get_qcomm_codecs(
            qcomms.QCommsConfig(
                forward_precision=qcomms.CommType(there),
                backward_precision=qcomms.CommType(back),
                forward_loss_scale=scale,
                backward_loss_scale=scale_back,
            )
        )
        is_sum = name.startswith("reduce_scatter")
        pooled = torch.randn(BATCH * world, SUMMED if is_sum else DIMS[rank], requires_grad=True)
        group, device = dist.group.WORLD, torch.device("cpu")
        if is_sum:
            module = data.PooledEmbeddingsReduceScatter(group, codecs=codecs)
            output = module(pooled, input_splits=[BATCH] * world).wait()
        else:
            module = data.PooledEmbeddingsAllToAll(group, list(DIMS), device, codecs=codecs)
            output = module(pooled, [BATCH] * world).wait()
        grad = torch.randn(output.shape)
        output.backward(grad)
        assert pooled.grad is not None
        saved |= {f"{name}.pooled": pooled.detach().numpy(), f"{name}.output": output.detach().numpy()}
        saved |= {f"{name}.grad": grad.numpy(), f"{name}.grad_pooled": pooled.grad.numpy()}
    np.savez(Path(folder) / f"{rank}.npz", **saved)  # type: ignore[arg-type]
    dist.destroy_process_group()


def _rows(size: int, *more: float) -> Tensor:
    """Rows of many magnitudes and offsets, of equal elements, of zeros, and such as overflow."""
    spread = torch.randn(20, size) * torch.exp2(torch.randint(-40, 40, (20, 1)))
    offset = torch.randn(20, 1) * torch.exp2(torch.randint(-40, 40, (20, 1)))
    odd = torch.randn(7, size)
    odd[0], odd[1], odd[2] = 0.0, -3.7, 1e-40
    odd[3, 1], odd[4, 2], odd[5, 0], odd[5, 3] = float("inf"), -float("inf"), 3.4e38, -3.4e38
    for place, value in enumerate(more):
        odd[6, place] = value
    return torch.cat([spread + offset, odd])


def _codec(qcomms: Any, kind: str, scale: float | None = None, **more: Any) -> Any:
    config = qcomms.QCommsConfig(forward_precision=qcomms.CommType(kind), forward_loss_scale=scale, **more)
    return qcomms.get_qcomm_codecs(config).forward


def _fp8(rows: Tensor, exponent_bits: int, bias: int, largest: float) -> tuple[Tensor, Tensor, Tensor]:
    """What FBGEMM's CUDA kernels make of more than 20 rows."""
    most = torch.where(rows.isnan(), 0.0, rows.abs()).amax(1, keepdim=True).clamp(min=FP8_EPSILON)
    scale = torch.full_like(most, largest) / (most + FP8_EPSILON)
    codes = torch.ops.fbgemm.FloatToHFP8Quantized(rows * scale, exponent_bits, bias, largest)
    decoded = torch.ops.fbgemm.HFP8QuantizedToFloat(codes, exponent_bits, bias) / scale
    behind = torch.cat([scale, torch.zeros_like(scale)], 1).view(torch.uint8)
    return rows.reshape(-1), torch.cat([codes, behind], 1).view(-1), decoded.view(-1)


def _sizes(qcomms: Any) -> dict[str, dict[str, int]]:
    """Items of so many elements, encoded."""
    codecs = {kind: _codec(qcomms, kind) for kind in ("fp16", "bf16", "int8")}
    codecs["fp8"] = _codec(qcomms, "fp8", fp8_quantize_dim=20)
    return {
        kind: {
            str(elements): int(codec.calc_quantized_size(elements, codec.create_context()))
            for elements in (0, 160, 320)
        }
        for kind, codec in codecs.items()
    }


def _registry(qcomms: Any) -> dict[str, list[str]]:
    """What each kind of exchange sends, forward and backward, on GPUs."""
    said = {}
    for kind in ("fp16", "bf16", "fp8", "int8"):
        precision = qcomms.CommType(kind)
        registry = qcomms.get_qcomm_codecs_registry(
            qcomms.QCommsConfig(forward_precision=precision, backward_precision=precision, fp8_quantize_dim=4),
            device=torch.device("cuda"),
        )
        for exchange, codecs in registry.items():
            both = codecs.forward, codecs.backward
            said[f"{kind}.{exchange}"] = [codec._comm_precision.value for codec in both]
    return said


def _collect_raised(qcomms: Any) -> dict[str, str]:
    """The first lines of what is raised where something cannot be."""
    int8, fp8 = _codec(qcomms, "int8"), _codec(qcomms, "fp8")
    padded = _codec(qcomms, "fp8", fp8_quantize_dim=4)
    flat = torch.zeros(64)
    cases: dict[str, Callable[[], object]] = {
        "int8 in a reduce-scatter": lambda: int8.encode(flat),  # which gives it no context
        "int8 of parts of rows": lambda: int8.calc_quantized_size(20, int8.create_context()),
        "fp8 without fp8_quantize_dim": lambda: fp8.encode(flat, fp8.create_context()),
        "fp8 on CPUs": lambda: padded.encode(flat, padded.create_context()),
    }
    return {name: _error(case) for name, case in cases.items()}


def _error(case: Callable[[], object]) -> str:
    try:
        case()
    except Exception as error:  # whatever TorchRec raises is the answer
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
