"""What counts the rows of a batch, and so the shares of batches of several sizes."""

from __future__ import annotations

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.nnx.training.metrics import NOTHING, Metrics
from tapestry_jax.nnx.training.rows import Rows


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["batch", "batch"], ("batch", 0)),
        (["classes", "batch", "batch"], ("batch", 1)),
        (["classes", "batch"], ("batch", 1)),
        (["rows", "classes"], ("rows", 0)),
        ([None, "rows"], ("rows", 1)),
    ],
)
def test_rows_are_of_the_dimension_with_which_most_arrays_begin(names, expected):
    types = [tp.TensorType({} if name is None else {name: 4 + at, "k": 2}) for at, name in enumerate(names)]
    found = Rows.of(types)
    assert (found.name, found.at) == expected
    assert found.count([np.zeros((7 + at, 2)) for at in range(len(names))]) == 7 + expected[1]


def test_a_batch_without_arrays_is_one_row():
    assert Rows.of([tp.TensorType({})]).count([np.zeros(())]) == 1


def test_a_batch_of_no_row_counts_nothing():
    some, none = Metrics.of({"loss": 2.0}, 3), Metrics.of({"loss": np.nan}, 0)
    assert (none + some + none + NOTHING).read() == {"loss": 2.0}
    assert np.isnan(none.read()["loss"])
