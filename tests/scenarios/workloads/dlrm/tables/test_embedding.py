"""Rows that torch's operators and fbgemm train, against those of the compiled code, whose rounding is torch's.

fbgemm's build for CPUs has no optimizers with moments.
"""

from __future__ import annotations

import dataclasses
from itertools import product
from types import SimpleNamespace
from typing import Any, Literal, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from scenarios.compute_kernel import SCENARIO_KERNELS, ComputeKernel
from scenarios.config.scenario import Ids, Optimizer, OptimizerKind
from scenarios.sparse.keyed_jagged import KeyedJagged
from scenarios.workloads.dlrm.tables import embedding, embedding_cpu, embedding_fbgemm
from scenarios.workloads.dlrm.tables.caching import CachedPiece, RowCache
from scenarios.workloads.dlrm.tables.embedding import Rows
from scenarios.workloads.dlrm.tables.embedding_fbgemm import FbgemmRows
from scenarios.workloads.dlrm.tables.embedding_torch import Named, Places, RankRows
from scenarios.workloads.dlrm.tables.flat import FlatRows
from scenarios.workloads.dlrm.tables.prices import PricedPiece, RowPrices
from tests.lanes import examples
from tests.scenarios.workloads.dlrm.tables.test_caching import table

Library = Literal["torch", "fbgemm"]
of_fbgemm = pytest.mark.usefixtures("fbgemm")
CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
# Of a sum of some ten numbers below 1, rounded to float32 in whatever order; to halves, once for each step.
CLOSE = {torch.float32: 1e-6, torch.float16: 2e-3, torch.float64: 1e-6, torch.bfloat16: 0.02}
# Of rows, and of what is looked up; each further pair takes seconds to compile.
OF_TORCH = [
    *((each, each) for each in CLOSE),
    (torch.float32, torch.bfloat16),
]
OPTIMIZERS = (
    Optimizer(kind="sgd", learning_rate=0.5),
    Optimizer(kind="adagrad", learning_rate=0.5, eps=0.1),
    Optimizer(kind="adagrad", learning_rate=0.5, state="element", eps=0.1),
)
WITH_MOMENTS = tuple(Optimizer(kind=kind) for kind in get_args(OptimizerKind) if kind not in ("sgd", "adagrad"))
Bag = Literal["pooled", "weighted", "sequence"]


@pytest.fixture(scope="module", params=["torch", "fbgemm"])
def library(request: pytest.FixtureRequest) -> Any:
    if request.param == "fbgemm":
        request.getfixturevalue("fbgemm")
    return request.param


class Case:
    """Prices of some pieces and two batches that name their rows, with gradients."""

    def __init__(
        self,
        pieces: list[PricedPiece],
        *,
        optimizer: Optimizer = OPTIMIZERS[0],
        bag: Bag = "pooled",
        dtype: torch.dtype = torch.float32,
        travels_as: torch.dtype = torch.float32,
        ids_dtype: torch.dtype = torch.int64,
        seed: int = 0,
    ) -> None:
        self.prices = RowPrices(pieces, dtype, optimizer=optimizer, unpooled=bag == "sequence", travels_as=travels_as)
        self.tolerance = max(CLOSE.get(each, 1.0) for each in (dtype, travels_as))
        self._generator, self._bag, self._ids_dtype = torch.Generator().manual_seed(seed), bag, ids_dtype
        self.batches = [self._draw() for _ in range(2)]
        self.gradients = [
            torch.randn(self.prices.found_shape(each), generator=self._generator).mul_(0.1).to(travels_as)
            for each in self.batches
        ]

    def rows(self, library: Literal["numba", "torch", "fbgemm"], *, is_copy: bool = False) -> Rows:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(embedding, "library_of", lambda device: library)
            return Rows(self.prices, 3, CPU, is_copy=is_copy)

    def _draw(self, samples: int = 5) -> KeyedJagged:
        generator, ids, lengths = self._generator, [], []
        for piece in self.prices.pieces:
            for _ in range(piece.keys):
                most = 4 if piece.rows else 1
                lengths.append(torch.randint(most, (samples,), generator=generator))
                ids.append(torch.randint(max(1, len(piece.rows)), (int(lengths[-1].sum()),), generator=generator))
        values = torch.cat(ids).to(self._ids_dtype)
        weights = torch.rand(len(values), generator=generator) if self._bag == "weighted" else None
        keys = tuple(f"key {number}" for number in range(len(ids)))
        return KeyedJagged(keys=keys, values=values, lengths=torch.cat(lengths), weights=weights, stride=samples)


@st.composite
def cases(draw: st.DrawFn, library: Library) -> Case:
    """Cases that a library takes: fbgemm reads rows 4 elements at a time, and has fewer dtypes."""
    unit, dtypes = (1, OF_TORCH) if library == "torch" else (4, list(product([torch.float32, torch.float16], repeat=2)))
    dtype, travels_as = draw(st.sampled_from(dtypes))
    pieces = [
        PricedPiece(
            table=number,
            rows=range(start := draw(st.integers(0, 3)), start + draw(st.integers(0, 6))),
            columns=range(unit * draw(st.integers(1, 9 // unit + 1))),
            keys=draw(st.integers(1, 3)),
        )
        for number in range(draw(st.integers(1, 3)))
    ]
    return Case(
        pieces,
        optimizer=draw(st.sampled_from(OPTIMIZERS)),
        bag=draw(st.sampled_from(get_args(Bag))),
        dtype=dtype,
        travels_as=travels_as,
        ids_dtype=torch.int64 if library == "torch" else draw(st.sampled_from([torch.int32, torch.int64])),
        seed=draw(st.integers(0, 99)),
    )


def close(found: Tensor, expected: Tensor, tolerance: float) -> None:
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def close_rows(ours: Rows, theirs: Rows, tolerance: float = CLOSE[torch.float32]) -> None:
    for found, expected in zip([*theirs.weights, *theirs.states], [*ours.weights, *ours.states], strict=True):
        close(found.flatten(), expected.flatten(), tolerance)


@examples(40)
@given(data=st.data())
def test_libraries_train_rows_alike(data: st.DataObject, library: Library) -> None:
    case = data.draw(cases(library))
    ours, theirs = case.rows("numba"), case.rows(library)
    assert isinstance(theirs._held, FbgemmRows) == (library == "fbgemm")
    close_rows(ours, theirs)
    for features, gradient in zip(case.batches, case.gradients, strict=True):
        close(theirs.look_up(features), ours.look_up(features), case.tolerance)
        for each in (ours, theirs):
            each.update(features, gradient)
        close_rows(ours, theirs, case.tolerance)


@of_fbgemm
@pytest.mark.parametrize("bag", get_args(Bag))
def test_a_batch_may_be_looked_up_before_the_one_before_is_updated(bag: Bag) -> None:
    case = Case([PricedPiece(table=0, rows=range(4), columns=range(8))], optimizer=OPTIMIZERS[1], bag=bag)
    rows = [case.rows("numba"), case.rows("fbgemm")]
    for each in rows:
        found = [each.look_up(features) for features in case.batches]
        before = [one.clone() for one in found]
        for features, gradient in zip(case.batches, case.gradients, strict=True):
            each.update(features, gradient)
        assert all(map(torch.equal, found, before)), "what was looked up stays as it was"
    close_rows(rows[0], rows[1])
    assert not rows[1]._held._left, "nothing is kept of what has been updated"  # type: ignore[union-attr]


@of_fbgemm
def test_rows_that_nobody_looked_up_are_updated_too() -> None:
    case = Case([PricedPiece(table=0, rows=range(4), columns=range(8))])
    rows = [case.rows("numba"), case.rows("fbgemm")]
    for each in rows:
        each.update(case.batches[0], case.gradients[0])
    close_rows(rows[0], rows[1])


@pytest.mark.filterwarnings("ignore:fbgemm..dense_embedding_codegen_lookup_function")
@examples(50)
@given(data=st.data(), optimizer=st.sampled_from([*OPTIMIZERS, *WITH_MOMENTS]))
def test_libraries_sum_gradients_of_copies_alike(data: st.DataObject, optimizer: Optimizer, library: Library) -> None:
    case = data.draw(cases(library))
    case.prices.optimizer = optimizer
    ours, theirs = case.rows("numba", is_copy=True), case.rows(library, is_copy=True)
    assert isinstance(theirs._held, FlatRows)
    for features, gradient in zip(case.batches, case.gradients, strict=True):
        close(theirs.look_up(features), ours.look_up(features), case.tolerance)
        summed, expected = (each.dense_gradients(features, gradient) for each in (ours, theirs))
        close(summed, expected, case.tolerance)
        for each in (ours, theirs):
            each.update_dense(summed)
        close_rows(ours, theirs, case.tolerance)


@of_fbgemm
def test_weights_and_states_are_fbgemms_own() -> None:
    """A checkpoint that writes to them, or an average of replicas, is what is trained on."""
    case = Case([PricedPiece(table=0, rows=range(4), columns=range(8))], optimizer=OPTIMIZERS[1])
    rows = case.rows("fbgemm")
    for tensor in (*rows.weights, *rows.states):
        tensor.fill_(2.0)
    found, lengths = rows.look_up(case.batches[0]), case.batches[0].lengths
    assert torch.equal(found, 2.0 * lengths[:, None].expand_as(found))


@of_fbgemm
def test_an_id_that_is_no_row_is_refused() -> None:
    rows = Case([PricedPiece(table=0, rows=range(4), columns=range(8))]).rows("fbgemm")
    features = KeyedJagged(keys=("a",), values=torch.tensor([4]), lengths=torch.tensor([1]), stride=1)
    with pytest.raises(RuntimeError, match="idx"):
        rows.look_up(features)


@of_fbgemm
@pytest.mark.parametrize(
    ("dim", "dtype", "is_taken"),
    [(8, torch.float32, True), (6, torch.float32, False), (1028, torch.float32, False), (8, torch.bfloat16, False)],
)
def test_rows_that_fbgemm_does_not_take_are_looked_up_by_torch(dim: int, dtype: torch.dtype, is_taken: bool) -> None:
    case = Case([PricedPiece(table=0, rows=range(4), columns=range(dim))], dtype=dtype, travels_as=dtype)
    rows = case.rows("fbgemm")
    assert isinstance(rows._held, FbgemmRows if is_taken else FlatRows)
    assert rows.look_up(case.batches[0]).shape == (5, dim)


@of_fbgemm
@pytest.mark.parametrize("optimizer", [*OPTIMIZERS, *WITH_MOMENTS], ids=str)
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_lamb_is_not_fbgemms_where_it_divides_by_0(optimizer: Optimizer, weight_decay: float) -> None:
    """Without weight decay a row whose first gradient is 0 has no change, by whose length fbgemm divides."""
    own = dataclasses.replace(optimizer, weight_decay=weight_decay)
    prices = Case([PricedPiece(table=0, rows=range(4), columns=range(8))], optimizer=own).prices
    divides_by_0 = own.kind.endswith("lamb") and not weight_decay
    assert embedding_fbgemm.trains(prices, CUDA) is not divides_by_0
    assert embedding_fbgemm.trains(prices, CPU) is not own.has_moments


class Made:
    """A stand-in for fbgemm's module that keeps what it was made of."""

    def __init__(self, specs: Any, **options: Any) -> None:
        self.specs, self.options = specs, options
        self.fetched: list[tuple[list[int], list[int], Any]] = []

    def prefetch(self, ids: Tensor, offsets: Tensor, forward_stream: Any) -> None:
        self.fetched.append((ids.tolist(), offsets.tolist(), forward_stream))


@pytest.fixture
def on_gpu(fbgemm: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """fbgemm's names, without its tables: there is no GPU on which they would lie."""
    names = SimpleNamespace(**vars(embedding_fbgemm._fbgemm()))
    names.SplitTableBatchedEmbeddingBagsCodegen = Made
    monkeypatch.setattr(embedding_fbgemm, "_fbgemm", lambda: names)
    return names


def made_on_gpu(pieces: list[PricedPiece], *, looks_ahead: bool = False, **options: Any) -> Made:
    prices = RowPrices(pieces, torch.float32, **{"optimizer": OPTIMIZERS[0], **options})
    keys = [number for number, piece in enumerate(pieces) for _ in range(piece.keys)]
    made = embedding_fbgemm._module(pieces, keys, prices, CUDA, looks_ahead=looks_ahead)
    assert isinstance(made, Made)
    return made


@pytest.mark.parametrize(
    ("optimizer", "name"),
    [
        (Optimizer(kind="sgd"), "EXACT_SGD"),
        (Optimizer(kind="adagrad"), "EXACT_ROWWISE_ADAGRAD"),
        (Optimizer(kind="adagrad", state="element"), "EXACT_ADAGRAD"),
        *((each, each.kind.upper()) for each in WITH_MOMENTS),
    ],
    ids=str,
)
def test_every_optimizer_has_its_name_and_numbers_on_a_gpu(on_gpu: Any, optimizer: Optimizer, name: str) -> None:
    options = made_on_gpu([PricedPiece(table=0, rows=range(4), columns=range(8))], optimizer=optimizer).options
    assert options["optimizer"].name == name
    numbers = {key: options[key] for key in ("learning_rate", "eps", "beta1", "beta2", "weight_decay")}
    assert numbers == {
        "learning_rate": optimizer.learning_rate,
        "eps": optimizer.epsilon,
        "beta1": optimizer.beta1,
        "beta2": optimizer.beta2,
        "weight_decay": optimizer.weight_decay,
    }
    assert options["stochastic_rounding"] is False


def test_rows_lie_where_their_kernels_say(on_gpu: Any) -> None:
    kernels = SCENARIO_KERNELS
    pieces = [
        PricedPiece(table=number, rows=range(10), columns=range(8), kernel=kernel, keys=1 + number)
        for number, kernel in enumerate(kernels)
    ]
    made = made_on_gpu(pieces)
    assert [spec[2].name for spec in made.specs] == ["DEVICE", "MANAGED", "MANAGED_CACHING"]
    assert made.options["feature_table_map"] == [0, 1, 1, 2, 2, 2]
    assert not made.options["prefetch_pipeline"]


@pytest.mark.parametrize("looks_ahead", [False, True])
def test_a_cache_has_room_for_the_scenarios_share(on_gpu: Any, looks_ahead: bool) -> None:
    """All cached tables of one module share the cache."""
    shares, sizes = (0.1, 0.3), (100, 300)
    pieces = [
        PricedPiece(table=number, rows=range(rows), columns=range(8), kernel=ComputeKernel.FUSED_UVM_CACHING)
        for number, rows in enumerate(sizes)
    ]
    cached = [
        CachedPiece(table=table(Ids(), 1), rows=piece.rows, row_bytes=32, load_factor=share)
        for piece, share in zip(pieces, shares, strict=True)
    ]
    options = made_on_gpu(pieces, cache=RowCache(cached, 8), looks_ahead=looks_ahead).options
    assert options["cache_load_factor"] == pytest.approx((10 + 90) / 400)
    assert options["prefetch_pipeline"] is looks_ahead


class Stream:
    device = CUDA


def test_a_cache_is_filled_on_the_stream_that_asks_for_it(on_gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the main stream fbgemm must know that one, whose look-up reads what was fetched."""
    main, beside = Stream(), Stream()
    streams = iter([main, main, beside])
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: next(streams))
    piece = PricedPiece(table=0, rows=range(10), columns=range(8), kernel=ComputeKernel.FUSED_UVM_CACHING)
    cached = CachedPiece(table=table(Ids(), 1), rows=piece.rows, row_bytes=32, load_factor=0.5)
    prices = RowPrices([piece], torch.float32, optimizer=OPTIMIZERS[0], cache=RowCache([cached], 8))
    rows = FbgemmRows(prices, CUDA, looks_ahead=True)
    named = Named(torch.tensor([3, 1, 2]), torch.tensor([2, 1]))
    rows.fill(named)
    rows.fill(named)
    (module,) = rows._modules
    assert module.fetched == [([3, 1, 2], [0, 2, 3], None), ([3, 1, 2], [0, 2, 3], main)]


# The compiled code


@given(st.lists(st.floats(width=32), min_size=1, max_size=50), st.sampled_from([torch.bfloat16, torch.float16]))
def test_halves_are_rounded_as_torch_does(values: list[float], dtype: torch.dtype) -> None:
    """A row of zeros to which the numbers are added, and stored."""
    given_values = torch.tensor(values, dtype=torch.float32)
    stored = torch.zeros(len(values), dtype=dtype)
    rows = RankRows(stored, Places.of([1], [len(values)]), torch.zeros(0))
    embedding_cpu.add(rows, Named(torch.tensor([0]), torch.tensor([1])), given_values.view(1, -1), 1.0)
    torch.testing.assert_close(stored, given_values.to(dtype), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_half_is_kept_as_it_is(dtype: torch.dtype) -> None:
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(dtype)
    rows = RankRows(every, Places.of([1], [len(every)]), torch.zeros(0))
    found = embedding_cpu.look_up(rows, Named(torch.tensor([0]), torch.tensor([1])), 1, every.dtype)
    torch.testing.assert_close(found[0], every, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("bad", [3, -1, 1 << 40])
def test_compiled_code_names_an_id_that_is_no_row(bad: int) -> None:
    rows = RankRows(torch.zeros(24), Places.of([9, 3], [2, 2]), torch.zeros(12))
    named, gradient = Named(torch.tensor([8, 2, bad]), torch.tensor([1, 0, 1, 1])), torch.zeros(2, 4)
    calls = (
        lambda: embedding_cpu.look_up(rows, named, 2, torch.float32),
        lambda: embedding_cpu.add(rows, named, gradient, 1.0),
        lambda: embedding_cpu.adagrad(rows, named, gradient, 1.0),
    )
    for call in calls:
        with pytest.raises(IndexError, match=rf"ids\[2\] = {bad}: expected a row of its table"):
            call()
