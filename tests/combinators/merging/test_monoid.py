"""Monoids and products as values: what construction accepts, identities, folds, equality."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from combinators import monoids
from combinators.errors import GraphError
from combinators.merging.leafwise import Leafwise
from combinators.merging.monoid import Monoid
from combinators.merging.product import product, struct

FLOAT = jax.ShapeDtypeStruct((), jnp.float32)
INT = jax.ShapeDtypeStruct((), jnp.int32)


@pytest.mark.parametrize(
    ("combine", "native"),
    [
        (jnp.add, "sum"),
        (lax.add, "sum"),
        (np.add, "sum"),
        (jnp.maximum, "max"),
        (lax.max, "max"),
        (jnp.minimum, "min"),
        (lax.min, "min"),
        (jnp.logical_or, "or"),
        (jnp.logical_and, "and"),
        (Leafwise(jnp.add), "sum"),
        (jnp.multiply, None),
        (jnp.subtract, None),
        (functools.partial(jnp.add), None),
    ],
)
def test_native_names_the_collective_of_combine(combine, native):
    assert Monoid(0, combine).native == native


def test_combine_that_cannot_be_called_is_an_error():
    with pytest.raises(GraphError, match=r"combine is 3, expected a function of two states"):
        Monoid(0, 3)  # pyright: ignore[reportArgumentType]


def test_all_bad_arguments_are_reported_at_once():
    with pytest.raises(GraphError) as caught:
        Monoid(0, jnp.add, inverse=1, frame="max", name=2)  # pyright: ignore[reportArgumentType]
    for role in ("inverse is 1", "frame is 'max'", "name is 2"):
        assert role in str(caught.value)


def test_identity_of_arrays_is_an_error_that_names_the_leaf():
    with pytest.raises(GraphError, match=r"(?s)leaf \[1\] is .*function of the cell's type"):
        Monoid((0, np.zeros(3)), jnp.add)


def test_identity_for_casts_and_broadcasts_one_number_to_all_leaves():
    cell = {"a": jax.ShapeDtypeStruct((2, 3), jnp.bfloat16), "b": INT}
    state = Monoid(1, jnp.multiply).identity_for(cell)
    assert jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), state) == {
        "a": ((2, 3), jnp.bfloat16, False),
        "b": ((), jnp.int32, False),
    }
    np.testing.assert_array_equal(state["a"].astype(np.float32), np.ones((2, 3)))


def test_identity_for_another_tree_is_an_error():
    with pytest.raises(GraphError, match="identity does not fit the state"):
        monoids.LogSumExp.identity_for((FLOAT, FLOAT, FLOAT))


def test_identity_of_minus_infinity_for_integers_is_an_error():
    with pytest.raises(GraphError, match=r"(?s)leaf \[0\]: -inf has no place in int32"):
        monoids.LogSumExp.identity_for((INT, INT))


def test_identity_of_a_shape_that_does_not_broadcast_is_an_error():
    monoid = Monoid(lambda cell: jnp.zeros(3), jnp.add)
    with pytest.raises(GraphError, match=r"shape \(3,\) does not broadcast to \(2,\)"):
        monoid.identity_for(jax.ShapeDtypeStruct((2,), jnp.float32))


def test_fold_goes_from_the_left():
    text = Monoid(0, lambda a, b: a * 10 + b)
    assert text.fold([1, 2, 3]) == 123


def test_fold_of_nothing_is_the_identity():
    assert monoids.Prod.fold([], INT) == 1


def test_fold_of_nothing_without_a_type_is_an_error():
    with pytest.raises(GraphError, match="neither a state nor a type"):
        monoids.Sum.fold([])


@pytest.mark.parametrize("size", range(10))
def test_fold_stacked_keeps_the_order(size):
    # Composition of affine maps does not commute, so a swapped pair changes the result.
    rng = np.random.default_rng(size)
    a, b = (rng.integers(-3, 4, size).astype(np.int32) for _ in range(2))
    total = (1, 0)
    for i in range(size):
        total = (a[i] * total[0], a[i] * total[1] + b[i])
    assert jax.jit(monoids.AffineRecurrence.fold_stacked)((a, b)) == total


def test_merge_applies_a_function_of_arrays_leaf_by_leaf():
    merged = monoids.Max.merge({"a": jnp.asarray(1), "b": jnp.asarray(2)}, {"a": jnp.asarray(3), "b": jnp.asarray(1)})
    assert merged == {"a": 3, "b": 2}


def test_monoids_are_equal_by_what_they_hold():
    one, two = Monoid({"a": 0}, jnp.add), Monoid({"a": 0}, jnp.add)
    assert one == two
    assert hash(one) == hash(two)
    assert one != Monoid({"a": 0}, jnp.add, commutative=True)
    assert Monoid(0, jnp.add, idempotent=True) != Monoid(0, jnp.add)


def test_product_folds_parts_side_by_side():
    pair = monoids.Sum & monoids.Max
    states = [(jnp.asarray(float(i)), jnp.asarray(-i)) for i in range(4)]
    assert pair.fold(states) == (6.0, 0)
    assert pair.identity_for((FLOAT, INT)) == (0.0, np.iinfo(np.int32).min)
    assert pair.parts == (monoids.Sum, monoids.Max)


def test_product_declares_what_all_parts_declare():
    assert (monoids.Max & monoids.Min).idempotent
    assert not (monoids.Max & monoids.Sum).idempotent
    assert not (monoids.Sum & monoids.AffineRecurrence).commutative
    assert (monoids.Sum & monoids.Prod).inverse is None
    inverse = (monoids.Sum & monoids.Mean).inverse
    assert inverse is not None
    assert inverse((1, (2, 3))) == (-1, (-2, -3))


def test_product_is_native_where_all_parts_are_alike():
    assert (monoids.Sum & monoids.Mean).native == "sum"
    assert (monoids.Sum & monoids.Max).native is None
    assert (monoids.Sum & monoids.Moments).native is None


def test_product_of_several_and_by_name():
    three = product(monoids.Sum, monoids.Max, monoids.AffineRecurrence)
    state = (jnp.asarray(1), jnp.asarray(2), (jnp.asarray(3), jnp.asarray(4)))
    assert three.merge(state, state) == (2, 2, (9, 16))
    named = struct(total=monoids.Sum, biggest=monoids.Max)
    assert named.keys == ("biggest", "total")
    assert named.merge({"total": 1, "biggest": 5}, {"total": 2, "biggest": 4}) == {"total": 3, "biggest": 5}
    assert named.identity_for({"total": INT, "biggest": FLOAT}) == {"total": 0, "biggest": -np.inf}


def test_products_of_equal_parts_are_equal():
    assert monoids.Sum & monoids.Moments == product(monoids.Sum, monoids.Moments)
    assert hash(monoids.Sum & monoids.Moments) == hash(product(monoids.Sum, monoids.Moments))
    assert monoids.Sum & monoids.Max != monoids.Max & monoids.Sum


@pytest.mark.parametrize("parts", [(), (monoids.Sum, 3)])
def test_product_of_no_monoids_is_an_error(parts):
    with pytest.raises(GraphError, match="product: cannot be built"):
        product(*parts)
