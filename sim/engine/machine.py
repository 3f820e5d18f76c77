"""Runs activities in simulated time: kernels on GPUs, bytes along paths, pauses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from scenarios.config.faults import NOMINAL, Pace, Part
from scenarios.config.hardware import Cluster
from scenarios.do_nothing import do_nothing
from scenarios.seam.kernel import Kernel
from sim.clock import Clock, Signal, all_of
from sim.engine.capacity import Activity, Capacity
from sim.engine.fabric import Fabric
from sim.engine.flow_bundle import Bundle
from sim.engine.host_traffic import Traffic
from sim.engine.network import Path
from sim.engine.prices import Prices
from sim.engine.roofline import KernelCost, alone_ns, cost, stretch
from sim.engine.sharing import Sharing
from sim.jitter import Varying

# TCP payload of an Ethernet frame (1448 of 1514 bytes, by spec and as tc measures). A message of one packet is served
# between the packets of others and does not change their shares.
PACKET_BYTES = 1448

# Runs work in ns on a core at a pace, then calls the function.
RunOnCore: TypeAlias = Callable[[float, Callable[[], None], Pace], None]


class Machine:
    """A cluster in simulated time: `begin` an activity, run a `kernel`, `carry` bytes along a path, `sleep`.

    `draw` seeds times that vary from run to run (wake-ups of threads, kernels); with None they take their mean.
    """

    def __init__(
        self,
        cluster: Cluster,
        draw: str | None = None,
        hosts: Sequence[int] | None = None,
        *,
        has_host_lanes: bool = False,
    ) -> None:
        """Create the capacities of `hosts`, the simulated ones (None: all); `has_host_lanes`: see `Fabric`."""
        self.clock = Clock()
        self.fabric = Fabric(cluster, hosts, has_host_lanes=has_host_lanes)
        self.traffic = Traffic(cluster.host.gpus, hosts or ())
        self.draw = draw
        self._gpu = gpu = cluster.host.gpu
        self.prices, self.runs_on_cores = Prices(gpu), gpu.device.runs_on_cores
        self.cost = self.prices.cost if gpu.has_laws else partial(cost, gpu=gpu)
        self._kernels = Varying(gpu.spread, None if draw is None else f"kernels {draw}")
        self._sharing = Sharing()
        self._resolving = False
        self._wake_ns = -1
        self.changed: list[Callable[[], None]] = []  # called after a part's speed has changed
        for part in dict.fromkeys(fault.part for fault in cluster.faults):
            for at_ns in cluster.pace(part).times_ns[1:]:
                self.clock.call_before(at_ns, partial(self._change, part))

    def begin(self, uses: Mapping[Capacity, float], amount: float = 1.0, weight: float = 1.0) -> Signal[None]:
        """Start an activity that uses `uses[capacity]` per unit of `amount`; the signal fires at its end."""
        signal: Signal[None] = Signal()
        # `start` is false for an activity that ended at once, which changes no rates.
        if self._sharing.start(Activity(uses, amount, signal.fire, weight), self.clock.now_ns):
            self._resolve_soon()
        return signal

    def begin_all(self, bundle: Bundle) -> None:
        """Start all flows of a bundle, which reports their ends itself."""
        self._sharing.start_all(bundle, self.clock.now_ns)
        self._resolve_soon()

    def occupy(self, capacity: Capacity, per_s: float) -> Callable[[], None]:
        """Reserve a part of a GPU's capacity; calling the returned function releases it."""

        def lend(amount: float) -> None:
            self._sharing.lend(capacity, amount)
            self._resolve_soon()

        lend(per_s)
        return lambda: lend(-per_s)

    def set_speed(self, capacity: Capacity, speed: float) -> None:
        """Let a capacity reach this share of its rate from now on."""
        capacity.set_speed(speed)
        self._sharing.note_change(capacity)
        self._resolve_soon()

    def sleep(self, delay_ns: int) -> Signal[None]:
        """Return a signal that fires in `delay_ns`, at once if that is not positive."""
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
        run_on_core: RunOnCore | None = None,
        *,
        price: KernelCost | None = None,
        measured_ns: int | None = None,
        launched_ns: tuple[int, int] | None = None,
        launching: Callable[[int], None] = lambda _: None,
    ) -> Signal[None]:
        """Run a kernel on a rank's GPU, sharing the GPU with other work; the signal fires at its end.

        On an idle GPU its time is its roofline's, or `price`'s, or `measured_ns` from its first launch; while the GPU
        is slow, all of them take longer. Bytes in the host's memory are concurrent flows there, with the last of which
        it ends.

        Args:
            rank: global rank.
            kernel: work and number of launches.
            run_on_core: runs the kernel on a core of the host if the GPU is a CPU.
            price: cost to use instead of the roofline's.
            measured_ns: measured time on an idle GPU.
            launched_ns: when the first and the last launch are complete; None, and on CPUs: launches precede it.
            launching: called once or twice with the time in ns that the kernel waits for its launches.
        """
        if kernel.lasts_ns:
            return self.sleep(kernel.lasts_ns)
        price = price or self.cost(kernel)
        if self.runs_on_cores or not kernel.launches:
            launched_ns = None
        host = self._host_transfers(rank, price) if price.host_read or price.host_written else []
        host_s, is_ahead = _seconds_of(host) if host else 0.0, launched_ns is not None
        times = stretch(price, self._gpu, measured_ns, is_launched_ahead=is_ahead, host_s=host_s)
        times *= self._kernels.next() if self._kernels.varies else 1.0
        host = [(path, times * size) for path, size in host] if host else host
        launch_ns = round(price.launch_ns * times) if kernel.launches else 0
        pace, ramp_ns = self.fabric.arithmetic[rank].pace, round(price.ramp_ns * times)
        uses, alone_s = self._alone(rank, price)
        if self.runs_on_cores and run_on_core is not None:
            launching(launch_ns)
            return _run_on_core(run_on_core, launch_ns, ramp_ns, times * alone_s * 1e9, pace)
        if pace is not NOMINAL:
            start_ns = launch_ns if launched_ns is None else max(launched_ns[0] - self.clock.now_ns, 0)
            ramp_ns = round(pace.takes_ns(price.ramp_ns * times, self.clock.now_ns + start_ns))
        begin = partial(self._after, uses=uses, amount=times * alone_s, host=host)
        if launched_ns is None:
            launching(launch_ns)
            return begin(launch_ns + ramp_ns)
        return self._run_launched_ahead(launched_ns, ramp_ns, begin, launching, is_measured=measured_ns is not None)

    def _run_launched_ahead(
        self,
        launched_ns: tuple[int, int],
        ramp_ns: int,
        begin: Callable[[int], Signal[None]],
        launching: Callable[[int], None],
        *,
        is_measured: bool,
    ) -> Signal[None]:
        """Run a kernel once its first launch is complete; the signal fires at its end, not before the last launch is.

        `begin` starts the kernel after a time in ns.
        """
        first_ns, last_ns = (moment_ns - self.clock.now_ns for moment_ns in launched_ns)
        launching(max(first_ns, 0))
        done = begin(max(first_ns, 0) + ramp_ns)
        if last_ns <= ramp_ns or is_measured:  # a measured time includes gaps between launches
            return done
        return self._not_before(last_ns, done, launching)

    def alone_ns(self, rank: int, price: KernelCost) -> float:
        """Return the time of a launched kernel on a rank's GPU when that is idle and at its nominal speed."""
        has_host = price.host_read or price.host_written
        host_s = _seconds_of(self._host_transfers(rank, price)) if has_host else 0.0
        return alone_ns(price, self._gpu, host_s)

    def _not_before(self, delay_ns: int, done: Signal[None], launching: Callable[[int], None]) -> Signal[None]:
        """Return a signal for the later of `done` and `delay_ns`; call `launching` with the time that launches outlast
        `done`.
        """
        last_ns = self.clock.now_ns + delay_ns
        done.then(lambda: launching(max(last_ns - self.clock.now_ns, 0)))
        both: Signal[None] = Signal()
        all_of([done, self.sleep(delay_ns)], both.fire)
        return both

    def carry(self, path: Path, size_bytes: float) -> Signal[None]:
        """Move bytes along a path; the signal fires when the last byte has left the sender, before the path's latency.

        A message of one packet takes its time on the wire, at the rates of its start, but no share from others. More
        than `MOST_SINGLE` messages that share links continue as a bundle (`flow_bundle`), where ends close to each
        other are merged.
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

    def _alone(self, rank: int, price: KernelCost) -> tuple[dict[Capacity, float], float]:
        """Return a kernel's use of its GPU per second of its time alone, and this time in seconds.

        An activity's amount is the time alone at nominal speed, so that concurrent kernels get equal shares of the GPU,
        not equal progress, also if its speed changes between their starts.
        """
        arithmetic, memory = self.fabric.arithmetic[rank], self.fabric.memory[rank]
        alone_s = max(price.arithmetic_s / arithmetic.left_per_s, price.memory_bytes / memory.left_per_s)
        if not alone_s:
            return {}, 0.0
        return {arithmetic: price.arithmetic_s / alone_s, memory: price.memory_bytes / alone_s}, alone_s

    def _host_transfers(self, rank: int, price: KernelCost) -> list[tuple[Path, float]]:
        """Return the paths and the bytes of a kernel's transfers between the host's memory and the GPU."""
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
        """Start work on the GPU and flows between GPU and host memory at once; the signal fires when all have ended.

        Flows are activities of their own: the kernel's amount is seconds, theirs are bytes, and on a link a byte of a
        copy and a byte of a collective count the same.
        """
        signal: Signal[None] = Signal()
        all_of([self.begin(uses, amount), *(self.carry(path, size) for path, size in host)], signal.fire)
        return signal

    def _change(self, part: Part) -> None:
        """Set the speed of a part's capacities to that of this time."""
        for capacity in self.fabric.capacities_of(part):
            self.set_speed(capacity, capacity.pace.speed_at(self.clock.now_ns))
        for function in self.changed:
            function()

    def _resolve_soon(self) -> None:
        if not self._resolving:
            self._resolving = True
            # Last of the instant: changes of one instant are shared out in a single solution.
            self.clock.call_last(self._resolve)

    def _resolve(self) -> None:
        self._resolving = False
        now_ns = self.clock.now_ns
        self._sharing.resolve(now_ns)
        end_ns = self._sharing.next_end_ns()
        # A wake-up cannot be taken back: a new one is set only for another time, and `_wake` ignores the old one.
        if end_ns is not None and end_ns != self._wake_ns:
            self._wake_ns = end_ns
            self.clock.call_in(end_ns - now_ns, lambda: self._wake(end_ns))

    def _wake(self, due_ns: int) -> None:
        if due_ns != self._wake_ns:
            return  # rates have changed since, and a newer wake-up is due at another time
        self._wake_ns = -1
        for ended in self._sharing.finish_due(self.clock.now_ns):
            ended.done()
        self._resolve_soon()


def _run_on_core(run: RunOnCore, launch_ns: int, ramp_ns: int, busy_ns: float, pace: Pace) -> Signal[None]:
    """Run a kernel on a core; the signal fires at its end."""
    signal: Signal[None] = Signal()
    if pace is not NOMINAL:  # launches are the host's work, which is not slow
        run(launch_ns, do_nothing, NOMINAL)
        launch_ns = 0
    run(launch_ns + ramp_ns + busy_ns, signal.fire, pace)
    return signal


def _seconds_of(host: Sequence[tuple[Path, float]]) -> float:
    """Return the time of the longest of a kernel's host transfers on idle paths, in seconds."""
    return max((size / path.bytes_per_ns / 1e9 for path, size in host), default=0.0)
