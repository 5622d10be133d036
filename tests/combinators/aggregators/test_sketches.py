"""Sketches against exact counts: their stated errors hold on fixed data, and their hash is the published one."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import scipy.stats

from combinators import aggregators
from combinators.errors import GraphError
from combinators.numerics.hashing import hash32, reference_hash32


@pytest.mark.parametrize(
    ("word", "seed", "hashed"),
    [
        # Vectors of four bytes for MurmurHash3_x86_32, as its implementations publish them.
        (0x00000000, 0, 0x2362F9DE),
        (0x87654321, 0, 0xF55B516B),
        (0x87654321, 0x5082EDEE, 0x2362F9DE),
        (0xFFFFFFFF, 0, 0x76293B50),
    ],
)
def test_hash_is_murmur3(word, seed, hashed):
    assert hash32(np.uint32(word), seed) == reference_hash32(np.uint32(word), seed) == hashed


def test_hash_of_equal_values_is_equal_in_every_dtype():
    whole = np.array([-7, 0, 1, 100])
    integers = [hash32(whole.astype(dtype), 3) for dtype in (np.int8, np.int16, np.int32)]
    floats = [hash32(whole.astype(dtype), 3) for dtype in (np.float16, ml_dtypes.bfloat16, np.float32)]
    for hashes in (integers, floats):
        for other in hashes[1:]:
            np.testing.assert_array_equal(hashes[0], other)
    assert hash32(np.float32(-0.0)) == hash32(np.float32(0.0))
    assert hash32(np.float32(np.nan)) == hash32(-np.float32(np.nan))
    with pytest.raises(GraphError, match=r"(?s)no hash of such elements.*got       complex64"):
        hash32(np.complex64(1))


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_hash_of_wide_elements_uses_all_bits(dtype):
    with jax.enable_x64(True):
        x = np.array([1, 1 + 2**40, -3], dtype)
        np.testing.assert_array_equal(hash32(x, 5), reference_hash32(x, 5))
        assert len(set(np.asarray(hash32(x)).tolist())) == 3


def test_hash_is_uniform():
    bins = np.bincount(np.asarray(hash32(np.arange(20_000)) >> 24), minlength=256)
    assert scipy.stats.chisquare(bins).pvalue > 1e-3
    assert scipy.stats.chisquare(np.bincount(np.arange(20_000) >> 8, minlength=256)).pvalue < 1e-9  # without the hash


@functools.cache
def _estimator(precision):
    sketch = aggregators.HyperLogLog(precision)
    return jax.jit(jax.vmap(sketch.run))


@pytest.mark.parametrize("distinct", [10, 300, 4000])
def test_hyperloglog_has_its_standard_error(distinct):
    # Twenty sets, each element four times in a fresh order: repetition and order change nothing.
    rng = np.random.default_rng(distinct)
    sets = np.stack([rng.permutation(np.repeat(rng.integers(0, 2**31, 4000)[:distinct], 4)) for _ in range(20)])
    padded = np.concatenate([sets, np.repeat(sets[:, :1], 16_000 - sets.shape[1], 1)], 1).astype(np.int32)
    exact = np.array([len(np.unique(row)) for row in sets])
    errors = np.asarray(_estimator(8)(padded)) / exact - 1
    stated = 1.04 / np.sqrt(2**8)
    assert np.sqrt(np.mean(errors**2)) < 1.5 * stated
    assert abs(np.mean(errors)) < 3 * stated / np.sqrt(20)  # unbiased


def test_hyperloglog_of_nothing_is_zero():
    assert jax.jit(aggregators.HyperLogLog(5).run)(np.zeros(0, np.float32)) == 0


def test_count_min_never_counts_too_few_and_seldom_too_many():
    rng = np.random.default_rng(0)
    words = rng.zipf(1.3, 20_000).clip(max=5000).astype(np.int32)
    exact = np.bincount(words, minlength=5001)
    width, depth = 256, 4
    table = jax.jit(aggregators.CountMin(width, depth).run)(words)
    estimate = aggregators.count_min_estimate(table, np.arange(5001))
    assert np.all(estimate >= exact)
    assert np.mean(estimate > exact + np.e * len(words) / width) <= np.exp(-depth)
    assert not np.array_equal(estimate, exact)  # a table of 1024 cells cannot be exact for 5000 words


def test_count_min_takes_weights():
    sketch = aggregators.CountMin(64, 3)
    words, weights = np.array([5, 9, 5], np.int32), np.array([2, 10, 30], np.int32)
    table = jax.jit(sketch.run)(words, weights)
    np.testing.assert_array_equal(table, sketch.reference(words, weights))
    np.testing.assert_array_equal(aggregators.count_min_estimate(table, np.array([5, 9, 7])), [32, 10, 0])
    np.testing.assert_array_equal(sketch.lift(words[0], weights[0]), sketch.reference(words[:1], weights[:1]))


def test_bloom_filter_has_no_false_no_and_few_false_yes():
    bits, hashes = 4096, 4
    inside, outside = np.arange(500, dtype=np.int32) * 3, np.arange(20_000, dtype=np.int32) + 10_000
    table = jax.jit(aggregators.Bloom(bits, hashes).run)(inside)
    ask = jax.jit(functools.partial(aggregators.bloom_contains, hashes=hashes))
    assert np.all(ask(table, inside))
    expected = (1 - np.exp(-hashes * len(inside) / bits)) ** hashes
    # The filter itself is one draw: 20% beside the binomial error of the question.
    assert abs(np.mean(ask(table, outside)) / expected - 1) < 0.2 + 3 / np.sqrt(expected * len(outside))
    assert not np.any(ask(np.zeros(bits, bool), inside))


def test_minhash_estimates_the_jaccard_similarity():
    size = 1024
    sign = jax.jit(jax.vmap(aggregators.MinHash(size).run))
    sets = np.stack([np.arange(400) + shift for shift in (0, 100, 300, 400)]).astype(np.int32)
    signatures = sign(sets)
    for other in range(4):
        exact = len(np.intersect1d(sets[0], sets[other])) / len(np.union1d(sets[0], sets[other]))
        got = aggregators.minhash_similarity(signatures[0], signatures[other])
        assert abs(got - exact) <= 3 * np.sqrt(exact * (1 - exact) / size)


def test_minhash_of_a_union_is_the_merge():
    sketch = aggregators.MinHash(16)
    one, two = np.array([1, 2, 3]), np.array([3, 9, 12])
    merged = sketch.monoid.merge(sketch.lift_many(one), sketch.lift_many(two))
    np.testing.assert_array_equal(merged, sketch.run(np.union1d(one, two)))


@pytest.mark.parametrize("accuracy", [0.01, 0.1])
def test_ddsketch_keeps_its_relative_error(accuracy):
    quantiles = (0.0, 0.01, 0.3, 0.5, 0.9, 0.999, 1.0)
    x = np.random.default_rng(1).standard_cauchy(5001).astype(np.float32)
    x = np.where(np.abs(x) < 1e-3, 0, x)
    result = jax.jit(aggregators.DDSketch(quantiles, accuracy=accuracy, smallest=1e-3, largest=1e5).run)(x)
    exact = np.sort(x)[[int(np.floor(np.float32(q) * np.float32(5000))) for q in quantiles]]
    assert np.all(np.abs(result["quantile"] - exact) <= accuracy * np.abs(exact) * (1 + 1e-6))
    assert result["count"] == 5001


def test_ddsketch_states_what_is_out_of_its_range():
    sketch = aggregators.DDSketch((0.0, 0.5, 1.0), smallest=1e-2, largest=100.0)
    run = jax.jit(sketch.run)
    result = run(np.array([1e-5, -1e-5, np.inf, np.nan, -1e30], np.float32))
    assert result["count"] == 4
    np.testing.assert_allclose(result["quantile"], [-100, 0, 100], rtol=0.02)
    nothing = run(np.array([np.nan], np.float32))
    assert nothing["count"] == 0
    assert np.all(np.isnan(nothing["quantile"]))


def test_reservoir_is_a_uniform_sample():
    # Every row as often as any other, over 800 seeds; and no row twice.
    k, n, draws = 5, 20, 800
    rows = jnp.arange(n, dtype=jnp.int32)
    keys = jax.vmap(lambda seed: hash32(rows, seed))(jnp.arange(draws))
    drawn = np.argsort(np.asarray(keys), axis=1)[:, :k]
    counts = np.bincount(drawn.ravel(), minlength=n)
    assert scipy.stats.chisquare(counts).pvalue > 1e-3
    # Pairs, too: whether two rows are drawn together.
    together = np.zeros((n, n), int)
    for row in drawn:
        together[np.ix_(row, row)] += 1
    pairs = together[np.triu_indices(n, 1)]
    assert scipy.stats.chisquare(pairs).pvalue > 1e-3
    sample = aggregators.Reservoir(k, seed=7).run(np.arange(n) * 1.5, rows)
    np.testing.assert_array_equal(sample["index"], drawn[7])
    np.testing.assert_array_equal(sample["value"], drawn[7] * 1.5)


def test_reservoir_draws_the_same_in_any_order_and_has_gradients():
    x, at = np.arange(12.0, dtype=np.float32), np.random.default_rng(0).permutation(100)[:12].astype(np.int32)
    sample = aggregators.Reservoir(4)
    run = jax.jit(sample.run)
    want = run(x, at)
    jax.tree.map(np.testing.assert_array_equal, run(x[::-1], at[::-1]), want)
    gradient = jax.jit(jax.grad(lambda x: sample.run(x, at)["value"] @ jnp.arange(1.0, 5.0)))(x)
    expected = np.zeros(12)
    expected[[int(np.flatnonzero(at == index)[0]) for index in want["index"]]] = [1, 2, 3, 4]
    np.testing.assert_array_equal(gradient, expected)
    few = run(x[:2], at[:2])
    assert few["count"] == 2
    assert few["index"][2:].tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: aggregators.HyperLogLog(3), "precision is 3, expected an integer from 4 to 18"),
        (lambda: aggregators.CountMin(0, 2.0), r"(?s)width is 0, .*depth is 2\.0, "),
        (lambda: aggregators.Bloom(True), "bits is True"),
        (lambda: aggregators.MinHash(-1), "size is -1"),
        (lambda: aggregators.Reservoir(0), "k is 0"),
        (lambda: aggregators.DDSketch(0.5), r"quantiles is 0\.5, expected one number or more from 0 to 1"),
        (lambda: aggregators.DDSketch((1.5,), accuracy=0.5), r"(?s)quantiles is \(1\.5,\).*accuracy is 0\.5"),
        (lambda: aggregators.DDSketch(smallest=1.0, largest=0.5), "the magnitudes are 1.0 and 0.5"),
    ],
)
def test_sizes_that_are_none_are_an_error(make, problem):
    with pytest.raises(GraphError, match=problem):
        make()
