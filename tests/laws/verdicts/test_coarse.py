"""Programs in less than float32: entries are judged by their own rounding, and leaves as a whole."""

from __future__ import annotations

import numpy as np

from laws.verdicts.coarse import MORE, beyond_noise, off_as_a_whole


def test_more_samples_are_drawn_for_what_few_do_not_explain():
    asked = []

    def spread(samples):
        asked.append(samples)
        return np.array([1.0, 0.1 * samples, 1.0])

    gaps, places = np.array([9.0, 5.0]), np.array([0, 1])
    np.testing.assert_array_equal(beyond_noise(gaps, places, spread, 4.0), [0])
    assert asked == list(MORE)
    asked.clear()
    assert beyond_noise(np.array([3.0]), np.array([2]), spread, 4.0).size == 0
    assert asked == [MORE[0]]


def test_the_worst_comes_first_and_nothing_is_known_without_noise():
    gaps, places = np.array([1.0, 6.0, 9.0]), np.array([0, 1, 2])
    own = np.array([0.1, 0.1, 1.0])
    np.testing.assert_array_equal(beyond_noise(gaps, places, lambda _: own, 4.0), [1, 0, 2])
    assert beyond_noise(gaps, places, lambda _: None, 4.0) is None


def test_a_leaf_that_is_off_in_one_direction_is_seen():
    source = np.random.default_rng(0)
    leaf = source.standard_normal(1000)
    noise = [abs(0.05 * source.standard_normal(1000) * np.abs(leaf) @ leaf) for _ in range(8)]

    def along(_):
        return [(leaf, max(noise))]

    scattered = 0.05 * source.standard_normal(1000) * leaf
    assert off_as_a_whole(scattered, 0, along, 4.0, 1e-6) is None
    found = off_as_a_whole(0.05 * leaf, 0, along, 4.0, 1e-6)
    assert found is not None
    difference, allowed, own = found
    assert difference > allowed > own > 0
    assert off_as_a_whole(0.05 * leaf, 0, along, 4.0, 0.1) is None
    assert off_as_a_whole(np.full(1000, np.nan), 0, along, 4.0, 1e-6) is None
