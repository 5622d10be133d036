"""Several reductions of a long input, a piece at a time, against NumPy, SciPy and the same in one piece."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

import tapestry_jax as tp
from combinators import aggregators
from combinators.merging import pieces
from combinators.numerics import reductions
from combinators.numerics.reductions import ForkMany
from tests.simulated.sampled import in_numpy
from tests.thoroughly import but

PIECE = 1 << 15
RNG = np.random.default_rng(11)
FIVE = aggregators.Moments() & aggregators.LogSumExp() & aggregators.MinMax() & aggregators.Mean() & aggregators.Sum()
SHAPES = {
    "two pieces": (2 * PIECE,),
    "a rest": (3 * PIECE + 77,),
    "nearly five": (5 * PIECE - 1,),
    "cells": (40_000, 3),
}


@pytest.fixture(autouse=True)
def _pieces(monkeypatch):
    monkeypatch.setattr(reductions, "PIECE", PIECE)
    monkeypatch.setattr(pieces, "PIECE", PIECE)
    monkeypatch.setattr("combinators.aggregators.logsumexp.PIECE", PIECE)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32) + np.float32(0.5)


def loops(function, *args, platform="cpu"):
    """How many loops a function is lowered to."""
    return jax.jit(function).trace(*args).lower(lowering_platforms=(platform,)).as_text().count("stablehlo.while")


# A rest of any size is one.
@pytest.mark.parametrize("name", but(SHAPES, "nearly five"))
def test_pieces_give_what_numpy_gives(name):
    x = normal(*SHAPES[name])
    assert loops(FIVE.lift_many, x) == 1
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=3e-5, atol=3e-5), in_numpy(FIVE.run)(x), FIVE.reference(x)
    )


@pytest.mark.parametrize("dtype", but([np.int32, np.int8, jnp.bfloat16, bool], np.int32, bool))
def test_pieces_of_other_dtypes(dtype):
    x = RNG.integers(0, 2, 2 * PIECE + 5).astype(dtype)
    three = aggregators.Sum() & aggregators.MinMax() & aggregators.Mean()
    got, want = in_numpy(lambda x: (three.lift_many(x), apart(three.lift_many)(x)))(x)
    jax.tree.map(np.testing.assert_array_equal, got, want)
    assert jax.tree.map(lambda leaf: leaf.dtype, got) == jax.tree.map(lambda leaf: leaf.dtype, want)


def apart(many):
    """The same as several functions that share nothing."""
    return lambda x: tuple(apart(f)(x) if isinstance(f, ForkMany) else f(x) for f in many.functions)


def test_what_is_one_reduction_stays_in_one_piece():
    x = normal(4 * PIECE)
    assert loops((aggregators.Sum() & aggregators.Mean()).run, x) == loops(aggregators.Max().run, x) == 0
    short = x[: 2 * PIECE - 1]
    assert loops(FIVE.run, short) == 0 and loops(FIVE.run, x) == 1
    assert loops(FIVE.run, x, platform="cuda") == loops(FIVE.run, x, platform="tpu") == 0


def test_pieces_hold_less_memory():
    x = normal(64 * PIECE)

    def temporaries(function):
        return jax.jit(function).lower(x).compile().memory_analysis().temp_size_in_bytes

    moments = aggregators.Moments().lift_many
    assert temporaries(moments) < temporaries(lambda x: moments(x, np.ones(x.shape, bool))) / 8


@pytest.mark.parametrize("at", [3, PIECE + 100, 4 * PIECE - 1])
def test_nan_wins_in_every_piece(at):
    x = normal(4 * PIECE + 9)
    x[at] = np.nan
    (ends, total), most = in_numpy((aggregators.MinMax() & aggregators.Sum() & aggregators.Max()).run)(x)
    np.testing.assert_array_equal([ends["min"], ends["max"], total, most], [np.nan] * 4)


def test_pieces_have_the_gradient_of_one_piece(monkeypatch):
    x, along = normal(2 * PIECE + 3), normal(2 * PIECE + 3)

    def run(x):
        ((moments, lse), ends), total = (
            aggregators.Moments() & aggregators.LogSumExp() & aggregators.MinMax() & aggregators.Sum()
        ).run(x)
        return moments["variance"] + moments["kurtosis"] + lse + ends["max"] * ends["min"] + total

    def derivatives(x, along):
        return jax.value_and_grad(run)(x), jax.jvp(run, (x,), (along,))

    got = in_numpy(lambda *xs: derivatives(*xs))(x, along)
    monkeypatch.setattr(reductions, "PIECE", 1 << 40)
    want = in_numpy(lambda *xs: derivatives(*xs))(x, along)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), got, want)


def test_pieces_map_over_a_batch():
    x = normal(2, 3 * PIECE)
    got = in_numpy(jax.vmap(FIVE.run))(x)
    want = jax.tree.map(lambda *leaves: np.stack(leaves), *map(FIVE.reference, x))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=3e-5, atol=3e-5), got, want)


def test_shards_are_read_in_pieces(mesh2x4):
    x = normal(8 * 2 * PIECE + 3)
    graph = tp.trace(tp.fold(FIVE, "row -> "), tp.TensorType({"row": x.size}, jnp.float32))
    compiled = tp.plan(graph, mesh2x4, {"row": ("data", "model")}).compile()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=3e-5, atol=3e-5), compiled(x), FIVE.reference(x))


LONG = 3 * PIECE + 5
LABELS, GUESSES = RNG.integers(0, 4, (2, LONG)).astype(np.int32)
CHANCES, WEIGHTS = RNG.random((2, LONG)).astype(np.float32)
COUNTING = {
    "Histogram": (aggregators.Histogram(16, (-2.0, 2.0)), (normal(LONG),)),
    "weighted Histogram": (aggregators.Histogram(16, (-2.0, 2.0)), (normal(LONG), WEIGHTS)),
    "ConfusionMatrix": (aggregators.ConfusionMatrix(4), (LABELS, GUESSES)),
    "Recall": (aggregators.Recall(4), (LABELS, GUESSES, WEIGHTS)),
    "AUC": (aggregators.AUC(64), (LABELS % 2, CHANCES)),
    "CalibrationError": (aggregators.CalibrationError(8), (CHANCES, LABELS % 2)),
    "CountMin": (aggregators.CountMin(64, 2), (GUESSES,)),
    "Bloom": (aggregators.Bloom(256, 2), (GUESSES,)),
    "DDSketch": (aggregators.DDSketch(), (normal(LONG),)),
    "HyperLogLog": (aggregators.HyperLogLog(8), (np.arange(LONG, dtype=np.int32),)),
}


@pytest.mark.parametrize("name", but(COUNTING, "Histogram", "ConfusionMatrix", "Recall", "Bloom", "DDSketch"))
def test_what_is_counted_in_pieces_is_what_is_counted_at_once(name):
    aggregator, inputs = COUNTING[name]
    many = aggregator.lift_many
    assert loops(many, *inputs) == 1 + loops(many.many, *inputs)
    got, want = in_numpy(many)(*inputs), in_numpy(many.many)(*inputs)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-6), got, want)


def test_counts_in_pieces_have_the_gradient_of_their_weights():
    x, along = normal(LONG), normal(19)
    gradient = in_numpy(jax.grad(lambda w: along @ aggregators.Histogram(16, (-2.0, 2.0)).lift_many(x, w)))(WEIGHTS)
    places = np.searchsorted(np.linspace(-2, 2, 17).astype(np.float32), x, side="right")
    np.testing.assert_allclose(gradient, along[places], rtol=1e-6)


@pytest.mark.parametrize("entry", [0.0, np.inf, -np.inf, np.nan])
def test_logsumexp_is_read_from_memory_once(entry):
    x, run = 9 * normal(LONG), aggregators.LogSumExp().run
    x[PIECE + 7] = entry
    assert loops(run, x) == 1
    wide = x.astype(np.float64)
    both = in_numpy(jax.value_and_grad(run))
    value, slopes = both(x)
    np.testing.assert_allclose(in_numpy(run)(x), scipy.special.logsumexp(wide), rtol=1e-6)
    if np.isfinite(entry):
        np.testing.assert_allclose(value, scipy.special.logsumexp(wide), rtol=1e-6)
        np.testing.assert_allclose(slopes, scipy.special.softmax(wide), rtol=1e-4, atol=1e-9)
    lowest, slopes = both(np.full(LONG, -np.inf, np.float32))
    assert lowest == -np.inf and np.all(slopes == 0)
