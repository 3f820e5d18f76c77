"""Runs activities in simulated time: kernels on GPUs, bytes along paths, pauses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from scenarios.config.faults import GpuPart
from scenarios.config.hardware import Cluster
from scenarios.seam.kernel import Kernel
from sim.clock import Clock, Signal, all_of
from sim.engine.capacity import Activity, Capacity
from sim.engine.fabric import Fabric
from sim.engine.flow_bundle import Bundle
from sim.engine.host_traffic import Traffic
from sim.engine.network import Path
from sim.engine.prices import Prices
from sim.engine.roofline import Cost, alone_ns, cost, stretch
from sim.engine.sharing import Sharing
from sim.jitter import Varying

# One Ethernet frame's TCP payload (shared by spec and tc measurements: 1448 of 1514 bytes). What fits into one packet
# is served between the packets of others and does not change their shares.
PACKET_BYTES = 1448


class Machine:
    """A cluster in simulated time: `begin` an activity, run a `kernel`, `carry` bytes along a path, `sleep`.

    `draw` seeds what varies from run to run (how late threads wake up, what a kernel takes); with None these times take
    their mean.
    """

    def __init__(
        self,
        cluster: Cluster,
        draw: str | None = None,
        hosts: Sequence[int] | None = None,
        *,
        has_host_lanes: bool = False,
    ) -> None:
        """`hosts`: those simulated; None: all. `has_host_lanes`: see `Fabric`."""
        self.clock = Clock()
        self.fabric = Fabric(cluster, hosts, has_host_lanes=has_host_lanes)
        self.traffic = Traffic(cluster.host.gpus, hosts or ())
        self.draw = draw
        self.prices, self.runs_on_cores = Prices(cluster.host.gpu), cluster.host.gpu.device.runs_on_cores
        self.cost = self.prices.cost if cluster.host.gpu.has_laws else partial(cost, gpu=cluster.host.gpu)
        self._kernels = Varying(cluster.host.gpu.spread, None if draw is None else f"kernels {draw}")
        self._sharing = Sharing()
        self._resolving = False
        self._wake_ns = -1

    def begin(self, uses: Mapping[Capacity, float], amount: float = 1.0, weight: float = 1.0) -> Signal[None]:
        """Start an activity that uses each capacity by so much per unit of `amount`; the signal is its end."""
        signal: Signal[None] = Signal()
        if self._sharing.start(Activity(uses, amount, signal.fire, weight), self.clock.now_ns):
            self._resolve_soon()
        return signal

    def begin_all(self, bundle: Bundle) -> None:
        """Start all flows of a bundle, which tells by itself when they end."""
        self._sharing.start_all(bundle, self.clock.now_ns)
        self._resolve_soon()

    def occupy(self, capacity: Capacity, per_s: float) -> Callable[[], None]:
        """Take a part of a GPU from its kernels until what is returned is called."""

        def lend(amount: float) -> None:
            self._sharing.lend(capacity, amount)
            self._resolve_soon()

        lend(per_s)
        return lambda: lend(-per_s)

    def sleep(self, delay_ns: int) -> Signal[None]:
        """A signal in `delay_ns`; at once if that is nothing."""
        signal: Signal[None] = Signal()
        if delay_ns <= 0:
            signal.fire()
        else:
            self.clock.call_in(delay_ns, signal.fire)
        return signal

    def kernel(
        self,
        rank: int,
        kernel: Kernel,
        run_on_core: Callable[[float, Callable[[], None]], None] | None = None,
        *,
        price: Cost | None = None,
        measured_ns: int | None = None,
        launched_ns: tuple[int, int] | None = None,
        launching: Callable[[int], None] = lambda _: None,
    ) -> Signal[None]:
        """Run a kernel on a rank's GPU, sharing it with what else runs there; where the GPU is a core, `run_on_core`.

        On an idle GPU it takes what its roofline says, or `price` in place of that, or `measured_ns` from its first
        launch; all longer by as much as this GPU is slow. `launched_ns` says when the first and the last of its
        launches are through; without it, and on CPUs, they begin now and come first. `launching` is told, once or
        twice, how long the kernel waits for them. Bytes in the host's memory are flows on the GPU's path to it, beside
        what the GPU does; the kernel ends with the last of them. One that `lasts` so long is a pause.
        """
        if kernel.lasts_ns:
            return self.sleep(kernel.lasts_ns)
        gpu = self.fabric.cluster.host.gpu
        varied = self._kernels.next() if self._kernels.varies else 1.0
        price = price or self.cost(kernel)
        if self.runs_on_cores or not kernel.launches:
            launched_ns = None
        is_ahead = launched_ns is not None
        host = self._host_transfers(rank, price) if price.host_read or price.host_written else []
        host_s = _seconds_of(host) if host else 0.0
        times = varied * stretch(price, gpu, measured_ns, is_launched_ahead=is_ahead, host_s=host_s)
        host = [(path, times * size) for path, size in host] if host else host
        launch_ns = round(price.launch_ns * times) if kernel.launches else 0
        if self.fabric.cluster.faults:
            part = GpuPart(self.fabric.host(rank), self.fabric.gpu(rank))
            times /= self.fabric.cluster.speed_at(part, self.clock.now_ns)  # behind its launches, which are the host's
        ramp_ns = round(price.ramp_ns * times)
        uses, alone_s = self._alone(rank, price)
        if self.runs_on_cores and run_on_core is not None:
            launching(launch_ns)
            signal: Signal[None] = Signal()
            run_on_core(launch_ns + ramp_ns + times * alone_s * 1e9, signal.fire)
            return signal
        if launched_ns is None:
            launching(launch_ns)
            return self._after(launch_ns + ramp_ns, uses, times * alone_s, host)
        first_ns, last_ns = (moment_ns - self.clock.now_ns for moment_ns in launched_ns)
        launching(max(first_ns, 0))
        done = self._after(max(first_ns, 0) + ramp_ns, uses, times * alone_s, host)
        if last_ns <= ramp_ns or measured_ns is not None:  # what was measured has its gaps in it
            return done
        return self._not_before(last_ns, done, launching)

    def alone_ns(self, rank: int, price: Cost) -> float:
        """Return what a kernel takes on a rank's GPU when that is idle and at its nominal speed, once launched."""
        has_host = price.host_read or price.host_written
        host_s = _seconds_of(self._host_transfers(rank, price)) if has_host else 0.0
        return alone_ns(price, self.fabric.cluster.host.gpu, host_s)

    def _not_before(self, delay_ns: int, done: Signal[None], launching: Callable[[int], None]) -> Signal[None]:
        """What is done and launched; `launching` is told how much later than it is done the last launch is."""
        last_ns = self.clock.now_ns + delay_ns
        done.then(lambda: launching(max(last_ns - self.clock.now_ns, 0)))
        both: Signal[None] = Signal()
        all_of([done, self.sleep(delay_ns)], both.fire)
        return both

    def carry(self, path: Path, size_bytes: float) -> Signal[None]:
        """Move bytes along a path; the signal is when the last one has left the sender (the latency is still to come).

        What fits into a packet takes its time on the wire but no share from others. More than `MOST_SINGLE` messages
        that share links go on in arrays, where ends that are close to each other are one (`bundle`).
        """
        if size_bytes > PACKET_BYTES:
            signal: Signal[None] = Signal()
            flow = Activity(dict.fromkeys(path.links, 1.0), size_bytes, signal.fire, is_flow=True)
            if self._sharing.start(flow, self.clock.now_ns):
                self._resolve_soon()
            return signal
        for link in path.links:
            link.pass_by(size_bytes, self.clock.now_ns)
        return self.sleep(round(size_bytes / path.bytes_per_ns))

    def _alone(self, rank: int, price: Cost) -> tuple[dict[Capacity, float], float]:
        """What a kernel uses of its GPU in each second of the time that it takes alone, and this time.

        The amount is the time alone, so that kernels side by side get equal shares of the GPU, not equal progress.
        """
        arithmetic, memory = self.fabric.arithmetic[rank], self.fabric.memory[rank]
        alone_s = max(price.arithmetic_s / arithmetic.per_s, price.memory_bytes / memory.per_s)
        if not alone_s:
            return {}, 0.0
        return {arithmetic: price.arithmetic_s / alone_s, memory: price.memory_bytes / alone_s}, alone_s

    def _host_transfers(self, rank: int, price: Cost) -> list[tuple[Path, float]]:
        """The paths of a kernel's bytes between the host's memory and the GPU, and how many."""
        sizes = {"in": price.host_read, "out": price.host_written}
        return [(self.fabric.to_host(rank, direction), size) for direction, size in sizes.items() if size > 0]

    def _after(
        self, delay_ns: int, uses: Mapping[Capacity, float], amount: float, host: Sequence[tuple[Path, float]] = ()
    ) -> Signal[None]:
        begin = partial(self._begin_beside, host) if host else self.begin
        if delay_ns <= 0:
            return begin(uses, amount)
        signal: Signal[None] = Signal()
        self.clock.call_in(delay_ns, lambda: begin(uses, amount).then(signal.fire))
        return signal

    def _begin_beside(
        self, host: Sequence[tuple[Path, float]], uses: Mapping[Capacity, float], amount: float
    ) -> Signal[None]:
        """Work on the GPU and flows from and to the host's memory at once.

        Flows are not part of the kernel's activity: its amount is seconds, theirs are bytes, and on a link a byte of a
        copy and a byte of a collective count the same.
        """
        signal: Signal[None] = Signal()
        all_of([self.begin(uses, amount), *(self.carry(path, size) for path, size in host)], signal.fire)
        return signal

    def _resolve_soon(self) -> None:
        if not self._resolving:
            self._resolving = True
            self.clock.call_last(self._resolve)

    def _resolve(self) -> None:
        self._resolving = False
        now_ns = self.clock.now_ns
        self._sharing.resolve(now_ns)
        end_ns = self._sharing.next_end_ns()
        if end_ns is not None and end_ns != self._wake_ns:
            self._wake_ns = end_ns
            self.clock.call_in(end_ns - now_ns, lambda: self._wake(end_ns))

    def _wake(self, due_ns: int) -> None:
        if due_ns != self._wake_ns:
            return  # rates have changed since, and another wake-up was ordered
        self._wake_ns = -1
        for ended in self._sharing.finish_due(self.clock.now_ns):
            ended.done()
        self._resolve_soon()


def _seconds_of(host: Sequence[tuple[Path, float]]) -> float:
    """Return what the longest of a kernel's transfers from and to the host's memory takes on idle paths."""
    return max((size / path.bytes_per_ns / 1e9 for path, size in host), default=0.0)
