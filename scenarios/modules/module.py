"""Turns a user's module, or function, into computations of a program."""

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
from scenarios.modules.fake import build_fake, explain_error, fake
from scenarios.modules.fully_sharded.replica import ShardedReplica, check_windows
from scenarios.modules.fully_sharded.shards import check_elementwise, shard_like
from scenarios.modules.fully_sharded.units import Unit, units_of
from scenarios.modules.fusion import Fusion
from scenarios.modules.memory import parts_of
from scenarios.modules.precision import LossScaler, LossScaling, rounding_to_tf32, rounds_to_tf32
from scenarios.modules.recorder import Recorder
from scenarios.modules.replica import Replica
from scenarios.modules.trace import Arguments, Trace, cost_of, size_of, tensors_of, trace, trainable
from scenarios.seam.errors import Note, ProgramError, tell_error
from scenarios.seam.kernel import Kernel
from scenarios.seam.memory import MemoryPart
from scenarios.seam.rank import Rank

# Key of a trace: the shapes and types of arguments, which outputs are differentiated with which gradients, whether
# gradients exist already, and which arguments are late.
Signature = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """An optimizer's step as one computation, with the bytes of its state and of its temporaries at their peak."""

    kernel: Kernel
    state_bytes: int
    temporary_bytes: int


Optimizer = Callable[[Iterable[Tensor]], torch.optim.Optimizer]

# Updates and passes by the module's `known_as`, with the number of shards or what the pass was traced for.
_UPDATES: dict[tuple[str, int], Update] = {}
_TRACES: dict[tuple[Any, ...], Trace] = {}
_MOST_TRACES = 128


class Module:
    """A torch.nn.Module with a copy on every rank, trained as in DistributedDataParallel.

    One object serves all ranks of a process and caches its traces. `on(rank)` returns a rank's copy.
    """

    known_as = ""  # modules with equal non-empty values share their traces: of passes and optimizer steps

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
        """Describe the module; nothing is built yet.

        Args:
            make: builds the module, or a function of tensors; called without arguments for each device.
            scenario: has the seed of first values, which are equal on all ranks, `buckets`, `compression`, whether
                buckets are reduced in one call, and whether it runs on GPUs, where attention, dropout and autocast
                differ.
            name: the first part of labels of its computations; by default the name of `make`.
            optimizer: creates the optimizer of the parameters passed to it, such as `torch.optim.Adam`.
            reduce: whether gradients are averaged over all ranks.
            find_unused_parameters, static_graph, broadcast_buffers: as in DistributedDataParallel; without `reduce`
                they have no effect.
            loss_scaling: the scale of losses, as in torch.amp.GradScaler. `backward` must then get scaled gradients,
                `replica.scaler.scaled([torch.ones_like(loss)])`; `scaler` is None where payload has no values, and any
                gradients will do.
            tf32: whether GPUs round products of float32 to TF32. Default: as `torch.backends` says.
            parallel: whether ranks have copies, or shards as in torch's fully_shard; with shards the arguments about
                DDP above have no effect.

        Raises:
            ProgramError: gradients of shards are to be compressed or scaled, or scaled gradients compressed.
        """
        self.loss_scaling, self.tf32 = loss_scaling, tf32
        self.make, self.name, self.optimizer = make, name or _name_of(make), optimizer
        self.seed, self._launching = scenario.run.seed, scenario.workload.launching
        self.buckets, self.compression = scenario.workload.buckets, scenario.workload.compression
        self.parallel, self._cluster = parallel, scenario.cluster
        self.reduce = reduce and not parallel.shards
        self._check_precision()
        self.broadcasts_buffers = self.reduce and broadcast_buffers
        self.finds_unused = find_unused_parameters and not static_graph
        self.may_have_unused = find_unused_parameters or static_graph
        self._traces: dict[Signature, Trace] = {}
        self._updates: dict[int, Update] = {}
        self._has_noted = False

    def _check_precision(self) -> None:
        """Raise a ProgramError for a combination of shards, compression and scaling that is not supported."""
        kind, scaling, compression = self.parallel.kind, self.loss_scaling, self.compression.kind
        conflict = ""
        if self.parallel.shards and compression != "none":
            conflict = (
                f"parallel.kind = '{kind}' with compression.kind = '{compression}': expected 'none', for only DDP's"
                " gradient buckets are compressed"
            )
        elif self.parallel.shards and scaling is not None:
            conflict = (
                f"loss_scaling = {scaling!r} with parallel.kind = '{kind}': expected None, for each rank would"
                " check its own shards only"
            )
        elif self.reduce and scaling is not None and compression != "none":
            conflict = (
                f"loss_scaling = {scaling!r} with compression.kind = '{compression}': expected None, for what one step"
                " leaves out of scaled gradients is added to the next one's, of another scale"
            )
        if conflict:
            raise ProgramError(f"module {self.name}: {conflict}")

    @property
    def groups_reductions(self) -> bool:
        """True if gradient buckets are reduced in one call."""
        return self._launching.grouped_all_reduce

    @property
    def _on_gpu(self) -> bool:
        return self._cluster.host.gpu.device.is_launched

    @property
    def fuses(self) -> Fusion:
        """The way in which the module's operators are fused in costs; "" if they are not."""
        fusion = self._on_gpu and self._launching.fusion
        return "compiled" if fusion is True else fusion or ""

    def on(self, rank: Rank) -> Replica:
        """Return this rank's copy or shards, and open gradient streams; every rank calls this, in the same order."""
        return ShardedReplica(self, rank) if self.parallel.shards else Replica(self, rank)

    def trace(self, *arguments: Any, **named: Any) -> Trace:
        """Trace a forward and backward pass with arguments of these shapes and types; all losses are differentiated.

        Outputs of one element are losses, with gradient 1; if there are none, gradients of all outputs are given.

        Raises:
            ProgramError: the module depends on values, or an operator cannot run without values.
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
        """Trace a pass with further arguments of `scenarios.modules.trace.trace`; cached by signature."""
        signature, chosen = _signature(arguments), None if gradients is None else tuple(gradients)
        found = self._traces.get((signature, chosen, accumulates, late))
        if found is None:
            found = self._trace(arguments, signature, chosen, accumulates=accumulates, late=late)
            check_windows(self, found)
            # Cached by the gradients found too, so that passing the default explicitly does not trace again.
            for key in (chosen, found.gradients):
                self._traces[signature, key, accumulates, late] = found
        return found

    def _trace(
        self,
        arguments: Arguments,
        signature: Signature,
        gradients: tuple[bool | None, ...] | None,
        *,
        accumulates: bool,
        late: tuple[int, ...],
    ) -> Trace:
        """Return the trace of a module with an equal `known_as` and signature, else a new one."""
        with rounding_to_tf32(products=self.tf32):
            key = self.known_as, rounds_to_tf32()[0], signature, gradients, accumulates, late
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
        """Return the parameters of each bucket from DDP's second step on, in the order of arrival in this pass.

        DDP keeps its first buckets instead with `find_unused_parameters`.
        """
        dtypes = [each.dtype for each in traced.parameters]
        sizes = [prod(each.shape) * each.dtype.itemsize for each in traced.parameters]
        if self.finds_unused:
            return assign_registered(sizes, self.buckets, dtypes)
        return assign_buckets(sizes, self.buckets, arrival=(*traced.arrival, *traced.unused), dtypes=dtypes)

    def memory(self, *arguments: Any, depth: int = 1, **named: Any) -> tuple[MemoryPart, ...]:
        """Return a copy's memory on a rank's device, by part and phase, in a step with arguments of these shapes and
        types.

        Activations are by submodule, with `depth` levels of names.

        Raises:
            ProgramError: as for `trace`.
        """
        return parts_of(self, (arguments, named), depth)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """Submodules whose parameters are gathered together, if the module is fully sharded; else ().

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
        """Raise a ValueError, with the expected form, if `parallel` cannot shard the parameters or the optimizer."""
        self._find_units()
        if self.optimizer is not None:
            try:
                self.updated_on(self.shard_ranks)
            except ProgramError as error:
                raise ValueError(str(error).partition(": expected ")[2] or str(error)) from error

    def _find_units(self) -> tuple[Unit, ...]:
        with fake(on_gpu=False):
            module = build_fake(self.make)
        return units_of(module, self.parallel.units, self.parallel.reshard_after_forward)

    @property
    def reduces_each(self) -> bool:
        """Whether gradients are reduced after each of several micro-batches and then accumulate in shards."""
        return self.parallel.shards and self.parallel.reduce_every_micro_batch

    @property
    def shard_ranks(self) -> int:
        """Number of ranks of the scenario's cluster that hold all parameters together."""
        return self.parallel.shard_ranks(self._cluster.world_size, self._cluster.host.gpus)

    def updated_on(self, shards: int) -> Update:
        """Return the optimizer's step on one of `shards` shards of each parameter; cached.

        Raises:
            ProgramError: the optimizer does not work element by element.
        """
        if shards not in self._updates:
            known = _UPDATES.get((self.known_as, shards)) if self.known_as else None
            self._updates[shards] = known or self.update(shards)
            if self.known_as:
                _UPDATES[self.known_as, shards] = self._updates[shards]
        return self._updates[shards]

    def update(self, shards: int = 1) -> Update:
        """Trace the optimizer's step, after its state exists, on the first of `shards` shards of each parameter."""
        assert self.optimizer is not None
        with fake(on_gpu=self._on_gpu), explain_error(self.name):
            parameters = trainable(build_fake(self.make))
            if self.parallel.shards:
                parameters = [shard_like(each, shards) for each in parameters]
            for parameter in parameters:
                parameter.grad = torch.empty_like(parameter)
            optimizer = self.optimizer(parameters)
            if self._on_gpu:
                _choose_foreach(optimizer)
            for _ in range(2):  # the first step allocates the state, the second is recorded
                states = tensors_of([*optimizer.state.values()])
                recorder = Recorder(on_gpu=self._on_gpu)
                recorder.reads_numbers = True
                recorder.knows([*parameters, *(each.grad for each in parameters if each.grad is not None), *states])
                with recorder, _stepping(self.name, optimizer):
                    optimizer.step()
        if self.parallel.shards:
            check_elementwise(self.name, optimizer, recorder.operators)
        return Update(
            kernel=cost_of(recorder.operators, fuses=self.fuses),
            state_bytes=size_of(states),
            temporary_bytes=recorder.peak_bytes,
        )

    @property
    def updated(self) -> Update:
        """Optimizer's step on whole parameters; cached."""
        return self.updated_on(1)

    @cached_property
    def unscaled(self) -> Kernel:
        """Cost of dividing all gradients by the losses' scale and checking that they are finite."""
        assert self.optimizer is not None, "there is an update"
        assert self.loss_scaling is not None, "there is a scale"
        with fake(on_gpu=self._on_gpu), explain_error(self.name):
            parameters = trainable(build_fake(self.make))
            for parameter in parameters:
                parameter.grad = torch.empty_like(parameter)
            optimizer = self.optimizer(parameters)
            scaler = LossScaler(self.loss_scaling, torch.device("cpu"))
            with Recorder(on_gpu=self._on_gpu) as recorder:
                scaler.unscale(optimizer)
        return cost_of(recorder.operators, fuses=self.fuses)

    def build(self, device: torch.device) -> Any:
        """Return the module with its first values."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            module = self.make()
        return module.to(device) if isinstance(module, nn.Module) else module


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
    """Turn the error of an optimizer that cannot step without a closure or without values into a ProgramError."""
    try:
        yield
    except (ProgramError, UnsupportedOperatorException):
        raise
    except Exception as error:
        raise ProgramError(
            f"module {module}: optimizer {type(optimizer).__name__}: expected one that steps without a closure, on"
            f" tensors without values, but it raised {tell_error(error)}"
        ) from error


def _choose_foreach(optimizer: torch.optim.Optimizer) -> None:
    """Select `foreach`, as torch does by default for parameters on a GPU."""
    for group in optimizer.param_groups:
        if group.get("foreach", 0) is None and not group.get("fused") and not group.get("differentiable"):
            group["foreach"] = True
