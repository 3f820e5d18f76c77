"""The transfers of an exchange: their load on links, and their time in isolation."""

from __future__ import annotations

import numpy as np

from sim.engine.flow_bundle import compiled_solver
from sim.engine.network import ClusterNetwork
from sim.engine.network.routes import Array, Numbers
from sim.nccl import rings_and_trees as nccl_paths
from sim.nccl.costs import NcclCosts
from sim.nccl.folded.link_load import Carried, Members

# Relative delay of an end that is ignored.
_NO_LATER = 1e-4
# Rows end together if their ends differ by less than this share of the bottleneck's time for its bytes.
_MERGED_SHARE = 2e-3


class Transfers:
    """The transfers of an exchange, one row for all from one member's ranks to another's.

    `touched` [members]: bytes that each member sends, receives or forwards.
    """

    def __init__(self, network: ClusterNetwork, members: Members, gpus: int) -> None:
        self._network, self._members, self._gpus = network, members, gpus
        self._numbers = Numbers()
        self._rows: list[tuple[Array, Array, Array]] = []  # links crossed, transfers on each, bytes of one transfer
        self.touched = np.zeros(len(members.ranks))

    def cross(self, to: Array, come: Array, size_bytes: Array, costs: NcclCosts) -> None:
        """Add transfers between hosts.

        Args:
            to: [members, members] number of ranks of the second member that one of the first sends to.
            come: [members, members] number of ranks of the first member that one of the second receives from.
            size_bytes: [members, members] bytes of one transfer.
            costs: the cluster's rates.
        """
        members = self._members
        sources, targets = np.nonzero((to > 0) & (size_bytes > 0))
        relays, leaving = self._ways_out(costs)
        arriving = self._numbers.table([self._network.arriving(rank) for rank in members.ranks.tolist()])
        out, back = leaving[sources, members.gpus[targets]], arriving[targets]
        sent, received = to[sources, targets], come[sources, targets]
        sizes = size_bytes[sources, targets]
        counts = [np.repeat(sent[:, None], out.shape[1], 1), np.repeat(received[:, None], back.shape[1], 1)]
        self._rows.append((np.concatenate([out, back], 1), np.concatenate(counts, 1), sizes))
        # `add.at`, not `+=`: a member occurs in many rows, and fancy indexing would keep one of them only.
        np.add.at(self.touched, sources, sent * sizes)
        np.add.at(self.touched, targets, received * sizes)
        via = relays[sources, members.gpus[targets]]
        np.add.at(self.touched, via[via >= 0], (2 * sent * sizes)[via >= 0])

    def stay(self, is_sent: Array, size_bytes: Array, costs: NcclCosts) -> None:
        """Add transfers inside hosts, [members, members]."""
        members, mesh = self._members, costs.mesh
        sources, targets = np.nonzero(is_sent)
        links = []
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            host = {int(members.gpus[one]): one for one in members.of_host(source)}
            near, far = int(members.gpus[source]), int(members.gpus[target])
            via = None if mesh is None else mesh.relay(near, far, list(host))
            relay = None if via is None else int(members.ranks[host[via]])
            links.append(self._network.path(int(members.ranks[source]), int(members.ranks[target]), relay).links)
            for one in (source, target) if via is None else (source, host[via], host[via], target):
                self.touched[one] += size_bytes[source, target]
        crossed = self._numbers.table(links)
        self._rows.append((crossed, np.ones(crossed.shape), size_bytes[sources, targets]))

    def load(self, carried: Carried) -> None:
        """Add all transfers to the load of their links."""
        for crossed, counts, sizes in self._rows:
            is_link = crossed >= 0
            numbers, size = crossed[is_link], len(self._numbers)
            loads = np.bincount(numbers, (counts * sizes[:, None])[is_link], size)
            flows = np.bincount(numbers, counts[is_link], size)
            for link, used, count in zip(self._numbers, loads.tolist(), flows.tolist(), strict=True):
                if count:
                    carried.add((link,), used, count)

    def seconds(self) -> float:
        """Return the exchange's time in isolation without leaf uplinks; 0 if the bottleneck link's bytes alone
        determine it.
        """
        width = max(crossed.shape[1] for crossed, _, _ in self._rows)
        crossed, counts = (
            np.concatenate([np.pad(one, ((0, 0), (0, width - one.shape[1])), constant_values=-1) for one in each])
            for each in ([rows[0] for rows in self._rows], [rows[1] for rows in self._rows])
        )
        sizes, per_s = np.concatenate([rows[2] for rows in self._rows]), np.array([one.per_s for one in self._numbers])
        is_link = crossed >= 0
        needed_s = (np.bincount(crossed[is_link], (counts * sizes[:, None])[is_link], per_s.size) / per_s).max()
        # If, at initial rates, all transfers end before the bottleneck has carried its bytes, none delays the exchange.
        # No transfer gets less than its links' equal shares: if these suffice, neither rates nor numba are needed.
        users = np.bincount(crossed[is_link], counts[is_link], per_s.size)
        least = np.where(is_link, (per_s / np.maximum(users, 1.0))[crossed], np.inf).min(axis=1)
        latest_s = needed_s * (1 + _NO_LATER)
        if (sizes / least).max() <= latest_s:
            return 0.0
        solver = compiled_solver()
        flows, capacities = solver.counted_flows(crossed, counts, sizes, per_s)
        solver.set_rates(flows, solver.no_others(), capacities)
        if (sizes / flows.rates).max() <= latest_s:
            return 0.0
        return float(solver.duration(flows, solver.no_others(), capacities, _MERGED_SHARE * needed_s))

    def _ways_out(self, costs: NcclCosts) -> tuple[Array, Array]:
        """Return how each member reaches a GPU number on other hosts.

        Returns: [members, GPU numbers] the place of the member that relays (PXN; -1: none), and the links up to the
        network [members, GPU numbers, links].
        """
        members, network = self._members, self._network
        relays = np.full((len(members.ranks), self._gpus), -1)
        links = []
        for place, rank in enumerate(members.ranks.tolist()):
            host = {int(members.gpus[one]): one for one in members.of_host(place)}
            for gpu in range(self._gpus):
                exit_gpu = nccl_paths.rail(int(members.gpus[place]), gpu, costs)
                via = None if exit_gpu is None else host.get(exit_gpu)
                if via is None:
                    links.append(network.leaving(rank, gpu))
                    continue
                relay = int(members.ranks[via])
                relays[place, gpu] = via
                links.append((*network.path(rank, relay).links, *network.leaving(relay, gpu)))
        table = self._numbers.table(links)
        return relays, table.reshape(len(members.ranks), self._gpus, table.shape[1])
