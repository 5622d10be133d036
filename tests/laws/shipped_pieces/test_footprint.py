"""No shipped operation reads what its signature does not say: all that it does not name is poisoned."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import laws
from combinators import Map, aggregators, fold
from laws.shipped_pieces.aggregators import folded, names
from laws.shipped_pieces.arrows import operations
from tests.laws.unseen import unseen
from tests.shipped import each

OPERATIONS = operations()


def check(piece):
    assert laws.assert_lawful(piece, laws="map.footprint", examples=1).held == ("map.footprint",)


@pytest.mark.parametrize("name", OPERATIONS)
def test_shipped_operation_reads_what_its_signature_says(name):
    check(OPERATIONS[name])


@pytest.mark.parametrize("name", each(names()))
def test_shipped_fold_reads_what_its_signature_says(name):
    check(folded(name))


def test_fold_that_looks_at_other_columns_is_found():
    """Less the sum of all columns: right along rows, which are folded, and wrong along columns."""
    leaky = Map(unseen(lambda x: x - jnp.sum(x)), "row col -> row col", name="leaky") >> fold(
        aggregators.Max(), "row col -> col"
    )
    with pytest.raises(laws.LawError, match=r"LAW map.footprint FAILED .*leaky"):
        laws.assert_lawful(leaky, [jax.ShapeDtypeStruct((4, 3), jnp.float32)], laws="map.footprint", examples=1)
