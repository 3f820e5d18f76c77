"""The dense part of a DLRM: a module of dense features, embeddings and labels that returns the loss.

`Dlrm` is the built-in one, made of `bottom`, `interaction` and `top`; `model.dense` names another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import register_pytree_node

from scenarios.config.scenario import Model, Recommender, Scenario, Table
from scenarios.modules.module import Module
from scenarios.modules.trace import TensorSpec, Trace
from scenarios.seam.errors import ProgramError, ScenarioError, tell_error, users_traceback
from scenarios.sparse.groups import TableGroup, outputs_to_tables
from scenarios.workloads.dlrm.optimizer_checks import DENSE_OF
from scenarios.workloads.locate import import_named


class Columns:
    """The columns of each feature among the outputs of its groups, and the features that have lengths."""

    def __init__(self, groups: Sequence[TableGroup], features: Sequence[Table]) -> None:
        """Index the groups by feature; `features` as in `Model.features`."""
        self.groups, self.features = tuple(groups), tuple(feature.name for feature in features)
        self.sequences = tuple(feature.name for feature in features if feature.sequence)
        self.group_of = {piece.feature: index for index, group in enumerate(groups) for piece in group.columns}
        places = [(type(group).__name__, group.columns) for group in groups]
        self._digest = blake2b(repr((self.features, self.sequences, places)).encode(), digest_size=16).hexdigest()

    def __repr__(self) -> str:  # part of each call's signature
        return self._digest


class Embeddings(Mapping[str, Tensor]):
    """A mapping from features to embeddings, in the model's order: [batch, dim] if pooled, else [batch, sequence, dim].

    `lengths` [batch], int64, are the numbers of ids of a sequence's samples, before any are cut. An output of a group
    is first used when one of its features is read.
    """

    def __init__(self, columns: Columns, outputs: Sequence[Tensor], lengths: Sequence[Tensor]) -> None:
        self.columns, self.outputs = columns, list(outputs)
        self.lengths = dict(zip(columns.sequences, lengths, strict=True))
        self._found: dict[str, Tensor] = {}

    def __getitem__(self, feature: str) -> Tensor:
        if feature not in self._found:
            index = self.columns.group_of[feature]
            self._found.update(outputs_to_tables([self.columns.groups[index]], [self.outputs[index]]))
        return self._found[feature]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns.features)

    def __len__(self) -> int:
        return len(self.columns.features)


def _flatten(embeddings: Embeddings) -> tuple[list[Tensor], Columns]:
    return [*embeddings.outputs, *embeddings.lengths.values()], embeddings.columns


def _unflatten(tensors: Iterable[Tensor], columns: Columns) -> Embeddings:
    given, groups = list(tensors), len(columns.groups)
    return Embeddings(columns, given[:groups], given[groups:])


register_pytree_node(Embeddings, _flatten, _unflatten)


class Cross(nn.Module):
    """One layer of DCNv2: x -> first * (W (V x) + b) + x, with V [rank, width] and W [width, rank].

    R. Wang et al., DCN V2, WWW 2021, equation 1 with the low-rank form of section 4.
    """

    def __init__(self, width: int, low_rank: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(width, low_rank, bias=False), nn.Linear(low_rank, width)

    def forward(self, first: Tensor, x: Tensor) -> Tensor:
        crossed: Tensor = first * self.up(self.down(x)) + x
        return crossed


class Dot(nn.Module):
    """A layer [batch, features * dim] -> [batch, dim + pairs]: the first feature, then dot products of all pairs."""

    def __init__(self, features: int, dim: int) -> None:
        super().__init__()
        self.features, self.dim = features, dim

    def forward(self, together: Tensor) -> Tensor:
        features = together.view(-1, self.features, self.dim)
        products = torch.bmm(features, features.transpose(1, 2))
        row, column = torch.tril_indices(self.features, self.features, -1, device=together.device)
        return torch.cat([features[:, 0], products[:, row, column]], dim=1)


class Dlrm(nn.Module):
    """Layers over the dense features, the interaction with the embeddings, layers to the logit, and the mean loss."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.bottom = _stack((model.dense_features, *model.bottom), last_relu=True)
        dims, interaction = [feature.dim for feature in model.features], model.interaction
        width = model.bottom[-1] + sum(dims)
        self.cross, self.dot = nn.ModuleList(), None
        if interaction.kind == "dot":
            self.dot = Dot(len(dims) + 1, model.bottom[-1])
            width = model.bottom[-1] + len(dims) * (len(dims) + 1) // 2
        elif interaction.kind == "dcn":
            self.cross.extend(Cross(width, interaction.low_rank) for _ in range(interaction.layers))
        self.top = _stack((width, *model.top), last_relu=False)

    def forward(self, dense: Tensor, embeddings: Mapping[str, Tensor], labels: Tensor) -> Tensor:
        bottom = self.bottom(dense)
        together = x = torch.cat([bottom, *embeddings.values()], 1)
        for layer in self.cross:
            x = layer(together, x)
        logits: Tensor = self.top(x if self.dot is None else self.dot(x))
        return functional.binary_cross_entropy_with_logits(logits.float().view(-1), labels)


class WideAdagrad(torch.optim.Optimizer):
    """Adagrad with float32 state: half precision cannot hold the squares or the epsilon."""

    def __init__(self, parameters: Iterable[Tensor], lr: float, eps: float = 1e-10) -> None:
        super().__init__(parameters, {"lr": lr, "eps": eps})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update parameters and state in place."""
        for group in self.param_groups:
            given = [each for each in group["params"] if each.grad is not None]
            wide = [each.grad.float() for each in given]
            for each in given:
                if not self.state[each]:
                    self.state[each]["sum"] = torch.zeros_like(each, dtype=torch.float32)
            squares = [self.state[each]["sum"] for each in given]
            torch._foreach_addcmul_(squares, wide, wide)
            roots = torch._foreach_sqrt(squares)
            torch._foreach_add_(roots, group["eps"])
            torch._foreach_div_(wide, roots)
            # Cast first: `_foreach_add_` of two dtypes would launch a kernel for each tensor.
            changes = [change.to(each.dtype) for change, each in zip(wide, given, strict=True)]
            torch._foreach_add_(given, changes, alpha=-group["lr"])


def build_dense(scenario: Scenario) -> Module:
    """Build the dense part of a scenario's model, of which every rank has a copy.

    Raises:
        ScenarioError: the names in `model.dense` or `model.dense_optimizer` do not exist.
    """
    workload = Recommender.of(scenario.workload)
    model = workload.model
    make: Callable[[], nn.Module] = partial(Dlrm, model)
    if model.dense:
        try:
            found = import_named(model.dense, scenario.program_folder)
        except ValueError as error:
            raise ScenarioError(f"{scenario.path}: model.dense = '{model.dense}': expected {error}") from error
        dims = {feature.name: feature.dim for feature in model.features}
        make = partial(found, model.dense_features, dims, **model.dense_options)
    dtype: torch.dtype = getattr(torch, model.dtype)
    module = Module(
        partial(_cast, make, dtype, getattr(torch, model.autocast) if model.autocast else None),
        scenario,
        name="dense",
        optimizer=_optimizer(scenario, model),
        loss_scaling=model.loss_scaling,
        tf32=model.tf32,
        parallel=workload.dense_parallel,
    )
    if not model.dense:
        module.known_as = _cache_key(scenario, model)
    with tell_errors_of(scenario, model):
        _check_shards(scenario, module)
        _check_steps(scenario, module)
    return module


def _cache_key(scenario: Scenario, model: Model) -> str:
    """Return everything that the built-in dense part and its optimizer's step depend on, besides call signatures."""
    layers = model.dense_features, model.bottom, model.top, model.interaction, [each.dim for each in model.features]
    optimizer = model.dtype, model.autocast, model.optimizer, model.dense_optimizer
    workload = Recommender.of(scenario.workload)
    where = scenario.cluster.host.gpu.kind, workload.launching.fusion, workload.dense_parallel
    return repr((layers, optimizer, where))


@contextmanager
def tell_errors_of(scenario: Scenario, model: Model) -> Iterator[None]:
    """Turn exceptions of a user's dense part into a ScenarioError with the user's lines."""
    try:
        yield
    except (ScenarioError, ProgramError):
        raise
    except Exception as error:
        if not model.dense:
            raise
        key = f"{scenario.path}: model.dense = '{model.dense}'"
        sentence = (
            f"{key}: expected a module of dense features, embeddings and labels, but it raised {tell_error(error)}"
        )
        raise ScenarioError("\n".join([sentence, *users_traceback(error)])) from error


def _check_shards(scenario: Scenario, module: Module) -> None:
    """Raise ScenarioError if the dense part, or its optimizer, cannot be sharded as requested."""
    parallel = Recommender.of(scenario.workload).dense_parallel
    key = f"units = {list(parallel.units)}" if parallel.units is not None else f"kind = '{parallel.kind}'"
    if parallel.shards:
        try:
            module.check_shards()
        except ValueError as error:
            raise ScenarioError(f"{scenario.path}: dense_parallel.{key}: expected {error}") from error


def _check_steps(scenario: Scenario, module: Module) -> None:
    """Raise ScenarioError if the dense part's own optimizer cannot be traced."""
    own = Recommender.of(scenario.workload).model.dense_optimizer
    if own is None:
        return
    try:
        module.updated_on(module.shard_ranks)
    except ProgramError as error:
        raise ScenarioError(f"{scenario.path}: model.dense_optimizer.kind = '{own.kind}': {error}") from error


def check_losses(scenario: Scenario, traced: Trace) -> None:
    """Raise ScenarioError unless all outputs of the dense part are losses."""
    tensors = [leaf for leaf in traced.outputs if isinstance(leaf, TensorSpec)]
    if not tensors or any(gradient is not False for gradient in traced.gradients):
        shapes = " and ".join(str(list(each.shape)) for each in tensors) or "no tensor"
        named = Recommender.of(scenario.workload).model.dense
        sentence = f"expected a loss, or several, of one element that parameters decide, but it returns {shapes}"
        raise ScenarioError(f"{scenario.path}: model.dense = '{named}': {sentence}")


def dense_shapes(model: Model) -> list[tuple[int, ...]]:
    """Return the shapes of the parameters of a model's built-in dense part."""
    with torch.device("meta"):
        return [tuple(parameter.shape) for parameter in Dlrm(model).parameters()]


def _cast(make: Callable[[], nn.Module], dtype: torch.dtype, autocast: torch.dtype | None) -> nn.Module:
    made = make().to(dtype)
    if autocast is not None:
        made.forward = partial(_run_autocast, made.forward, autocast)
    return made


def _run_autocast(forward: Callable[..., Any], dtype: torch.dtype, dense: Tensor, *others: Any) -> Any:
    """Run a forward pass under autocast, on the device of its input."""
    with torch.autocast(dense.device.type, dtype):
        return forward(dense, *others)


def _optimizer(scenario: Scenario, model: Model) -> Callable[[Iterable[Tensor]], torch.optim.Optimizer]:
    """Return the optimizer that `model.dense_optimizer` names, else torch.optim's version of the tables' optimizer."""
    if model.dense_optimizer is not None:
        kind = getattr(torch.optim, model.dense_optimizer.kind, None)
        if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)):
            key = f"model.dense_optimizer.kind = '{model.dense_optimizer.kind}'"
            raise ScenarioError(f"{scenario.path}: {key}: expected an optimizer of torch.optim, such as 'Adam'")
        options = dict(model.dense_optimizer.options)
        try:
            kind([torch.empty(0)], **options)
        except (TypeError, ValueError) as error:
            sentence = f"expected what torch.optim.{kind.__name__} takes, but it raised {tell_error(error)}"
            raise ScenarioError(f"{scenario.path}: model.dense_optimizer: {sentence}") from error
        return partial(kind, **options)
    own = model.optimizer
    if own.has_moments:  # the weight decay of these is AdamW's
        assert own.kind in DENSE_OF, "another one must be named"
        make = torch.optim.AdamW if own.weight_decay else torch.optim.Adam
        betas = own.beta1, own.beta2
        return partial(make, lr=own.learning_rate, betas=betas, eps=own.epsilon, weight_decay=own.weight_decay)
    if own.kind == "sgd":
        return partial(torch.optim.SGD, lr=own.learning_rate)
    adagrad = torch.optim.Adagrad if model.dtype == "float32" else WideAdagrad
    return partial(adagrad, lr=own.learning_rate, eps=own.epsilon)


def _stack(widths: Sequence[int], *, last_relu: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*(layers if last_relu else layers[:-1]))
