"""The mistakes that `python -m tests.mutations` makes: one replaced text each, and the tests that should notice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    """`old`, which stands once in the file at `path`, becomes `new`; `tests` are what pytest is given."""

    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied_to(self, text: str) -> str:
        """The file's text with the mistake in it.

        Raises:
            ValueError: `old` does not stand in it exactly once.
        """
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.path} has {text.count(self.old)} times {self.old!r}, expected once")
        return text.replace(self.old, self.new)


REPLAYS = "tests/vectors/test_vectors.py"
PARTITIONER = (REPLAYS, "tests/scenarios/planner", "-k", "partitioner")
BUCKETIZE = (REPLAYS, "tests/scenarios/sparse/test_bucketize.py", "-k", "bucketize")
# Of what is replayed on both worlds, the simulator is enough here: above the seam both run the same code.
INPUT_DIST = (REPLAYS, "tests/scenarios/sparse/test_input_dist.py", "-k", "input_dist or twrw_dist and sim")
POWERSGD = (REPLAYS, "tests/scenarios/compression", "-k", "compression or powersgd and sim")
ALL_TO_ALL = ("tests/contract/test_all_to_all.py", "tests/properties/test_all_to_all.py")
EXCHANGE = (REPLAYS, *ALL_TO_ALL, "-k", "all_to_all or a2a_probes")

DEVICES, WALK = "scenarios/planner/partition/devices.py", "scenarios/planner/partition/walk.py"
HOST = "scenarios/sparse/kernels_host.py"
DIST, FEATURES = "scenarios/sparse/input_dist.py", "scenarios/sparse/feature_exchange.py"
BATCHED, ITERATION = "scenarios/compression/batched.py", "scenarios/compression/power_iteration.py"
LAYERWISE, STATE = "scenarios/compression/layerwise.py", "scenarios/compression/state.py"

MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "partitioner: the smallest group first",
        "scenarios/planner/partition/partitioners.py",
        "else _size, reverse=True)",
        "else _size)",
        PARTITIONER,
    ),
    Mutation(
        "partitioner: ties go to the lowest rank",
        DEVICES,
        "number % self._modulus << 32 | number",
        "number",
        PARTITIONER,
    ),
    Mutation(
        "partitioner: the input exchange counts as perf",
        DEVICES,
        "self.fwd_comms + self.bwd_comms + self.prefetch_compute",
        "self.fwd_comms + self.bwd_comms + self.prefetch_compute + self.input_dist_comms",
        PARTITIONER,
    ),
    Mutation(
        "partitioner: a shard may overdraw ssd",
        DEVICES,
        "rank.hbm < 0 or rank.ddr < 0 or rank.ssd < 0",
        "rank.hbm < 0 or rank.ddr < 0",
        PARTITIONER,
    ),
    Mutation(
        "partitioner: hosts by number, not by load",
        WALK,
        "map(itemgetter(2), self._order)",
        "iter(sorted(map(itemgetter(2), self._order), key=lambda hosts: hosts.start))",
        PARTITIONER,
    ),
    Mutation(
        "partitioner: the queue misses what a host was charged",
        WALK,
        "            self._queue.refresh(ranks)\n",
        "",
        PARTITIONER,
    ),
    Mutation(
        "partitioner: a host that failed stays charged",
        WALK,
        "        restore(ranks, saved)\n        del",
        "        del",
        PARTITIONER,
    ),
    Mutation(
        "partitioner: the module with the most tables first",
        "scenarios/planner/partition/partitioners.py",
        "key=lambda group: tables[group[0].path]",
        "key=lambda group: -tables[group[0].path]",
        PARTITIONER,
    ),
    Mutation(
        "bucketize: ids are signed",
        HOST,
        "{1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.uint64}",
        "{1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}",
        BUCKETIZE,
    ),
    Mutation(
        "bucketize: ids past the last block keep the remainder",
        HOST,
        "row % total // share, row // total",
        "row % total // share, row % total",
        BUCKETIZE,
    ),
    Mutation(
        "bucketize: positions go on through all bags",
        HOST,
        "out[starts[bucket]] = position",
        "out[starts[bucket]] = i",
        BUCKETIZE,
    ),
    Mutation(
        "bucketize: a bag's ids lose their order",
        HOST,
        "for i in range(items.size):",
        "for i in range(items.size - 1, -1, -1):",
        BUCKETIZE,
    ),
    Mutation(
        "bucketize: a bound belongs to the bucket below",
        HOST,
        "if row < bounds[middle]:",
        "if row <= bounds[middle]:",
        BUCKETIZE,
    ),
    Mutation(
        "shuffle: hosts and local ranks swapped",
        DIST,
        "for bucket in range(local_size) for key in range(count)",
        "for key in range(count) for bucket in range(local_size)",
        INPUT_DIST,
    ),
    Mutation("shuffle: every host takes the first host's keys", DIST, "        start += count\n", "", INPUT_DIST),
    Mutation("shuffle: blocks rounded down", DIST, "return -(-rows // buckets)", "return rows // buckets", INPUT_DIST),
    Mutation(
        "shuffle: the host's number taken for a rank's",
        DIST,
        "features_per_rank[host * local_size] for",
        "features_per_rank[host] for",
        INPUT_DIST,
    ),
    Mutation(
        "recat: sources by host, then by local rank",
        DIST,
        "for local in range(local_size) for host in range(hosts))",
        "for host in range(hosts) for local in range(local_size))",
        INPUT_DIST,
    ),
    Mutation(
        "recat: sample-major instead of key-major",
        FEATURES,
        "for key in range(keys) for source in sources]",
        "for source in sources for key in range(keys)]",
        INPUT_DIST,
    ),
    Mutation(
        "recat: batches by key in the order of ranks",
        FEATURES,
        "strides[source][key] for source in sources)",
        "strides[source][key] for source in sorted(sources))",
        INPUT_DIST,
    ),
    Mutation(
        "recat: weights stay where they came",
        FEATURES,
        "take_chunks(arrived.weights, ids, order)",
        "arrived.weights",
        INPUT_DIST,
    ),
    Mutation(
        "powersgd: Q stays a sum",
        ITERATION,
        "factors.q_memory.div_, group_size(rank, group)",
        "factors.q_memory.div_, 1",
        POWERSGD,
    ),
    Mutation(
        "powersgd: the error is kept with the wrong sign",
        BATCHED,
        "error[:whole].sub_(buffer[:whole])",
        "error[:whole].add_(buffer[:whole])",
        POWERSGD,
    ),
    Mutation(
        "powersgd: a bucket counts as a step",
        STATE,
        "        if not bucket.is_last():\n            return\n",
        "",
        POWERSGD,
    ),
    Mutation("powersgd: warm start forgets", ITERATION, "    if state.warm_start:\n", "    if False:\n", POWERSGD),
    Mutation(
        "powersgd: P is not made orthonormal",
        ITERATION,
        "_orthogonalise_all, factors.p, epsilon, safe",
        "_orthogonalise_all, [], epsilon, safe",
        POWERSGD,
    ),
    Mutation(
        "powersgd: QR for two columns",
        "scenarios/compression/orthogonalise.py",
        "_COLUMNS = 2 ",
        "_COLUMNS = 1 ",
        POWERSGD,
    ),
    Mutation(
        "powersgd: compresses also where nothing is gained",
        LAYERWISE,
        "* min_rate < rows * columns",
        "* min_rate <= rows * columns",
        POWERSGD,
    ),
    Mutation(
        "powersgd: each draw has a seed of its own",
        STATE,
        "    generator = torch.Generator().manual_seed(seed)\n    for target in targets:\n",
        "    for target in targets:\n        generator = torch.Generator().manual_seed(seed)\n",
        POWERSGD,
    ),
    Mutation(
        "all_to_all: real gives a group's members in the order of their ranks",
        "real/libraries/gloo.py",
        "sent = torch.cat([as_bytes(inputs[place]) for place in joined.order])",
        "sent = torch.cat([as_bytes(tensor) for tensor in inputs])",
        EXCHANGE,
    ),
    Mutation(
        "all_to_all: real writes over inputs that are still to be sent",
        "real/libraries/library.py",
        "if not joined.is_sorted or moves.overlap(issue.output, issue.input):",
        "if not joined.is_sorted:",
        EXCHANGE,
    ),
    Mutation(
        "all_to_all: the simulator gives a member its own row",
        "scenarios/seam/collectives/exchange.py",
        "payloads[source].inputs[member]",
        "payloads[member].inputs[source]",
        EXCHANGE,
    ),
)
