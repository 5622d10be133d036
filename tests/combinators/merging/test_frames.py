"""The law of frames: the fold is the same through every admissible reference."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from combinators import aggregators, monoids
from combinators.errors import GraphError
from combinators.merging.frame import Frame
from combinators.merging.monoid import Monoid
from tests.simulated.sampled import computed
from tests.thoroughly import but


def _states(name):
    """States of 5 pieces, two of them empty, and the finalizer under which equal states are equal."""
    rng = np.random.default_rng(7)
    if name == "Moments":
        # Of the second order: a far reference costs higher ones digits, which the law of frames accounts for.
        lift, present = aggregators.Moments(2).lift_many, aggregators.Moments(2).present
        pieces = [jnp.asarray(np.float32(3 + rng.standard_normal(n))) for n in (4, 0, 1, 7, 0)]
        return [lift(piece) for piece in pieces], present
    if name == "LogSumExp":
        aggregator = aggregators.LogSumExp()
        pieces = [jnp.asarray(np.float32(3 * rng.standard_normal(n))) for n in (4, 0, 1, 7, 0)]
        return [aggregator.lift_many(piece) for piece in pieces], aggregator.present
    cell = (jax.ShapeDtypeStruct((), jnp.float32),) * 2 + (jax.ShapeDtypeStruct((6,), jnp.float32),)
    empty = monoids.AttentionState.identity_for(cell)
    full = [(jnp.float32(m), jnp.float32(1), jnp.asarray(np.float32(rng.standard_normal(6)))) for m in (0.5, -2.0, 4.0)]
    return [empty, *full, empty], lambda s: (monoids.attention_output(s), monoids.attention_logsumexp(s))


FRAMED = ["Moments", "LogSumExp", "AttentionState"]


def _at(name, reference):
    """A number as a reference; that of moments has a count beside it, which may be any."""
    return (jnp.float32(reference), jnp.int32(7)) if name == "Moments" else jnp.float32(reference)


def _framed(name) -> tuple[Monoid, Frame]:
    monoid = getattr(monoids, name)
    return monoid, monoid.frame


@pytest.mark.parametrize("reference", but([None, -3.0, 0.0, 2.5, 9.0], -3.0, 2.5))
@pytest.mark.parametrize("name", FRAMED)
def test_frame_fold_is_the_fold_for_every_reference(name, reference):
    monoid, frame = _framed(name)
    states, present = _states(name)
    reference = None if reference is None else _at(name, reference)
    got = present(jax.jit(frame.fold)(states, reference))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5), got, present(monoid.fold(states)))


@pytest.mark.parametrize("name", FRAMED)
def test_frame_keeps_tree_shapes_and_dtypes(name):
    _, frame = _framed(name)
    states, _ = _states(name)
    want = jax.tree.map(lambda x: (x.shape, x.dtype), states[0])
    assert jax.tree.map(lambda x: (x.shape, x.dtype), frame.fold(states)) == want


@pytest.mark.parametrize("name", FRAMED)
def test_frame_of_identities_is_the_identity(name):
    monoid, frame = _framed(name)
    empty = _states(name)[0][-1]
    jax.tree.map(np.testing.assert_array_equal, empty, monoid.identity_for(empty))
    jax.tree.map(np.testing.assert_array_equal, frame.fold([empty, empty]), empty)


@pytest.mark.parametrize("name", FRAMED)
@pytest.mark.parametrize("stopped", [True, False])
def test_frame_gradient_does_not_depend_on_the_reference(name, stopped):
    monoid, frame = _framed(name)
    states, present = _states(name)

    def loss(states, fold):
        leaves = jax.tree.leaves(present(fold(states)))
        # Each leaf with its own weight, so that errors cannot cancel.
        return sum(jnp.sum(leaf * (i + 1.5)) for i, leaf in enumerate(leaves))

    def through_frame(states):
        total = frame.summary(states[0])
        for state in states[1:]:
            total = frame.merge_summaries(total, frame.summary(state))
        reference = frame.at(total)
        return frame.fold(states, jax.lax.stop_gradient(reference) if stopped else reference)

    gradient = jax.grad(loss, allow_int=True)
    got, want = (
        computed(lambda states, fold=fold: gradient(states, fold), states) for fold in (through_frame, monoid.fold)
    )
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        if a.dtype != jax.dtypes.float0:
            assert np.all(np.isfinite(a))
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FRAMED)
@pytest.mark.parametrize("reference", [0.0, 50.0, 1e20])
def test_frame_parts_are_finite_at_the_identity(name, reference):
    _, frame = _framed(name)
    empty = _states(name)[0][-1]
    reference = _at(name, reference)

    def parts(state):
        at = frame.at(frame.summary(state))
        return jax.tree.leaves((at, frame.express(state, reference)))

    def total(state):
        return sum(jnp.sum(leaf) for leaf in parts(state))

    assert all(np.all(leaf == 0) for leaf in parts(empty))
    for leaf in jax.tree.leaves(jax.grad(total, allow_int=True)(empty)):
        assert leaf.dtype == jax.dtypes.float0 or np.all(np.isfinite(leaf))


def test_frame_of_logsumexp_agrees_with_scipy():
    states, present = _states("LogSumExp")
    frame = monoids.LogSumExp.frame
    assert frame is not None
    values = [float(present(state)) for state in states]
    np.testing.assert_allclose(present(frame.fold(states)), scipy.special.logsumexp(values), rtol=1e-6)


def test_frame_of_attention_states_is_mapped_by_vmap():
    frame = monoids.AttentionState.frame
    assert frame is not None
    states, present = _states("AttentionState")
    stacked = [jax.tree.map(lambda *x: jnp.stack(x), s, t) for s, t in zip(states, states[::-1], strict=True)]
    mapped = jax.jit(jax.vmap(lambda s: present(frame.fold(s))))(stacked)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[0], b, rtol=1e-6), mapped, present(frame.fold(states)))


def test_frame_of_moments_keeps_an_infinite_mean():
    frame = monoids.Moments.frame
    assert frame is not None
    states = [(jnp.asarray(1), jnp.float32(np.inf), jnp.float32(0)), (jnp.asarray(1), jnp.float32(2), jnp.float32(0))]
    assert frame.fold(states)[1] == np.inf


def test_product_has_a_frame_where_the_parts_merge_alike():
    pair = monoids.LogSumExp & monoids.AttentionState
    assert pair.frame is not None
    assert pair.frame.merge == "max"
    states = list(zip(_states("LogSumExp")[0], _states("AttentionState")[0], strict=True))
    got, want = pair.frame.fold(states), pair.fold(states)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), got, want)
    assert (monoids.LogSumExp & monoids.Moments).frame is None
    assert (monoids.LogSumExp & monoids.Sum).frame is None


def test_frame_with_another_merge_is_an_error():
    with pytest.raises(GraphError, match=r"(?s)expected  'max' or 'sum'.*got       'min'"):
        Frame(abs, "min", abs, abs, abs)  # pyright: ignore[reportArgumentType]


def test_frame_part_that_cannot_be_called_is_an_error():
    with pytest.raises(GraphError, match=r"(?s)at is 1.*restore is 2"):
        Frame(abs, "max", 1, abs, 2)  # pyright: ignore[reportArgumentType]


def test_frame_fold_of_nothing_is_an_error():
    frame = monoids.LogSumExp.frame
    assert frame is not None
    with pytest.raises(GraphError, match="there is no state"):
        frame.fold([])
