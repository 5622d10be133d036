"""Which elements a piece takes: found from how it is made, and asked for where nothing tells."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import laws
import tapestry_jax as tp
from laws.pieces import Asked
from laws.subjects.elements import elements_of


@pytest.mark.parametrize(
    ("piece", "types"),
    [
        (tp.aggregators.Mean().masked(), "f32[], bool[]"),
        ((tp.aggregators.Mean() & tp.aggregators.TopK(2)).by_key(None, 3), "f32[], i32[], i32[]"),
        (tp.aggregators.Sum().segmented(), "f32[], bool[]"),
        (tp.aggregators.Sum().by_run(), "f32[], i32[]"),
        (tp.aggregators.Max().by_key(lambda x: x % 2, 2), "i32[]"),
        (tp.aggregators.Sum().masked().by_key(None, 2), "f32[], bool[], i32[]"),
        (tp.aggregators.Mean() & tp.aggregators.ArgMax(), "f32[], i32[]"),
    ],
)
def test_types_of_further_inputs_are_derived(piece, types):
    assert {subject.types for subject in Asked.of(piece).subjects()} == {types}


def test_masked_and_segmented_pieces_need_no_types():
    piece = tp.aggregators.Sum().masked()
    assert laws.assert_lawful(piece, laws=["chunks", "semantic"], examples=3).held


def test_types_that_cannot_be_derived_are_asked_for():
    pairs = tp.Aggregator(lambda x: x[0] + x[1], tp.monoids.Sum, lambda s: s, name="Pairs")
    text = r"(?s)which elements `Pairs` takes.*Pass types=.*such as jax.ShapeDtypeStruct\(\(3,\)"
    with pytest.raises(laws.LawError, match=text):
        laws.examine(pairs, examples=2)


def test_single_numbers_are_tried_floats_first():
    def picked(index, rows):
        return rows + jnp.arange(3)[index]

    elements, special = elements_of("picked", picked)
    assert ([each.dtype.name for each in elements], special) == (["int32", "float32"], ())
