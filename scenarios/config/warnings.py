"""Notes on scenarios that are valid but may not mean what they seem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec

from scenarios.config.compute_times import ComputeCounter
from scenarios.config.host_classes import HostClasses
from scenarios.config.interconnect import LIBRARIES, folding
from scenarios.config.scenario import LEAST_POWERSGD_START, Recommender, Scenario
from scenarios.config.toml.mistakes import toml_text
from scenarios.seam.trace import Span
from scenarios.workloads.dlrm.tables.fbgemm_limits import DIM_STEP, ROW_DTYPES, why_not_trained
from scenarios.workloads.effort import Effort

_CALIBRATE = (
    "to predict this machine, run `twinstep calibrate --out here.toml --ranks-per-host 2` and use --profile here.toml"
)
_MOST_NAMES = 8  # in a sentence
# Keys of [cluster] on which no prediction with a library depends: NCCL's latency inside a host is its own law's.
_UNUSED = {
    "nccl": (("inside", "latency"), ("tcp",)),
    "gloo": (
        ("network", "sharp"),
        *((f"nccl_{key}",) for key in ("efficiency", "start", "floor", "sockets", "p2p_share")),
    ),
}


def notes(scenario: Scenario, classes: HostClasses | None = None, effort: Effort | None = None) -> Iterator[str]:
    """Yield notes before a prediction, one sentence each, with file, key and value.

    `classes` are the host classes, if only representatives run; `effort` is the cost of simulating.
    """
    compression, gpu = scenario.workload.compression, scenario.cluster.host.gpu
    if compression.kind != "none" and compression.start_powerSGD_iter >= scenario.run.steps:
        least = LEAST_POWERSGD_START if compression.use_error_feedback or compression.warm_start else 0
        smaller = f" or a value from {least} to {scenario.run.steps - 1}" if least < scenario.run.steps else ""
        yield (
            f"{scenario.path}: compression.start_powerSGD_iter = {compression.start_powerSGD_iter}: nothing is"
            f" compressed in {scenario.run.steps} steps; to see compression, use more than"
            f" {compression.start_powerSGD_iter} steps{smaller}"
        )
    if (library := LIBRARIES[scenario.run.library]).device != gpu.kind:
        yield f"{scenario.path}: run.library = '{scenario.run.library}': {library.limits}"
    yield from _notes_of_unused(scenario)
    if scenario.run.chosen:
        yield (
            f"{scenario.path}: run.ranks = '{scenario.run.ranks}', run.fidelity = '{scenario.run.fidelity}': chosen"
            f" because {scenario.run.chosen}; --ranks and --fidelity override this"
        )
    if effort is not None and effort.may_be_long(scenario.run.steps):
        if classes is None and scenario.run.ranks == "each" and effort.is_large(1):
            key = f"run.ranks = 'each': simulating {scenario.cluster.world_size:,} ranks one by one takes"
            less = f"'alike' takes seconds, with fidelity 'links', payload 'sizes' and library {folding()}"
        else:
            key = f"run.steps = {scenario.run.steps}: simulating them takes"
            less = "most programs need only a few steps"
        yield f"{scenario.path}: {key} {effort.text(scenario.run.steps)}; {less}"
    if classes is not None and not classes.is_exact:
        yield (
            f"{scenario.path}: run.ranks = 'alike': the cluster has more than {len(classes.representatives)} classes of"
            f" hosts; expected loads in a class differ by up to {100 * classes.spread:.2g} % of the largest load"
        )


def _notes_of_unused(scenario: Scenario) -> Iterator[str]:
    """Yield the keys that the scenario sets beside its profile although its prediction does not depend on them."""
    own = scenario.own_keys.get("cluster", {}) if scenario.cluster.profile else {}
    for path in _UNUSED[scenario.run.library]:
        table = own
        for key in path[:-1]:
            table = table.get(key, {})
        if path[-1] in table:
            key = ".".join(("cluster", *path))
            yield f"{scenario.path}: {key}: has no effect with run.library = '{scenario.run.library}'"
    workload = scenario.workload
    flags = {"launching.cuda_graphs": workload.launching.cuda_graphs, "launching.fusion": workload.launching.fusion}
    if isinstance(workload, Recommender):
        flags["model.tf32"] = bool(workload.model.tf32)
    for key in [key for key, is_set in flags.items() if is_set and not scenario.cluster.host.gpu.device.is_launched]:
        yield f"{scenario.path}: {key} = true: has no effect with cluster.gpu.kind = '{scenario.cluster.host.gpu.kind}'"


def notes_of_measuring(scenario: Scenario, cores: int = 0, cpu: str = "") -> Iterator[str]:
    """Yield notes before a real run: on what predictions have and real runs lack.

    `cores` and `cpu` describe the machine on which all ranks run; `cores` is 0 if they run on several.
    """
    if count := len({fault.part for fault in scenario.cluster.faults}):
        yield (
            f"{scenario.path}: cluster.faults: {count} of the cluster's parts {'is' if count == 1 else 'are'} slow in"
            " predictions only; a real run takes its devices as they are"
        )

    yield from _notes_of_tables(scenario)
    cluster, measured = scenario.cluster, scenario.measured
    if not cores or not cluster.host.gpu.device.runs_on_cores:
        return
    if cluster.world_size > cores and not cluster.hosts_share_cores:
        yield (
            f"{scenario.path}: cluster.hosts = {cluster.hosts}: {cluster.world_size} ranks share the {cores} cores of"
            f" this machine, but predictions assume {cluster.host.cores} per host: expect longer steps; {_CALIBRATE}"
        )
    elif measured is None:
        yield f"{scenario.path}: cluster.profile = '{cluster.profile}': never calibrated; {_CALIBRATE}"
    elif measured.cpu not in ("", cpu):
        yield (
            f"{scenario.path}: cluster.profile = '{cluster.profile}': calibrated on another processor"
            f" ({measured.cpu}, this is {cpu}); {_CALIBRATE}"
        )


def _notes_of_tables(scenario: Scenario) -> Iterator[str]:
    """Yield why a GPU's tables cannot be fbgemm's, if that is known before they are sharded."""
    if not isinstance(scenario.workload, Recommender) or LIBRARIES[scenario.run.library].device != "cuda":
        return
    model, reason = scenario.workload.model, ""
    if find_spec("fbgemm_gpu") is None:
        reason = 'fbgemm is not installed: `pip install "twinstep[gpu]"`'
    elif model.embedding_dtype not in ROW_DTYPES:
        reason = f"fbgemm does not support {model.embedding_dtype} (model.embedding_dtype)"
    elif odd := [table.name for table in model.tables if table.dim % DIM_STEP]:
        reason = f"fbgemm needs multiples of {DIM_STEP} as dim, unlike those of {_list_names(odd)}"
    elif why := why_not_trained(model.optimizer, "cuda"):
        reason = f"{why} (model.optimizer)"
    if reason:
        yield (
            f"{scenario.path}: run.library = '{scenario.run.library}': embeddings are looked up and updated by chains"
            f" of torch operations, which take longer than predicted; {reason}"
        )


class NotesAfter:
    """A summary of how measured times were used in a prediction; spans are added in each stream's issue order."""

    def __init__(self, scenario: Scenario) -> None:
        self._path, self._times = scenario.path, scenario.run.compute_times
        self._computations = ComputeCounter(self._times)
        self._unused = dict.fromkeys(self._times.rows) if self._times else {}
        self._took_ns = {True: 0, False: 0}
        self._others: Counter[str] = Counter()

    def add(self, spans: Sequence[Span]) -> None:
        """Count the computations of further spans."""
        if self._times is None:
            return
        for span in spans:
            if span.kind == "compute" and span.step >= 0:
                found = self._computations.next(span.rank, span.stream, span.step, span.label, cost=span)
                duration_ns = span.end_ns - span.start_ns
                self._took_ns[found is not None] += duration_ns
                if found is not None:
                    self._unused.pop(found, None)
                elif duration_ns and (span.flops or span.bytes_read or span.bytes_written):
                    self._others[span.label] += duration_ns

    def sentences(self) -> Iterator[str]:
        """Yield the notes, after all spans have been added."""
        if self._times is None:
            return
        begin = f"{self._path}: run.compute_times = {toml_text(str(self._times.path))}"
        share = self._took_ns[True] / max(sum(self._took_ns.values()), 1)
        longest = _list_names(name for name, _ in self._others.most_common())
        rest = f"; not measured, longest first: {longest}" if self._others else ""
        yield f"{begin}: measured times are {100 * share:.1f} % of the steps' compute time{rest}"
        if self._unused:
            yield f"{begin}: not in any step of this program: {_list_names(map(str, self._unused))}"


def _list_names(names: Iterable[str]) -> str:
    every = list(names)
    more = len(every) - _MOST_NAMES
    return ", ".join(every[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
