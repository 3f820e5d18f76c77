"""Prices kernels on an idle GPU by a roofline with the profile's efficiencies: their time and their use of the GPU.

Samuel Williams et al., Roofline, CACM 52(4), 2009: a kernel is bound by arithmetic or by memory, whichever is slower.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from scenarios.config.gpu import DEVICES, Gpu
from scenarios.config.kernel_kinds import TRACED_KINDS
from scenarios.seam.errors import ProgramError
from scenarios.seam.host_work import NO_WORK, HostWork
from scenarios.seam.kernel import Kernel
from sim.operators.products import EIGHT_BITS, EIGHT_BITS_FROM

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCost:
    """The cost of a kernel: `launch_ns` of the host, `ramp_ns`, then `arithmetic_s` of the GPU's full arithmetic rate
    concurrently with `memory_bytes`.

    `memory_bytes` is already divided by the efficiency: the bytes that the datasheet's rate would move in that time.
    `host_read` and `host_written` are bytes that come from the host's memory and go there.
    """

    launch_ns: int
    ramp_ns: int
    arithmetic_s: float
    memory_bytes: float
    host_read: float = 0.0
    host_written: float = 0.0


def stretch(
    price: KernelCost, gpu: Gpu, measured_ns: int | None, *, is_launched_ahead: bool, host_s: float = 0.0
) -> float:
    """Return the factor for all parts of a kernel with which it takes `measured_ns` on an idle GPU; 1 if that is None.

    A single time does not show its parts, so one factor for launch, ramp, arithmetic and memory keeps the roofline's
    proportions: next to other kernels, or NCCL's channels, a memory-bound kernel still shares memory, and launch and
    ramp leave the GPU to others. Launches ahead of the GPU belong to the host and are not in the measured time.
    `host_s` is the time in seconds of the kernel's host transfers on an idle path.
    """
    if measured_ns is None:
        return 1.0
    roofline_ns = alone_ns(price, gpu, host_s)
    roofline_ns += 0 if is_launched_ahead else price.launch_ns
    assert roofline_ns > 0, "what has nothing to do is not measured"
    return measured_ns / roofline_ns


def alone_ns(price: KernelCost, gpu: Gpu, host_s: float = 0.0) -> float:
    """Return the time of a launched kernel on an idle GPU, in ns; `host_s` as for `stretch`."""
    busy_s = max(price.arithmetic_s, price.memory_bytes / gpu.memory_bytes_per_s, host_s)
    return price.ramp_ns + 1e9 * busy_s


def cost(kernel: Kernel, gpu: Gpu) -> KernelCost:
    """Return the cost of `kernel` on `gpu`; parts of a kernel, and their parts, run one after the other.

    Raises:
        ProgramError: the kernel computes in a dtype for which the GPU has no rate, or its numbers are impossible.
    """
    return with_host(without_host(kernel, gpu), kernel.host, gpu)


def without_host(kernel: Kernel, gpu: Gpu) -> KernelCost:
    """Return the cost of `kernel` as `cost` does, without the host's work before its launches."""
    if not kernel.parts:
        return _cost(kernel, gpu)
    return together([without_host(part, gpu) for part in kernel.parts], gpu)


def together(parts: Sequence[KernelCost], gpu: Gpu) -> KernelCost:
    """Return the cost of parts that run one after the other.

    A part that is bound by arithmetic leaves memory idle, and vice versa. So the sums of arithmetic and of memory are
    raised by one factor that makes the greater of them as long as all parts together.
    """
    arithmetic_s, memory_bytes = sum(part.arithmetic_s for part in parts), sum(part.memory_bytes for part in parts)
    bound_s = max(arithmetic_s, memory_bytes / gpu.memory_bytes_per_s)
    takes_s = sum(max(part.arithmetic_s, part.memory_bytes / gpu.memory_bytes_per_s) for part in parts)
    idle = takes_s / bound_s if bound_s else 1.0
    return KernelCost(
        launch_ns=sum(part.launch_ns for part in parts),
        ramp_ns=sum(part.ramp_ns for part in parts),
        arithmetic_s=arithmetic_s * idle,
        memory_bytes=memory_bytes * idle,
        host_read=sum(part.host_read for part in parts),
        host_written=sum(part.host_written for part in parts),
    )


def _rate(kernel: Kernel, gpu: Gpu) -> float:
    """Return the GPU's peak flop/s for a kernel's dtype."""
    rates = gpu.flops_per_s
    # A GPU without TF32 (before Ampere) computes such products in float32, as torch does there.
    dtype = "float32" if kernel.dtype == "tf32" and "tf32" not in rates else kernel.dtype
    if dtype in rates:
        return rates[dtype]
    if dtype in EIGHT_BITS and "bfloat16" in rates and gpu.compute_capability >= EIGHT_BITS_FROM:
        return 2 * rates["bfloat16"]
    known = ", ".join(sorted(rates))
    raise ProgramError(f"{gpu.name}: no flop/s for dtype '{dtype}' of a {kernel.kind} kernel; has {known}")


def _cost(kernel: Kernel, gpu: Gpu) -> KernelCost:
    for name in ("flops", "bytes_read", "bytes_written", "bytes_reread", "host_read", "host_written"):
        amount = getattr(kernel, name)
        if not 0 <= amount < math.inf:
            raise ProgramError(f"a {kernel.kind} kernel has {name} = {amount}: expected a finite number of at least 0")
    efficiency = _of_kind(gpu.efficiency, kernel.kind, gpu.efficiency.get("default", 1.0))
    arithmetic_s = 0.0
    if kernel.flops:
        arithmetic_s = kernel.flops / (_rate(kernel, gpu) * efficiency)
    touched = kernel.bytes_read + kernel.bytes_written
    is_one_memory = not DEVICES[gpu.kind].has_own_memory  # not by the property: every kernel is priced here
    moved = touched - kernel.bytes_reread
    if gpu.l2_bytes_per_s is not None:
        # Bytes read again come from the L2, which has a rate of its own: a kernel is bound by the slower of the two.
        moved = max(moved, touched * gpu.memory_bytes_per_s / gpu.l2_bytes_per_s)
    if is_one_memory:  # a CPU process computes in its host's memory
        moved += kernel.host_read + kernel.host_written
    return KernelCost(
        launch_ns=_of_kind(gpu.launches_ns, kernel.kind, gpu.launch_ns) * kernel.launches,
        ramp_ns=_of_kind(gpu.ramps_ns, kernel.kind, gpu.ramp_ns) * kernel.launches,
        arithmetic_s=arithmetic_s,
        memory_bytes=moved / efficiency,
        host_read=0.0 if is_one_memory else kernel.host_read,
        host_written=0.0 if is_one_memory else kernel.host_written,
    )


def with_host(cost: KernelCost, work: HostWork, gpu: Gpu) -> KernelCost:
    """Return a cost whose launches wait for the host's `work`; a CPU's kernel times already include it."""
    # By identity: nearly all kernels have the one `NO_WORK`, and each is priced here.
    if work is NO_WORK or gpu.device.runs_on_cores:
        return cost
    return replace(cost, launch_ns=cost.launch_ns + gpu.eager.takes_ns(work))


def _of_kind(table: Mapping[str, T], kind: str, default: T) -> T:
    """Return a profile table's value for a kind of kernel; a traced kind may fall back to a more general one."""
    if kind not in table and kind in TRACED_KINDS:
        kind = TRACED_KINDS[kind][1]
    return table.get(kind, default)
