"""Costs of communication and of eager PyTorch on host CPUs: frozen values whose annotations declare TOML keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from scenarios.config.keys import Key
from scenarios.config.toml.values import Acknowledged, FlopRate, Latency, Quantiles, Rate, Size
from scenarios.seam.host_work import HostWork

# Iterations of the loop that `Eager.loop_ns` times.
LOOP_TURNS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Tcp:
    """What TCP and gloo's threads cost on the hosts, and how much waits where; a calibration writes it.

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

    queue_bytes: Annotated[
        Size, Key("queue", "Bytes of one connection in the queue of its interface, such as '128 KiB'. Required.")
    ]
    send_buffer_bytes: Annotated[
        Size, Key("send_buffer", "Bytes that a socket takes beyond what was acknowledged. Required.")
    ]
    acknowledged_share: Annotated[
        Acknowledged, Key("acknowledgements", "Bytes that go back for each byte of payload. Required.")
    ]
    send_bytes_per_s: Annotated[Rate, Key("send_rate", "What one core writes to sockets, such as '2 GB/s'. Required.")]
    receive_bytes_per_s: Annotated[
        Rate, Key("receive_rate", "What one core reads from sockets, such as '1.5 GB/s'. Required.")
    ]
    message_ns: Annotated[
        Latency,
        Key(
            "message",
            "A core's time to read a message beside its bytes, or to go on after a wait, such as '5 us'. Required.",
        ),
    ]
    post_ns: Annotated[
        Latency, Key("post", "A core's time to write a message beside its bytes, such as '5 us'. Required.")
    ]
    issue_ns: Annotated[
        Latency, Key("issue", "A core's time before an operation begins to send, such as '15 us'. Required.")
    ]
    wake_ns: Annotated[
        Latency, Key("wake", "Until a sleeping thread runs on an idle core, in the mean: '30 us'. Required.")
    ]
    wake_spread: Annotated[
        Quantiles,
        "Quantiles of that time over its mean, equally far apart, such as [0.6, 1, 4]. Default: all are the mean.",
    ] = ()
    issue_spread: Annotated[Quantiles, "The same of `issue`. Default: all are the mean."] = ()
    nap_ns: Annotated[
        Latency, Key("nap", "A core that has been idle for less wakes up sooner. Default 0: none does.")
    ] = 0
    wake_soon_ns: Annotated[Latency, Key("wake_soon", "Until a sleeping thread runs on such a core. Default 0.")] = 0
    verb_ns: Annotated[
        Latency, Key("verb", "A core's time for a computation beside its kernel, such as '80 us'. Default 0.")
    ] = 0
    cold_ns: Annotated[Latency, Key("cold", "Added to `issue` after a computation of the same step. Default 0.")] = 0
    spin_ns: Annotated[
        Latency, Key("spin", "How long a thread spins at most on a lock whose owner waits for a core. Default 0.")
    ] = 0
    spin_share: Annotated[
        Acknowledged,
        "How many of the messages are held up so that are posted while their group's are served"
        " and cores are short. Default 0.",
    ] = 0.0
    stay_share: Annotated[
        Acknowledged,
        "How often a thread whose core is taken does not move to an idle one. Default 0.",
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
    """What PyTorch and Python take on a host between a GPU's launches, where no CUDA graph launches all at once.

    Each field is the time of one thread of a current server. The defaults are fitted to the step times of ten scripts
    on one H200 (torch 2.11, TorchRec 1.6), starting from two profiles of its host: predictions of the ten are 5 % off
    in the mean, 11 % at most (docs/accuracy.md). A launch itself is `cluster.gpu.launch`. Work on CPU tensors is priced
    by two rates, which `python -m benchmarks.cpu_operators` measures on a machine.
    """

    dispatch_ns: Annotated[
        Latency, Key("dispatch", "Dispatching an operator, a view too. Default '1.2 us'.", always=True)
    ] = 1_200
    operator_ns: Annotated[
        Latency, Key("operator", "More of an operator that launches kernels. Default '8 us'.", always=True)
    ] = 8_000
    product_ns: Annotated[
        Latency,
        Key(
            "product",
            "More of a matrix product, a convolution or attention: a library chooses its kernel. Default '15 us'.",
            always=True,
        ),
    ] = 15_000
    pass_ns: Annotated[
        Latency, Key("pass", "Beginning a backward pass: autograd's engine starts. Default '100 us'.", always=True)
    ] = 100_000
    node_ns: Annotated[Latency, Key("node", "A node of autograd in a backward pass. Default '16 us'.", always=True)] = (
        16_000
    )
    gradient_ns: Annotated[
        Latency, Key("gradient", "More of a node that accumulates a parameter's gradient. Default '4 us'.", always=True)
    ] = 4_000
    bags_ns: Annotated[
        Latency, Key("bags", "A pass through fbgemm's table-batched embeddings. Default '50 us'.", always=True)
    ] = 50_000
    call_ns: Annotated[
        Latency, Key("call", "A call of a Python function, with what it does itself. Default '1.25 us'.", always=True)
    ] = 1_250
    collective_ns: Annotated[
        Latency, Key("collective", "Issuing a collective through torch.distributed. Default '80 us'.", always=True)
    ] = 80_000
    cpu_bytes_per_s: Annotated[
        Rate,
        Key(
            "cpu_rate",
            "What a core reads and writes where torch's operators run on CPU tensors, and where pageable memory is"
            " copied. Default '12 GB/s'.",
            always=True,
        ),
    ] = 12e9
    cpu_flops_per_s: Annotated[
        FlopRate,
        Key("cpu_flops", "Arithmetic of a core in products on CPU tensors. Default '100 GFLOP/s'.", always=True),
    ] = 100e9
    loop_ns: Annotated[
        Latency,
        Key(
            "loop",
            "A Python loop that adds up the numbers below 10,000: what else was measured on another machine, such as"
            " data loading, is scaled by it. Default '250 us'.",
            always=True,
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
