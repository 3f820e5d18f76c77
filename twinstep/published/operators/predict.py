"""Predict the time of a measured operator as the simulator prices it, under the conditions of its row's measurement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial

from scenarios.config.gpu import Gpu
from scenarios.config.load import load_profile
from scenarios.seam.errors import ScenarioError
from scenarios.seam.operations.operation import Operation
from sim.gpu_profiles import profile_of
from sim.operators.laws import seconds
from sim.operators.tables.read import table_of
from sim.operators.tables.table import correction
from twinstep.published.operators import embeddings, gpus, operators
from twinstep.published.operators.described import Described, NotDescribedError

# The description of rows by their form; `reports.published.kernels` finds a file's form from its columns.
_FORMS: Mapping[str, Callable[[Mapping[str, str]], Described]] = {
    "operators": operators.describe,
    "embeddings forward": partial(embeddings.describe, is_backward=False),
    "embeddings backward": partial(embeddings.describe, is_backward=True),
    "gpus": gpus.describe,
    "float32": gpus.describe_float32,
}
_UNNAMED = "not named"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedOperator:
    """A predicted time of a row's operator and of what the row includes besides, its family, and its GPU's profile.

    `predicted_us` is by the law and the table of measured operators that the profile names; `law_us` by the law alone.
    """

    predicted_us: float
    law_us: float
    family: str
    profile: str


def predict(form: str, cells: Mapping[str, str], profile: str | None = None) -> PredictedOperator:
    """Predict the time of a row's operator.

    Args:
        form: the row's columns, a key of `_FORMS`.
        cells: the row's cells by column.
        profile: used for rows that name no GPU, and for rows that name its GPU; other rows use the ready profile of
            their GPU.

    Raises:
        ScenarioError: no law covers the row's operator, the row lacks facts, or no profile has its GPU.
    """
    try:
        described = _FORMS[form](cells)
    except NotDescribedError as error:
        raise ScenarioError([str(error)]) from None
    name = _profile_of_row(cells.get("gpu", ""), profile)
    took_s = law_s = described.beside_s
    for operation in described.operations:
        alone_s, factor = _price(operation, name, described.is_cold)
        took_s, law_s = took_s + alone_s * factor, law_s + alone_s
    return PredictedOperator(predicted_us=took_s * 1e6, law_us=law_s * 1e6, family=described.family, profile=name)


def _profile_of_row(gpu: str, profile: str | None) -> str:
    if not gpu or gpu.startswith(_UNNAMED):
        if profile is None:
            raise ScenarioError(["the row names no GPU: expected --profile"])
        return profile
    return _find_profile(gpu, profile)


@cache
def _find_profile(gpu: str, profile: str | None) -> str:
    """Return the profile of a GPU that a row names."""
    if profile is not None:
        # A row with the model's word uses the given profile, even if ready ones have that GPU, too.
        model = _gpu(profile).name.upper().split()[0]
        if model in gpu.upper().replace("-", " ").split():
            return profile
    try:
        return profile_of(gpu, 1)
    except ScenarioError:
        raise ScenarioError([f"no profile: no ready one has a GPU '{gpu}'"]) from None


@cache
def _gpu(profile: str) -> Gpu:
    gpu = load_profile(profile).host.gpu
    if not gpu.has_laws:
        raise ScenarioError([f"{profile}: no laws of operators: they need a 'cuda' GPU with multiprocessors"])
    return gpu


@cache
def _price(operation: Operation, profile: str, is_cold: bool) -> tuple[float, float]:
    """Return the seconds of an operator by its law, and the factor by which the profile's table corrects it."""
    gpu = _gpu(profile)
    tables = [table_of(name, gpu) for name in gpu.kernel_tables]
    return seconds(operation, gpu, is_cold=is_cold), correction(tables, operation).factor
