"""Makes computations of a module, or a function, of the user's own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import UnsupportedOperatorException
from torch.utils._pytree import tree_flatten

from scenarios.config.scenario import DenseParallel, Scenario
from scenarios.modules.ddp_buckets import assign_buckets, assign_registered
from scenarios.modules.fake import build_fake, explained, fake
from scenarios.modules.fully_sharded.replica import ShardedReplica, check_windows
from scenarios.modules.fully_sharded.shards import check_elementwise, shard_like
from scenarios.modules.fully_sharded.units import Unit, units_of
from scenarios.modules.memory import Part, parts_of
from scenarios.modules.precision import LossScaler, LossScaling, products_of_float32
from scenarios.modules.recorder import Recorder
from scenarios.modules.replica import Replica
from scenarios.modules.trace import Arguments, Trace, cost_of, size_of, tensors_of, trace, trainable
from scenarios.seam.errors import Note, ProgramError, told
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank

# What one trace holds for: the shapes and types of arguments, which outputs are differentiated with which gradients,
# whether gradients are there already, and which arguments are late.
Signature = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """An optimizer's step: as one computation, the state that stays, and what tensors take meanwhile at most."""

    kernel: Kernel
    state_bytes: int
    temporary_bytes: int


Optimizer = Callable[[Iterable[Tensor]], torch.optim.Optimizer]

# Of modules that have a `known_as`, by it and the number of shards, or what a pass was traced for.
_UPDATES: dict[tuple[str, int], Update] = {}
_TRACES: dict[tuple[Any, ...], Trace] = {}
_MOST_TRACES = 128


class Module:
    """A torch.nn.Module of which every rank has a copy, trained as DistributedDataParallel does it.

    One object serves all ranks of a process: what it was traced for once holds for all. `on(rank)` gives a rank's copy.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        scenario: Scenario,
        *,
        name: str = "",
        optimizer: Optimizer | None = None,
        reduce: bool = True,
        find_unused_parameters: bool = False,
        static_graph: bool = False,
        broadcast_buffers: bool = True,
        loss_scaling: LossScaling | None = None,
        tf32: bool | None = None,
        parallel: DenseParallel = DenseParallel(),  # noqa: B008 (frozen)
    ) -> None:
        """
        Args:
            make: makes the module, or a function of tensors; called with no arguments where its parameters are to be.
            scenario: gives the seed of first values, which are equal on all ranks, `buckets`, `compression`, whether
                buckets are reduced in one call, and whether it runs on GPUs, where attention, dropout and autocast
                differ.
            name: the first part of its computations' labels; the name of what is made if empty.
            optimizer: makes the optimizer of the parameters that it is given, such as `torch.optim.Adam`.
            reduce: whether gradients are averaged over all ranks.
            find_unused_parameters, static_graph, broadcast_buffers: as of DistributedDataParallel; without `reduce`
                they mean nothing.
            loss_scaling: what losses are scaled by, as torch.amp.GradScaler does it. `backward` must be given scaled
                gradients, `replica.scaler.scaled([torch.ones_like(loss)])`; `scaler` is None where payload has no
                values, and any gradients will do.
            tf32: whether GPUs round products of float32 to TF32. Default: as `torch.backends` says.
            parallel: whether ranks have copies of it, or shards as of torch's fully_shard; with shards the arguments
                about DDP above mean nothing.

        Raises:
            ProgramError: gradients of shards are to be compressed or scaled, or scaled ones compressed.
        """
        self.loss_scaling, self.tf32 = loss_scaling, tf32
        self.make, self.name, self.optimizer = make, name or _name_of(make), optimizer
        workload = scenario.workload
        self.seed, self.buckets, self.compression = scenario.seed, workload.buckets, workload.compression
        self.groups_reductions = workload.launching.grouped_all_reduce
        self.parallel, self._cluster = parallel, scenario.cluster
        self.reduce = reduce and not parallel.shards
        self._check_precision()
        self.broadcasts_buffers = self.reduce and broadcast_buffers
        self.finds_unused = find_unused_parameters and not static_graph
        self.may_have_unused = find_unused_parameters or static_graph
        self._on_gpu = scenario.cluster.host.gpu.device.is_launched
        self.fuses = self._on_gpu and workload.launching.fusion
        self._traces: dict[Signature, Trace] = {}
        self._updates: dict[int, Update] = {}
        self._has_noted = False
        self.known_as = (
            ""  # if not empty, the same for modules that do the same: they and their optimizers are traced once
        )

    def _check_precision(self) -> None:
        """What neither shards nor compressed gradients allow."""
        kind, scaling, compression = self.parallel.kind, self.loss_scaling, self.compression.kind
        said = ""
        if self.parallel.shards and compression != "none":
            said = (
                f"parallel.kind = '{kind}' with compression.kind = '{compression}': expected 'none', for only DDP's"
                " gradient buckets are compressed"
            )
        elif self.parallel.shards and scaling is not None:
            said = (
                f"loss_scaling = {scaling!r} with parallel.kind = '{kind}': expected None, for each rank would"
                " check its own shards only"
            )
        elif self.reduce and scaling is not None and compression != "none":
            said = (
                f"loss_scaling = {scaling!r} with compression.kind = '{compression}': expected None, for what one step"
                " leaves out of scaled gradients is added to the next one's, of another scale"
            )
        if said:
            raise ProgramError(f"module {self.name}: {said}")

    def on(self, rank: Rank) -> Replica:
        """This rank's copy, or shards; every rank calls this, in the same order. It opens streams for gradients."""
        return ShardedReplica(self, rank) if self.parallel.shards else Replica(self, rank)

    def trace(self, *arguments: Any, **named: Any) -> Trace:
        """A pass forward and back with arguments of these shapes and types, in which all losses are differentiated.

        Outputs of one element are losses, whose gradient is 1; if there are none, all outputs are given gradients.

        Raises:
            ProgramError: what it does depends on values, or an operator cannot run without them.
        """
        return self.traced((arguments, named))

    def traced(
        self,
        arguments: Arguments,
        gradients: Sequence[bool | None] | None = None,
        *,
        accumulates: bool = False,
        late: tuple[int, ...] = (),
    ) -> Trace:
        """The same with what else `scenarios.modules.trace.trace` can be given; traced once for each signature."""
        signature, chosen = _signature(arguments), None if gradients is None else tuple(gradients)
        found = self._traces.get((signature, chosen, accumulates, late))
        if found is None:
            found = self._traced(arguments, signature, chosen, accumulates=accumulates, late=late)
            check_windows(self, found)
            for key in (chosen, found.gradients):
                self._traces[signature, key, accumulates, late] = found
        return found

    def _traced(
        self,
        arguments: Arguments,
        signature: Signature,
        gradients: tuple[bool | None, ...] | None,
        *,
        accumulates: bool,
        late: tuple[int, ...],
    ) -> Trace:
        """Return the trace of a module that is known to do the same, else a new one."""
        with products_of_float32(self.tf32):
            rounds = torch.backends.cuda.matmul.allow_tf32
            key = self.known_as, rounds, signature, gradients, accumulates, late
            if self.known_as and key in _TRACES:
                return _TRACES[key]
            found = trace(
                self.make,
                self.name,
                arguments,
                on_gpu=self._on_gpu,
                gradients=gradients,
                accumulates=accumulates,
                late=late,
                fuses=self.fuses,
                units=self.units,
            )
        if self.known_as:
            _TRACES[key] = found
            if len(_TRACES) > _MOST_TRACES:
                del _TRACES[next(iter(_TRACES))]
        return found

    def note_unknown(self, traced: Trace) -> None:
        """Warn, once, of operators that are priced by their bytes alone."""
        if not self._has_noted:
            self._has_noted = True
            named = ", ".join(traced.unknown)
            sentence = f"module {self.name}: not known, and so priced by what they read and write: {named}"
            warnings.warn(sentence, Note, stacklevel=2)

    def buckets_of(self, traced: Trace) -> tuple[tuple[int, ...], ...]:
        """The parameters of each gradient bucket from DDP's second step on: in the order of arrival in this pass.

        Where it looks for unused parameters in each step, DDP keeps the buckets that it began with.
        """
        dtypes = [each.dtype for each in traced.parameters]
        sizes = [prod(each.shape) * each.dtype.itemsize for each in traced.parameters]
        if self.finds_unused:
            return assign_registered(sizes, self.buckets, dtypes)
        return assign_buckets(sizes, self.buckets, arrival=(*traced.arrival, *traced.unused), dtypes=dtypes)

    def memory(self, *arguments: Any, depth: int = 1, **named: Any) -> tuple[Part, ...]:
        """What a copy takes of a rank's device in a step with arguments of these shapes and types, by part and phase.

        Activations are by submodule, with `depth` levels of names.

        Raises:
            ProgramError: as `trace` does.
        """
        return parts_of(self, (arguments, named), depth)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """The submodules whose parameters are gathered together, of a module that is fully sharded; () of others.

        Raises:
            ProgramError: there are no such submodules, or their parameters cannot be sharded.
        """
        if not self.parallel.shards:
            return ()
        try:
            return self._find_units()
        except ValueError as error:
            raise ProgramError(f"module {self.name}: units: expected {error}") from error

    def check_shards(self) -> None:
        """ValueError, with what was expected, if parameters or their optimizer cannot be sharded as `parallel` says."""
        self._find_units()
        if self.optimizer is not None:
            try:
                self.updated_on(self.shard_ranks)
            except ProgramError as error:
                raise ValueError(str(error).partition(": expected ")[2] or str(error)) from error

    def _find_units(self) -> tuple[Unit, ...]:
        with fake(on_gpu=False):
            made = build_fake(self.make)
        return units_of(made, self.parallel.units, self.parallel.reshard_after_forward)

    @property
    def reduces_each(self) -> bool:
        """Whether gradients are to be reduced after each of several micro-batches, which then add up in shards."""
        return self.parallel.shards and self.parallel.reduce_every_micro_batch

    @property
    def shard_ranks(self) -> int:
        """The ranks of the scenario's cluster that hold all parameters together."""
        return self.parallel.shard_ranks(self._cluster.world_size, self._cluster.host.gpus)

    def updated_on(self, shards: int) -> Update:
        """The optimizer's step on a shard of each parameter, where there are so many; traced once.

        Raises:
            ProgramError: it does not work element by element.
        """
        if shards not in self._updates:
            known = _UPDATES.get((self.known_as, shards)) if self.known_as else None
            self._updates[shards] = known or self.update(shards)
            if self.known_as:
                _UPDATES[self.known_as, shards] = self._updates[shards]
        return self._updates[shards]

    def update(self, shards: int = 1) -> Update:
        """The optimizer's step, once its state is there; on the first of so many shards of each parameter."""
        assert self.optimizer is not None
        with fake(on_gpu=self._on_gpu), explained(self.name):
            parameters = trainable(build_fake(self.make))
            if self.parallel.shards:
                parameters = [shard_like(each, shards) for each in parameters]
            for parameter in parameters:
                parameter.grad = torch.empty_like(parameter)
            optimizer = self.optimizer(parameters)
            if self._on_gpu:
                _choose_foreach(optimizer)
            for _ in range(2):  # the first makes the state
                held = tensors_of([*optimizer.state.values()])
                recorder = Recorder(on_gpu=self._on_gpu)
                recorder.reads_numbers = True
                recorder.knows([*parameters, *(each.grad for each in parameters if each.grad is not None), *held])
                with recorder, _stepping(self.name, optimizer):
                    optimizer.step()
        if self.parallel.shards:
            check_elementwise(self.name, optimizer, recorder.operators)
        return Update(
            kernel=cost_of(recorder.operators, fuses=self.fuses),
            state_bytes=size_of(held),
            temporary_bytes=recorder.peak_bytes,
        )

    @property
    def updated(self) -> Update:
        """The same, traced once."""
        return self.updated_on(1)

    @cached_property
    def unscaled(self) -> Kernel:
        """What it takes to divide all gradients by the losses' scale, and to see whether they are finite."""
        assert self.optimizer is not None, "there is an update"
        assert self.loss_scaling is not None, "there is a scale"
        with fake(on_gpu=self._on_gpu), explained(self.name):
            parameters = trainable(build_fake(self.make))
            for parameter in parameters:
                parameter.grad = torch.empty_like(parameter)
            optimizer = self.optimizer(parameters)
            scaler = LossScaler(self.loss_scaling, torch.device("cpu"))
            with Recorder(on_gpu=self._on_gpu) as recorder:
                scaler.unscale(optimizer)
        return cost_of(recorder.operators, fuses=self.fuses)

    def build(self, device: torch.device) -> Any:
        """The module with its first values."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            made = self.make()
        return made.to(device) if isinstance(made, nn.Module) else made


def _name_of(make: Callable[[], Any]) -> str:
    name = str(getattr(make, "__name__", ""))
    return name if name.isidentifier() else "module"


def _signature(arguments: Any) -> Signature:
    leaves, layout = tree_flatten(arguments)
    return (
        str(layout),
        *(
            (tuple(leaf.shape), leaf.dtype, leaf.requires_grad)
            if isinstance(leaf, Tensor)
            else (type(leaf), repr(leaf))
            for leaf in leaves
        ),
    )


@contextmanager
def _stepping(module: str, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """ProgramError with what an optimizer raises that cannot step on gradients alone, or without values."""
    try:
        yield
    except (ProgramError, UnsupportedOperatorException):
        raise
    except Exception as error:
        raise ProgramError(
            f"module {module}: optimizer {type(optimizer).__name__}: expected one that steps without a closure, on"
            f" tensors without values, but it raised {told(error)}"
        ) from error


def _choose_foreach(optimizer: torch.optim.Optimizer) -> None:
    """As torch chooses for parameters on a GPU, unless it was chosen already."""
    for group in optimizer.param_groups:
        if group.get("foreach", 0) is None and not group.get("fused") and not group.get("differentiable"):
            group["foreach"] = True
