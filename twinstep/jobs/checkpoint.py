"""Times to write and load checkpoints, from [job.checkpoint], the cluster and the checkpoint's bytes.

All hosts write, and load, at once: each at its own rate, and with a store at fair shares of the store's rate. Copies
between GPUs and their hosts' memory overlap with that, except where kind 'async' waits for them; rows in host memory
count as if they were copied at the same rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from scenarios.config.scenario import Scenario
from scenarios.config.scenario.job import Checkpoints
from scenarios.config.units import format_bytes
from scenarios.seam.errors import ScenarioError
from scenarios.seam.program import Program
from scenarios.workloads.build import build
from sim.job.model import CheckpointTimes
from twinstep.jobs.checkpoint_bytes import CheckpointBytes, Floats, checkpoint_bytes, evenly

# The default of `host_rate` for a disk, as [job.checkpoint] states it.
_DISK_BYTES_PER_S = 5e9


@dataclass(frozen=True, kw_only=True)
class JobCheckpoints:
    """The checkpoints of a job, and what they take.

    Attributes:
        scenario: the cluster, and the workload.
        given: [job.checkpoint].
        program: has the plan and the memory of ranks; None: it is built if the bytes are not given.
        hosts: number of hosts that train, if not those of the cluster: each then has an equal part.
        beside_bytes_per_s: rate of each host's writes beside steps, from `step_while_writing`; None: as without steps.
        known: bytes on all hosts, by steps since the last whole checkpoint, once they are computed.
    """

    scenario: Scenario
    given: Checkpoints
    program: Program | None = None
    hosts: int | None = None
    beside_bytes_per_s: float | None = None
    known: dict[int, CheckpointBytes] = field(default_factory=dict, repr=False, compare=False)

    def writing(self, interval_steps: int) -> CheckpointTimes:
        """Return what checkpoints take, with so many steps between two.

        Times that [job.checkpoint] gives are those of whole checkpoints; an incremental one takes its bytes' part.

        Raises:
            ScenarioError: a size or a rate is not known, or the hosts' memory is too small.
        """
        given, since = self.given, [number * interval_steps for number in range(self.given.full_every)]
        parts = [1.0, *(self.size(steps).total / self.size().total for steps in since[1:])]

        def times(
            given_ns: int | None, computed: Callable[[CheckpointBytes], float], overhead_ns: int = given.overhead_ns
        ) -> tuple[float, ...]:
            if given_ns is not None:
                return tuple(given_ns / 1e9 * part for part in parts)
            return tuple(overhead_ns / 1e9 + computed(self.size(steps)) for steps in since)

        writes_s = times(given.write_ns, self._write_s)
        loads_s = times(given.write_ns if given.restore_ns is None else given.restore_ns, self._load_s)
        # An incremental checkpoint is loaded after the whole one.
        restores_s = tuple(loads_s[0] + (number > 0) * load_s for number, load_s in enumerate(loads_s))
        if given.kind == "blocking":
            return CheckpointTimes(blocks_s=writes_s, background_s=(0.0,) * len(since), restore_s=restores_s)
        copies_s = times(given.staging_ns, self._copy_s, 0)  # the overhead is in the write
        return CheckpointTimes(blocks_s=copies_s, background_s=writes_s, restore_s=restores_s)

    def size(self, steps: int = 0) -> CheckpointBytes:
        """Return the bytes of a whole checkpoint, or of an incremental one `steps` steps after the last whole one.

        Raises:
            ScenarioError: they are not known.
        """
        scenario, given = self.scenario, self.given
        gpus, hosts = scenario.cluster.host.gpus, self.hosts or scenario.cluster.hosts
        if given.size_bytes is not None:
            assert not steps, "the checks refuse incremental checkpoints of a given size"
            return evenly(given.size_bytes, hosts * gpus, gpus)
        if steps not in self.known:
            program = self.program or build(scenario)
            self.known[steps] = checkpoint_bytes(scenario, program, given.table_bits, steps or None)
        found = self.known[steps]
        return found if hosts == scenario.cluster.hosts else evenly(found.total, hosts * gpus, gpus)

    # Rates.

    @property
    def meets_messages(self) -> bool:
        """Whether checkpoints go over the NICs of the steps' messages while steps run."""
        given = self.given
        is_beside = given.kind == "async" and given.over == "network" and given.write_ns != 0
        return is_beside and (given.to == "store" or self._has_peer)

    @property
    def host_bytes_per_s(self) -> float:
        """The rate of a host to where checkpoints go: the store, its disk, or another host's memory."""
        default = _DISK_BYTES_PER_S if self.given.to == "ssd" else self.scenario.cluster.host_nics_bytes_per_s
        return self.given.host_rate or default

    @property
    def _has_peer(self) -> bool:
        """Whether there is another host to which a checkpoint is sent."""
        return (self.hosts or self.scenario.cluster.hosts) > 1

    def _move_s(self, sizes: Floats, beside_bytes_per_s: float = math.inf) -> float:
        """Return the seconds until all hosts have written or loaded `sizes`, and sent them to another host.

        A disk also holds the checkpoint of another host. `beside_bytes_per_s`: the most that steps leave of NICs.
        """
        cluster, most, to = self.scenario.cluster, float(sizes.max()), self.given.to
        if to == "store":
            return shared_s(sizes, min(self.host_bytes_per_s, beside_bytes_per_s), self.given.store_rate)
        if to == "host":
            rate = min(self.host_bytes_per_s, beside_bytes_per_s)
            return most / rate if self._has_peer else 0.0
        nics_s = most / min(cluster.host_nics_bytes_per_s, beside_bytes_per_s)
        return max(2 * most / self.host_bytes_per_s, nics_s) if self._has_peer else most / self.host_bytes_per_s

    # Times.

    def _write_s(self, size: CheckpointBytes) -> float:
        """Return the seconds of writing; with kind 'async' from the host's memory on."""
        beside = self.beside_bytes_per_s or math.inf
        if self.given.shards == "rank0":
            move_s = self._move_s(np.array([size.total]), beside)
            return move_s if self.given.kind == "async" else self._copy_s(size) + move_s
        move_s = self._move_s(size.hosts_written, beside)
        return move_s if self.given.kind == "async" else max(move_s, self._copy_s(size, needed=False))

    def _load_s(self, size: CheckpointBytes) -> float:
        """Return the seconds of loading, as after the loss of a host, whose part comes from another one."""
        if self.given.restore_rate is not None:
            return float(size.held.sum()) / self.given.restore_rate
        if self.given.shards == "rank0":
            return self._move_s(np.array([size.total])) + self._copy_s(size, needed=False)
        return max(self._move_s(size.hosts_held), self._through_pcie_s(float(size.held.max()), needed=False))

    def _copy_s(self, size: CheckpointBytes, *, needed: bool = True) -> float:
        """Return the seconds until all is in host memory: of each host, or gathered in that of rank 0."""
        self._check_memory(size)
        if self.given.shards == "ranks":
            return self._through_pcie_s(float(size.written.max()), needed=needed)
        host, own = self.scenario.cluster.host, size.own
        nic_bytes_per_s = host.nics.link.bytes_per_s * self.scenario.cluster.payload_share
        inside_s = float(own[1 : size.gpus].sum()) / host.shared_gpu_bytes_per_s
        gathering_s = max(float(own[size.gpus :].sum()) / nic_bytes_per_s, inside_s)
        return max(gathering_s, self._through_pcie_s(size.total, needed=needed))

    def _check_memory(self, size: CheckpointBytes) -> None:
        """Check that host memory holds the checkpoint that it has to, and that of another host."""
        given, has_bytes = self.given, self.scenario.cluster.host.memory_bytes
        count = int(given.kind == "async" or given.to == "host") + int(given.to == "host" and self._has_peer)
        needs_bytes = count * (size.total if given.shards == "rank0" else float(size.hosts_written.max()))
        if needs_bytes > has_bytes:
            raise ScenarioError(
                f"{self.scenario.path}: cluster.host_memory = '{format_bytes(has_bytes)}': expected at least"
                f" {format_bytes(needs_bytes)} for a host's checkpoint{' and that of another' if count > 1 else ''}"
            )

    def _through_pcie_s(self, size_bytes: float, *, needed: bool) -> float:
        """Return the seconds of a copy between a GPU and its host's memory; 0 if unknown and not `needed`."""
        cluster, given = self.scenario.cluster, self.given
        rate = cluster.host.shared_memory_bytes_per_s
        if rate is not None:
            return size_bytes / rate
        if needed or given.to == "host":
            raise ScenarioError(
                f"{self.scenario.path}: cluster.inside.host_rate: missing; expected the rate at which checkpoints are"
                " copied into the host's memory, or times in job.checkpoint"
            )
        return 0.0


def shared_s(sizes: Floats, each_per_s: float, all_per_s: float) -> float:
    """Return the seconds until hosts have moved their bytes; they share a store fairly until they are done."""
    further = np.diff(np.sort(sizes), prepend=0.0)
    moving = np.arange(sizes.size, 0, -1)
    return float((further / np.minimum(each_per_s, all_per_s / moving)).sum())
