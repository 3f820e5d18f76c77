"""Costs of communication and of eager PyTorch on host CPUs: frozen values whose annotations declare TOML keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from scenarios.config.keys import Key
from scenarios.config.toml.values import Acknowledged, FlopRate, Latency, Quantiles, Rate, Size
from scenarios.seam.host_work import HostWork

# Iterations of the loop that `Eager.loop_ns` times.
LOOP_TURNS = 10_000

_FITTED = "fitted to step times of six scripts on one H200 (torch 2.11, TorchRec 1.6)"
_ASSUMED = "assumed; `python -m benchmarks.cpu_operators` measures a machine's"


def _host(doc: str, default: str, source: str = _FITTED) -> Key:
    """Return the key of a host's cost, with the source of its default."""
    return Key(doc=f"{doc} Default '{default}'; source: {source}.", always=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tcp:
    """Costs of TCP and gloo's threads on the hosts, and sizes of their queues; calibrations write them.

    A connection queues up to `queue_bytes` at its NIC. A send ends when the socket has accepted the message; a socket
    accepts `send_buffer_bytes` beyond the acknowledged bytes. Besides its bytes, a message takes a core `post_ns` to
    write, and `message_ns` to read or to resume after a wait; an operation takes `issue_ns` before it sends, and
    `cold_ns` more after a computation of its step; a computation takes `verb_ns` besides its kernel.

    A sleeping thread runs on an idle core `wake_ns` after its wake-up on average, and after `wake_soon_ns` if the core
    has been idle for less than `nap_ns`. Spreads are quantiles over the mean, equally spaced from minimum to maximum.

    Where threads wait for cores, a thread that spins for up to `spin_ns` delays `spin_share` of the posts that are
    issued while their connections are served. A thread whose core is taken does not move to an idle core in
    `stay_share` of the cases.
    """

    queue_bytes: Annotated[Size, "Bytes of one connection that its interface may queue, such as '128 KiB'. Required."]
    send_buffer_bytes: Annotated[Size, "Bytes that a socket accepts beyond the acknowledged ones. Required."]
    acknowledged_share: Annotated[
        Acknowledged, "Bytes of acknowledgements per byte of payload. Required.", Key("acknowledgements")
    ]
    send_bytes_per_s: Annotated[Rate, "Rate at which one core writes to sockets, such as '2 GB/s'. Required."]
    receive_bytes_per_s: Annotated[Rate, "Rate at which one core reads from sockets, such as '1.5 GB/s'. Required."]
    message_ns: Annotated[
        Latency,
        "Core time to read a message, in addition to its bytes, or to resume after a wait, such as '5 us'. Required.",
    ]
    post_ns: Annotated[Latency, "Core time to write a message, in addition to its bytes, such as '5 us'. Required."]
    issue_ns: Annotated[Latency, "Core time before an operation begins to send, such as '15 us'. Required."]
    wake_ns: Annotated[Latency, "Mean time until a woken thread runs on an idle core, such as '30 us'. Required."]
    wake_spread: Annotated[
        Quantiles,
        "Quantiles of `wake` divided by its mean, equally spaced from minimum to maximum, such as [0.6, 1, 4]."
        " Default: no variation.",
    ] = ()
    issue_spread: Annotated[
        Quantiles, "Quantiles of `issue` divided by its mean, as in `wake_spread`. Default: no variation."
    ] = ()
    nap_ns: Annotated[
        Latency, "Idle time of a core below which a thread wakes up in `wake_soon`. Default 0: never."
    ] = 0
    wake_soon_ns: Annotated[
        Latency,
        "Time until a woken thread runs on a core that was idle for less than `nap`. Default 0.",
    ] = 0
    verb_ns: Annotated[Latency, "Core time of a computation in addition to its kernel, such as '80 us'. Default 0."] = 0
    cold_ns: Annotated[Latency, "Time added to `issue` after a computation of the same step. Default 0."] = 0
    spin_ns: Annotated[
        Latency, "Maximal time that a thread spins on a lock whose owner waits for a core. Default 0."
    ] = 0
    spin_share: Annotated[
        Acknowledged,
        "Share of messages that such a lock delays: those posted while messages of their group are served and"
        " cores are busy. Default 0.",
    ] = 0.0
    stay_share: Annotated[
        Acknowledged,
        "Share of cases in which a thread stays on its busy core although another core is idle. Default 0.",
    ] = 0.0

    @property
    def send_bytes_per_ns(self) -> float:
        """`send_bytes_per_s` in bytes/ns, the simulator's unit."""
        return self.send_bytes_per_s / 1e9

    @property
    def receive_bytes_per_ns(self) -> float:
        """`receive_bytes_per_s` in bytes/ns, the simulator's unit."""
        return self.receive_bytes_per_s / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Eager:
    """Host times of PyTorch and Python between kernel launches, where no CUDA graph launches all kernels at once.

    Each field is the time of one thread of a current server: its time in two profiles, times the factor with which the
    steps of six scripts are 5 % off in the mean, 9 % at most (`python -m benchmarks.measured_steps --fit`). A launch
    itself is `cluster.gpu.launch`. Work on CPU tensors is priced by two rates.
    """

    dispatch_ns: Annotated[Latency, _host("Time to dispatch an operator, including views.", "1.3 us")] = 1_300
    operator_ns: Annotated[Latency, _host("Additional time of an operator that launches kernels.", "6.4 us")] = 6_400
    product_ns: Annotated[
        Latency,
        _host(
            "Additional time of a matrix product, a convolution or attention, whose library chooses a kernel.",
            "26 us",
        ),
    ] = 26_000
    pass_ns: Annotated[
        Latency,
        _host("Time to begin a backward pass, when autograd's engine starts.", "130 us"),
    ] = 130_000
    node_ns: Annotated[Latency, _host("Time of an autograd node in a backward pass.", "10 us")] = 10_000
    gradient_ns: Annotated[
        Latency,
        _host("Additional time of a node that accumulates a parameter's gradient.", "5.1 us"),
    ] = 5_100
    bags_ns: Annotated[Latency, _host("Time of a pass through fbgemm's table-batched embeddings.", "64 us")] = 64_000
    call_ns: Annotated[
        Latency,
        _host("Time of a Python function call, including the function's own work.", "1.3 us"),
    ] = 1_300
    collective_ns: Annotated[
        Latency,
        _host("Time to issue a collective through torch.distributed.", "120 us"),
    ] = 120_000
    cpu_bytes_per_s: Annotated[
        Rate,
        _host(
            "Rate at which a core reads and writes for operators on CPU tensors and for copies of pageable memory.",
            "12 GB/s",
            _ASSUMED,
        ),
    ] = 12e9
    cpu_flops_per_s: Annotated[
        FlopRate,
        _host("Rate of a core in matrix products on CPU tensors.", "100 GFLOP/s", _ASSUMED),
    ] = 100e9
    loop_ns: Annotated[
        Latency,
        _host(
            "Time of a Python loop that sums the numbers below 10,000. Host work measured on another "
            "machine, such as data loading, is scaled by it.",
            "250 us",
            _ASSUMED,
        ),
    ] = 250_000

    def takes_ns(self, work: HostWork) -> int:
        """Return the time of a host's thread for `work`, in ns, without launches and collectives."""
        return (
            self.dispatch_ns * work.dispatches
            + self.operator_ns * work.operators
            + self.product_ns * work.products
            + self.pass_ns * work.passes
            + self.node_ns * work.nodes
            + self.gradient_ns * work.gradients
            + self.bags_ns * work.bags
            + self.call_ns * work.calls
            + self.computes_ns(work)
            + work.waits_ns
        )

    def computes_ns(self, work: HostWork) -> int:
        """Return the time of a host's thread for the computations in `work`, in ns, without calls and launches."""
        moved_s, products_s = work.cpu_bytes / self.cpu_bytes_per_s, work.cpu_flops / self.cpu_flops_per_s
        return round(1e9 * (moved_s + products_s) + self.loop_ns * work.turns / LOOP_TURNS)
