from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.analysis.quantiles import weighted_quantiles
from tests.reports.recordings import PATIENT

VALUES = st.lists(st.tuples(st.integers(0, 3), st.integers(-50, 50), st.integers(1, 5)), max_size=30)


@PATIENT
@given(VALUES, st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
def test_they_are_those_of_each_value_written_down_as_often_as_it_weighs(rows, share):
    groups, values, weights = (np.array([row[at] for row in rows], np.int64) for at in range(3))
    (found,) = weighted_quantiles(groups, values.astype(float), weights, 4, [share])
    for group in range(4):
        own = groups == group
        expected = np.quantile(np.repeat(values[own], weights[own]), share) if own.any() else np.nan
        assert found[group] == pytest.approx(expected, nan_ok=True)


def test_several_shares_come_in_their_order():
    of_one = np.zeros(11, np.int64), np.arange(11.0), np.ones(11, np.int64)
    assert [one.tolist() for one in weighted_quantiles(*of_one, 1, [0.9, 0.1])] == [[9.0], [1.0]]
