"""What rows of table-batched embeddings say: bags, ids by their law, optimizers and directions."""

from __future__ import annotations

import pytest

from scenarios.seam.operations.bags import BagsBackward, BagsForward
from sim.operators.measuring import EVENTS_S, GAP_S
from twinstep.published.operators.described import NotDescribedError
from twinstep.published.operators.embeddings import describe, describe_named, zipf

ROW = {
    **{"T": "8", "E": "1000000", "D": "128", "B": "4096", "L": "10", "opt": "EXACT_ROWWISE_ADAGRAD", "w": "FP16"},
    **{"zipf": "", "weighted": "False", "nobag": "False", "unique_first_table": "40100"},
}
NAMED = {
    **{"source": "NVIDIA/recsys-examples", "op": "FBGEMM TBE forward, device", "dtype": "fp32"},
    **{"shape": "10 tables, sequence (pooling none)", "batch": "1000", "rows": "50000", "dim": "128"},
    **{"pooling_or_ids": "1,048,570 ids in all tables a batch", "unique_ids": "350280.02"},
    "notes": "optimizer adam; ids power law alpha 1.05; 100 iterations",
}


def test_a_row_is_a_look_up_and_an_update() -> None:
    forward, backward = (describe(ROW, is_backward=is_backward) for is_backward in (False, True))
    (look_up,), (update,) = forward.operations, backward.operations
    assert isinstance(look_up, BagsForward)
    assert isinstance(update, BagsBackward)
    bags = look_up.bags
    assert (bags.tables, bags.rows, bags.dim, bags.bags, bags.ids) == (8, 1000000, 128, 4096, 8 * 40960)
    assert (bags.unique, bags.weight_dtype, bags.pooled, bags.weighted) == (8 * 40100, "float16", True, False)
    assert (update.bags, update.optimizer) == (bags, "rowwise_adagrad")
    assert (forward.beside_s, backward.beside_s) == (EVENTS_S + 3 * GAP_S, EVENTS_S + 23 * GAP_S)


def test_sequences_and_weights_are_taken_from_their_columns() -> None:
    (found,) = describe(ROW | {"nobag": "True", "weighted": "True"}, is_backward=False).operations
    assert isinstance(found, BagsForward)
    assert (found.bags.pooled, found.bags.weighted) == (False, True)


def test_zipf_ids_name_few_rows_often() -> None:
    (found,) = describe(ROW | {"zipf": "1.2"}, is_backward=True).operations
    assert isinstance(found, BagsBackward)
    assert found.bags.longest > 5000
    assert 0 < found.bags.long_runs < 8 * 1000
    (one,) = describe(ROW | {"zipf": "1"}, is_backward=True).operations
    (near,) = describe(ROW | {"zipf": "1.0001"}, is_backward=True).operations
    assert isinstance(one, BagsBackward)
    assert isinstance(near, BagsBackward)
    assert one.bags.longest == pytest.approx(near.bags.longest, rel=0.01)
    assert zipf(one.bags, 1.5).longest > one.bags.longest


def test_rows_of_others_say_tables_and_ids_in_words() -> None:
    (found,) = describe_named(NAMED).operations
    assert isinstance(found, BagsForward)
    assert (found.bags.tables, found.bags.ids, found.bags.unique) == (10, 1048570, 350280)
    assert (found.bags.pooled, found.checks_bounds) == (False, False)
    (update,) = describe_named(NAMED | {"op": "FBGEMM TBE backward + optimizer, device"}).operations
    assert isinstance(update, BagsBackward)
    assert update.optimizer == "adam"
    (other,) = describe_named(NAMED | {"pooling_or_ids": "20 ids a bag", "source": "", "shape": "32 tables"}).operations
    assert isinstance(other, BagsForward)
    assert (other.bags.ids, other.bags.pooled, other.checks_bounds) == (32 * 1000 * 20, True, True)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"op": "FBGEMM TBE forward, UVM caching"}, "rows in the host's memory: no law of them"),
        ({"op": "EBC (nn.EmbeddingBag)"}, "op 'EBC (nn.EmbeddingBag)': no law of such rows"),
        ({"pooling_or_ids": "many"}, "the row does not say how many tables or ids"),
        ({"batch": ""}, "batch = '': expected a whole number from 1 on"),
        ({"pooling_or_ids": ", ids in all"}, "the row does not say how many tables or ids"),
        ({"unique_ids": "few"}, "unique_ids = 'few': expected a number from 0 on"),
    ],
)
def test_missing_cells_of_a_row_give_a_reason(cells: dict[str, str], reason: str) -> None:
    with pytest.raises(NotDescribedError) as caught:
        describe_named(NAMED | cells)
    assert str(caught.value) == reason


def test_an_exponent_of_zero_is_the_uniform_law() -> None:
    assert describe(ROW | {"zipf": "0"}, is_backward=True) == describe(ROW, is_backward=True)


def test_a_wrong_exponent_is_a_reason() -> None:
    with pytest.raises(NotDescribedError, match="zipf = 'x': expected a number from 0 on"):
        describe(ROW | {"zipf": "x"}, is_backward=False)
